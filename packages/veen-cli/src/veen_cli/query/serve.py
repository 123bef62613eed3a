"""``veen query serve`` and the program ``veen-query``: run the Query API as a service."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from veen_cli.arguments.passphrase import Passphrase, passphrase_option
from veen_cli.arguments.private_files import private_umask
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.frame.process import run_command
from veen_cli.frame.start import start_process
from veen_cli.query.event_options import rebuild_option
from veen_cli.query.extra import require_extra

CONFIG: Final = "query.yaml"


@command(
    "veen query serve",
    "veen query serve --config /etc/veen/query.yaml --listen 127.0.0.1:8085",
    "veen query serve --check",
)
@click.option(
    "--config",
    "-c",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path(CONFIG),
    show_default=True,
    envvar="VEEN_QUERY_CONFIG",
    show_envvar=True,
    help="Configuration file.",
)
@click.option("--listen", metavar="HOST:PORT", help="Address of the API [default: as in the configuration].")
@click.option(
    "--probes",
    metavar="HOST:PORT",
    help="Address of /readyz and /metrics [default: as in the configuration].",
)
@click.option("--check", is_flag=True, help="Check the configuration and exit.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Least severe log events to write [default: as in the configuration].",
)
@rebuild_option
@passphrase_option
def serve(
    out: Output,
    *,
    config: Path,
    listen: str | None,
    probes: str | None,
    check: bool,
    log_level: str | None,
    rebuild: bool,
    passphrase_file: Path | None,
) -> Answer | None:
    """Run the Query API as a service in the foreground.

    Ctrl-C or SIGTERM lets running queries finish and stops the service; queries that have not finished run
    again at the next start. The service needs at least one principal with a token or a certificate. Its state
    folder contains opened events: no other user may read it.
    """
    require_extra()
    # Imported here: the other commands do not need a server.
    import uvloop  # noqa: PLC0415

    from veen_cli.query import config as configuration  # noqa: PLC0415
    from veen_cli.query import process  # noqa: PLC0415
    from veen_hub.ops.logs import finish, set_up  # noqa: PLC0415
    from veen_hub.ops.process_memory import protect_memory  # noqa: PLC0415

    overrides = {"listen": _address("--listen", listen), "probes": _address("--probes", probes)}
    settings = configuration.load(config, overrides)
    authenticator = settings.authenticator()
    if check:
        names = [each.name for each in settings.principals]
        return Answer(
            {"ok": True, "principals": names, "streams": [each.name for each in settings.streams]},
            [
                f"{config} is valid: {plural(len(names), 'principal')}, "
                f"{plural(len(settings.streams), 'stream')}"
            ],
        )
    protect_memory()
    keys = _keys(settings, Passphrase(passphrase_file))
    role = os.environ.get("VEEN_ROLE", "query")
    set_up(log_level or settings.log_level, component="query", role=role)

    def announce(url: str, probes_url: str) -> None:
        data = {"url": url, "probes_url": probes_url, "pid": os.getpid()}
        out.print_answer(Answer(data, [f"veen-query listening on {url}, probes on {probes_url}"]))
        sys.stdout.flush()

    try:
        with private_umask():
            uvloop.run(process.serve(settings, authenticator, keys, announce, rebuild=rebuild))
    finally:
        finish()
    return None


def _address(flag: str, text: str | None) -> dict[str, Any]:
    from veen_hub.ops.config.addresses import split_address  # noqa: PLC0415 - as above

    if text is None:
        return {}
    try:
        host, port = split_address(text)
    except ValueError as exc:
        raise CommandFailed(f"{flag}: {exc}", Exit.USAGE, "write it like 127.0.0.1:8085") from None
    return {"host": host, "port": port}


def _keys(settings: Any, passphrase: Passphrase) -> Any:
    """Open the identity, the reader keys and the tokens that the configuration names."""
    from veen_cli.identity.identity_folder import Folder  # noqa: PLC0415 - as above
    from veen_cli.query.process import ServiceKeys  # noqa: PLC0415 - as above
    from veen_core.cap import CapToken  # noqa: PLC0415 - as above
    from veen_hub.client import Identity  # noqa: PLC0415 - as above

    def identity(folder: Path) -> Identity:
        return Identity.of(Folder(folder).unlock(passphrase))

    return ServiceKeys(
        identity=identity(settings.client),
        readers=tuple(key for folder in settings.readers for key in identity(folder).dh_keys),
        tokens=tuple(CapToken.decode(path.read_bytes()) for path in settings.tokens),
    )


def main() -> NoReturn:
    """Run the program ``veen-query``: ``veen query serve`` under spec-4's name (RESOLUTIONS P18)."""
    start_process(lambda: run_command(serve, name="veen-query", component="query"))
