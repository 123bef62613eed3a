"""``veen rpc list``, ``info`` and ``stats``: the calls and servers of a stream, from its fold (RPC0)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.overlays.overlay_stream import OverlayAccess
from veen_cli.rpc.access import call_options, principals
from veen_core.ids import ClientId
from veen_overlays.fold.overlay import in_json
from veen_overlays.rpc.calls import calls_of, server_rows

STATUSES: Final = ("open", "answered", "failed", "expired")

server_option = click.option(
    "--server",
    "servers",
    multiple=True,
    type=Hex(ClientId),
    help="Identity key whose servers count; repeatable [default: all that are announced].",
)


def _folded(
    access: OverlayAccess, stream: str, servers: tuple[ClientId, ...]
) -> tuple[Any, list[dict[str, Any]], int]:
    """The state of the calls, its rows, and the hub's time."""
    overlay = calls_of(principals(servers))

    async def work() -> tuple[Any, int]:
        async with access.at(stream) as source:
            state = await source.state(overlay, must_exist=True)
            return state, source.now

    state, now = loop.run(work())
    return state, overlay.view(state), now


@command(
    "veen rpc list --stream calls --reader calls-reader",
    "veen rpc list --status failed --last 5 --stream calls --reader calls-reader --json",
    name="list",
)
@click.option("--status", type=click.Choice(STATUSES), help="Only calls with this status.")
@click.option("--last", type=Integer(1), default=20, show_default=True, help="Only the newest calls.")
@server_option
@call_options
def list_calls(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    status: str | None,
    last: int,
    servers: tuple[ClientId, ...],
) -> Answer:
    """List the calls of a stream.

    A call is expired if no server has replied and its deadline has passed at the time of the newest record.
    """
    del out
    rows = [row for row in _folded(access, stream, servers)[1] if status in (None, row["status"])]
    shown = rows[-last:]
    lines = [
        f"{row['seq']:>6}  {times.format_utc(row['hub_ts'])}  {row['status']:<8}  {row['method']}"
        + (f"  {row['code']}" if "code" in row else "")
        for row in shown
    ]
    return Answer(
        {"stream": stream, "calls": in_json(shown), "count": len(rows)},
        lines or [f"{stream} has no such call"],
    )


@command("veen rpc info --stream calls --reader calls-reader")
@server_option
@call_options
def info(out: Output, *, access: OverlayAccess, stream: str, servers: tuple[ClientId, ...]) -> Answer:
    """Show the servers of a stream and their methods.

    A server is alive while the lease of its last announcement lasts. The key that is shown is the server's
    identity key, which --server of the other commands takes.
    """
    del out
    state, _, now = _folded(access, stream, ())
    wanted = principals(servers)
    rows = [row for row in server_rows(state, now) if wanted is None or row["principal_id"] in wanted]
    lines = []
    for row in rows:
        until = f"until {times.format_utc(row['until'])}" if row["until"] else "withdrawn"
        lines.append(f"{'alive' if row['alive'] else 'gone'}  {row['principal_id'].hex()}  {until}")
        lines.append(f"  {', '.join(row['methods'])}")
    return Answer({"stream": stream, "servers": in_json(rows)}, lines or [f"{stream} has no server"])


@command("veen rpc stats --stream calls --reader calls-reader")
@server_option
@call_options
def stats(out: Output, *, access: OverlayAccess, stream: str, servers: tuple[ClientId, ...]) -> Answer:
    """Count the calls of a stream by method and status.

    The time of a call is that between the receipts of request and reply, in whole seconds of the hub.
    """
    del out
    rows = _folded(access, stream, servers)[1]
    counts: dict[str, Counter[str]] = {}
    codes: Counter[str] = Counter()
    longest: dict[str, int] = {}
    for row in rows:
        counts.setdefault(row["method"], Counter())[row["status"]] += 1
        codes.update([row["code"]] if "code" in row else [])
        if "reply_hub_ts" in row:
            seconds = max(0, row["reply_hub_ts"] - row["hub_ts"])
            longest[row["method"]] = max(longest.get(row["method"], 0), seconds)
    methods = {
        method: {
            **{state: counts[method][state] for state in STATUSES},
            "longest_sec": longest.get(method, 0),
        }
        for method in sorted(counts)
    }
    lines = [
        f"{method}: "
        + ", ".join(f"{found[status]} {status}" for status in STATUSES if found[status])
        + f", at most {plural(found['longest_sec'], 'second')}"
        for method, found in methods.items()
    ]
    lines += [f"  {code}: {count}" for code, count in sorted(codes.items())]
    data = {"stream": stream, "calls": len(rows), "methods": methods, "errors": dict(sorted(codes.items()))}
    return Answer(data, lines or [f"{stream} has no calls"])
