"""``veen-witness``: serve a witness in the foreground until SIGTERM or Ctrl-C.

``--init`` instead makes the folder of a new witness, prints its verifier key, and ends. ``--init-if-missing``
is for containers: the key is made on the first start of a new volume, next to the memory that it belongs to.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvloop

from veen_core.errors import ConfigError, VeenError
from veen_hub.ops.config.addresses import split_address
from veen_hub.ops.garbage import collect_rarely
from veen_hub.ops.logs import finish, log, set_up, write_failure
from veen_hub.ops.process_memory import protect_memory
from veen_hub.ops.stopping import first_of, stop_event
from veen_hub.version import VERSION
from veen_hub.witness import config as configuration
from veen_hub.witness.config import WitnessConfig
from veen_hub.witness.folder import WitnessFolder
from veen_hub.witness.key import new_seed
from veen_hub.witness.server import WitnessServer
from veen_hub.witness.witness import Witness


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="veen-witness",
        description="Serve a C2SP witness: cosign the checkpoints of logs, and remember them.",
        epilog="Example: veen-witness --dir=/var/lib/veen-witness --listen=0.0.0.0:8090",
    )
    parser.add_argument("--dir", type=Path, required=True, help="folder of the witness")
    parser.add_argument(
        "--init", metavar="NAME", help="make the folder of a new witness with this name, and exit"
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="VKEY",
        help="with --init: verifier key of a log; repeatable",
    )
    parser.add_argument(
        "--init-if-missing",
        metavar="NAME",
        help="make the folder of a new witness with this name, unless it has one, and serve",
    )
    parser.add_argument(
        "--config", type=Path, help="settings [default: witness.yaml in the folder of the witness]"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="address to listen on; port 0 takes a free one")
    parser.add_argument("--tls-cert", type=Path, help="PEM file with the certificate chain")
    parser.add_argument("--tls-key", type=Path, help="PEM file with the certificate's private key")
    parser.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        help="least severe log events to write; default: as in witness.yaml, else info",
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="write log lines only: the address and the error that ends the witness are log lines too",
    )
    parser.add_argument("--version", action="version", version=f"veen-witness {VERSION}")
    return parser


def parse_address(text: str) -> dict[str, Any]:
    """Return the settings of ``listen`` that ``--listen HOST:PORT`` gives."""
    try:
        host, port = split_address(text)
    except ValueError as exc:
        raise ConfigError(f"--listen: {exc}", action="write it like 127.0.0.1:8090") from None
    return {"host": host, "port": port}


def configure(given: argparse.Namespace) -> WitnessConfig:
    """Load the settings: flags override witness.yaml."""
    tls = {"cert": given.tls_cert, "key": given.tls_key}
    overrides: dict[str, dict[str, Any]] = {
        "listen": parse_address(given.listen) if given.listen is not None else {},
        "tls": {name: value for name, value in tls.items() if value is not None},
    }
    return configuration.load(given.config or WitnessFolder(given.dir).config_file, overrides)


def print_address(url: str) -> None:
    """Print the line for which the starting program waits."""
    # One write, because the log may go to the same file.
    print(f"veen-witness listening on {url}\n", end="", flush=True)  # noqa: T201


async def serve(
    folder: WitnessFolder, config: WitnessConfig, announce: Callable[[str], None] = print_address
) -> None:
    """Serve until a signal, or until the state cannot be written; ``announce`` gets the address."""
    witness = Witness(folder, config)
    server = WitnessServer(witness)
    stopping = stop_event()
    url = await server.start()
    collect_rarely()
    log(
        logging.INFO,
        "listening",
        url=url,
        witness=witness.key.verifier.text,
        logs=len(config.logs),
        version=VERSION,
    )
    if not config.logs:
        log(logging.WARNING, "no_logs", action="add the verifier keys of logs to the settings, and restart")
    announce(url)
    await first_of(stopping, witness.failed)
    await server.stop()
    log(logging.INFO, "stopped")
    if witness.failed.is_set():
        raise VeenError(
            "the witness could not write its state", action="see the log, fix the disk, start it again"
        )


def log_only(_url: str) -> None:
    """Print nothing: the address is in the log."""


def run(arguments: Sequence[str], announce: Callable[[str], None] = print_address) -> None:
    """Run ``veen-witness``; errors are raised to the caller, ``announce`` gets the address."""
    _run(_parser().parse_args(arguments), announce)


def _run(given: argparse.Namespace, announce: Callable[[str], None]) -> None:
    protect_memory()
    folder = WitnessFolder(given.dir)
    if given.init is not None:
        print(folder.create(given.init, new_seed(), given.log).verifier.text)  # noqa: T201
        return
    if given.init_if_missing is not None and not folder.key_file.exists():
        folder.create(given.init_if_missing, new_seed(), [])
    folder.load_key()  # first, because its error says whether this is a witness's folder
    config = configure(given)
    set_up(given.log_level or config.log_level, component="witness", role=_role())
    try:
        with contextlib.suppress(KeyboardInterrupt):
            uvloop.run(serve(folder, config, announce))
    finally:
        finish()


def _role() -> str:
    return os.environ.get("VEEN_ROLE", "witness")


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    try:
        _run(given, log_only if given.quiet else print_address)
    except (VeenError, OSError) as exc:
        if given.quiet:
            write_failure(exc, component="witness", role=_role())
        else:
            print(f"veen-witness: {exc}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
