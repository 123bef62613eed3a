"""``veen witness init`` and ``serve``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any, Final

import click

from veen_cli.arguments.private_files import private_umask
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.hub.process import warn
from veen_storage import LockedError

WITNESS_ADVICE: Final = "give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a TLS proxy"


def dir_option(
    *, required: bool = True, help_: str = "The witness's folder."
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--dir``, with its variable."""
    return click.option(
        "--dir",
        "folder",
        envvar="VEEN_WITNESS_DIR",
        show_envvar=True,
        type=click.Path(path_type=Path),
        required=required,
        help=help_,
    )


@command(
    "veen witness init witness.example.org/w1 --dir witness --log VKEY",
    "veen witness init witness.example.org/w1 --dir witness --log OLD_VKEY --log NEW_VKEY",
)
@click.argument("name")
@dir_option()
@click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="VKEY",
    help="Verifier key of a log to cosign; `veen hub keys --note` prints a hub's; repeatable.",
)
def init(out: Output, *, name: str, folder: Path, logs: tuple[str, ...]) -> Answer:
    """Create a witness: a folder with a key of its own.

    NAME is a URL without scheme that names the witness, such as witness.example.org/w1. It need not be
    reachable. The command prints the witness's verifier key, which logs and their readers configure.
    """
    del out
    # Imported here: click shows the help of this command without them.
    from veen_hub.witness.folder import WitnessFolder  # noqa: PLC0415
    from veen_hub.witness.key import new_seed  # noqa: PLC0415

    created = WitnessFolder(folder)
    with private_umask():
        key = created.create(name, new_seed(), logs).verifier
    return Answer(
        {"folder": str(folder), "name": name, "verifier_key": key.text, "config": str(created.config_file)},
        [
            f"created the witness {name} in {folder}",
            *fields(
                {
                    "  verifier key": key.text,
                    "  logs": f"{created.config_file}" + ("" if logs else "  (none yet: add their keys)"),
                }
            ),
            f"run it with: veen witness serve --dir {quote(str(folder))}",
        ],
    )


@command(
    "veen witness serve --dir witness",
    "veen witness serve --dir witness --listen 0.0.0.0:8090 --tls-cert chain.pem --tls-key key.pem",
)
@dir_option()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address to listen on; port 0 chooses a free one [default: as in witness.yaml].",
)
@click.option("--tls-cert", type=click.Path(path_type=Path, exists=True), help="PEM file: certificate chain.")
@click.option("--tls-key", type=click.Path(path_type=Path, exists=True), help="PEM file: its private key.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Least severe log events to write.",
)
def serve(
    out: Output,
    *,
    folder: Path,
    listen: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    log_level: str | None,
) -> None:
    """Run a witness in the foreground.

    Ctrl-C or SIGTERM answers the requests in progress and stops it. witness.yaml in the folder names the logs
    that the witness cosigns; restart the witness after a change.
    """
    # Imported here: the other commands do not need a server.
    from veen_hub.witness import main as server  # noqa: PLC0415

    if log_level is None and not out.for_people:
        log_level = "error"
    flags = {
        "--dir": folder,
        "--listen": listen,
        "--tls-cert": tls_cert,
        "--tls-key": tls_key,
        "--log-level": log_level,
    }

    def announce(url: str) -> None:
        data = {"url": url, "pid": os.getpid(), "warnings": warn(out, url, WITNESS_ADVICE)}
        out.print_answer(Answer(data, [f"witness listening on {url}; stop it with Ctrl-C"]))
        sys.stdout.flush()

    try:
        server.run([f"{name}={value}" for name, value in flags.items() if value is not None], announce)
    except LockedError as exc:
        raise CommandFailed(exc.message, Exit.USAGE, "stop the other witness, or use another --dir") from None
