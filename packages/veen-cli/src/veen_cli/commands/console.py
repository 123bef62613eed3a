"""``veen console``: look at a hub in a browser, which verifies what the hub says (ADR 0030)."""

from __future__ import annotations

import asyncio
import sys
import webbrowser
from typing import Final

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.frame.settings import FIRST
from veen_hub.ops.stopping import stop_event

LOOPBACK: Final = "127.0.0.1"


@command(
    "veen console --hub http://127.0.0.1:8080",
    "veen console --hub https://hub.example --trust HUB_ID --witnesses policy.txt",
    "veen console --open",
)
@click.option(
    "--port",
    type=Integer(0, 65_535),
    default=0,
    show_default="a free one",
    help="Port of the console on this machine.",
)
@click.option(
    "--probes",
    envvar="VEEN_PROBES",
    help="Address of the hub's /readyz and /metrics [default: http, the hub's host, its port + 1].",
)
@click.option("--open", "opens", is_flag=True, help="Open the address in this machine's browser.")
@connects
def console(out: Output, *, target: Target, port: int, probes: str | None, opens: bool) -> Answer | None:
    """Show a hub in a browser, which verifies what the hub says.

    Starts a listener on this machine only, prints its address, and runs until Ctrl-C. The page reads the hub
    through this listener and verifies every message, receipt and proof itself, against the hub_id that you
    confirm in the page. Nothing can be sent or changed. The address contains a secret of this session: other
    users of this machine need it too.
    """
    from veen_cli.hub.status import probes_target  # noqa: PLC0415 - only a running console needs it
    from veen_hub.client import Tls  # noqa: PLC0415 - as above
    from veen_hub.console.description import ConsoleDescription  # noqa: PLC0415 - as above
    from veen_hub.console.forwarding import serve_console  # noqa: PLC0415 - as above
    from veen_hub.version import VERSION  # noqa: PLC0415 - as above

    if not target.url.startswith(("http://", "https://")):
        raise click.UsageError(f"--hub {target.url}: the console needs the hub's http or https address.")
    description = ConsoleDescription(
        served_by="veen console",
        hub=target.url,
        pinned=_pinned(target),
        witness_policy=_policy_text(target),
        has_probes=True,
        version=VERSION,
    )
    tls = (target.tls or Tls()).context() if target.url.startswith("https://") else None
    probes_url = probes_target(target, probes).url

    async def work() -> None:
        stopping = stop_event()
        async with serve_console(
            hub=target.url, probes=probes_url, tls=tls, description=description, host=LOOPBACK, port=port
        ) as url:
            lines = [f"console of {target.url}: {url}", "Ctrl-C stops it"]
            out.print_answer(Answer({"url": url, "hub": target.url}, lines))
            sys.stdout.flush()
            if opens and not await asyncio.to_thread(webbrowser.open, url):
                click.echo("no browser was found: open the address yourself", err=True)
            await stopping.wait()

    loop.run(work())
    return None


def _pinned(target: Target) -> str | None:
    """Return the hub_id that this identity or command line pins; the page asks a person to confirm it."""
    if target.trust not in (None, FIRST):
        return target.trust
    path = target.folder.pin(target.url) if target.folder is not None else None
    if path is None or not path.exists():
        return None
    from veen_core.errors import DecodeError  # noqa: PLC0415 - as above
    from veen_core.hub_identity import HubIdentity  # noqa: PLC0415 - as above

    try:
        return HubIdentity.decode(path.read_bytes()).hub_id.hex()
    except (OSError, DecodeError) as exc:
        raise CommandFailed(f"{path}: the pinned hub cannot be read: {exc}", Exit.POLICY) from None


def _policy_text(target: Target) -> str | None:
    if target.witnesses is None:
        return None
    try:
        return target.witnesses.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise CommandFailed(f"--witnesses {target.witnesses} cannot be read: {exc}", Exit.USAGE) from None
