"""``veen disc query`` and ``watch``: read a directory, or ask a server of it (spec-5 §6)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.numbers import Integer
from veen_cli.discovery.directory_access import directory_option, kind_argument, stream_of
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.overlays.overlay_stream import OverlayAccess, OverlayStream, access_options
from veen_cli.rpc.access import stream_access
from veen_core import cbor
from veen_core.ids import ClientId
from veen_overlays.discovery.directory import NO_CONDITIONS, Directory
from veen_overlays.discovery.identifiers import overlay_named
from veen_overlays.discovery.query import QueryPage, answer, page
from veen_overlays.discovery.records import Kind, Query, QueryError, QueryResult
from veen_overlays.discovery.state import DISCOVERY, Listed, listing
from veen_overlays.discovery.streams import public_reader
from veen_overlays.fold.overlay import in_json
from veen_overlays.live.discovery import DISC_QUERY, METHOD, LiveDirectory, Position
from veen_overlays.live.rpc import RpcError, connect_rpc
from veen_overlays.schema.record import schema_id

QUERY_STREAM: Final = "disc.query.v1"
"""The stream of queries over RPC, if --via names no other."""


def filter_of(kind: Kind, given: dict[str, Any]) -> dict[str, Any]:
    """The filter of a query in the order of spec-5 6.1; options that the kind does not have are refused."""
    order = {
        "hub": ("region", "tags_any", "overlay_id"),
        "service": ("name_prefix", "method", "overlay_id", "region", "tags_any"),
        "overlay": ("name_prefix", "schema", "tags_any"),
    }[kind]
    unknown = [key for key, value in given.items() if value not in (None, []) and key not in order]
    if unknown:
        flag = {"name_prefix": "--name", "tags_any": "--tag", "overlay_id": "--overlay"}.get(
            unknown[0], f"--{unknown[0]}"
        )
        raise click.UsageError(f"{flag} is not a condition for the kind {kind}.")
    return {key: given[key] for key in order if given.get(key) not in (None, [])}


def _schema(text: str) -> bytes:
    return bytes.fromhex(text) if len(text) == 64 else bytes(schema_id(text))


def descriptor_lines(kind: Kind, found: dict[str, Any]) -> list[str]:
    """A descriptor in a few lines for a person."""
    if kind == "hub":
        urls = ", ".join(each["url"] for each in found["endpoints"])
        return [f"hub {found['hub_id'].hex()}", f"  {found['region']}  {urls or 'no endpoint'}{_tags(found)}"]
    if kind == "overlay":
        head = f"overlay {found['name']} {found['version']}  {found['overlay_id'].hex()}"
        return [head, f"  {plural(len(found['schemas']), 'schema')}{_tags(found)}"]
    lines = [f"service {found['name']}  {found['service_id'].hex()}"]
    regions = ", ".join(found["regions"]) or "any region"
    return [*lines, f"  methods {', '.join(found['methods']) or 'none'}; {regions}{_tags(found)}"]


def _tags(found: dict[str, Any]) -> str:
    return f"  [{', '.join(found['tags'])}]" if found["tags"] else ""


def _position_data(stream: str, position: Position) -> dict[str, Any]:
    return {
        "stream": stream,
        "upto_seq": position.upto_seq,
        "mmr_root": position.mmr_root.hex(),
        "hub_ts": position.hub_ts,
    }


async def _locally(
    source: OverlayStream, query: Query, at: int | None
) -> tuple[QueryResult, QueryPage, Position, Any]:
    async with source.view(DISCOVERY) as view:
        live = LiveDirectory(view)
        position = await live.refresh()
        now = position.hub_ts if at is None else at
        found = page(live.directory, query, now)
        state = (await view.state()).summary.inner
        listed = found if isinstance(found, QueryPage) else QueryPage((), more=False)
        return answer(live.directory, query, now), listed, position, state


async def ask_server(
    source: OverlayStream, query: Query, servers: Sequence[ClientId], timeout: float
) -> QueryResult:
    """The reply of a live server of the stream."""
    trusted = [bytes(each) for each in servers] or None
    async with connect_rpc(stream_access(source), servers=trusted, exchanges=[DISC_QUERY]) as client:
        try:
            done = await client.exchange(DISC_QUERY, lambda _timeout, _to: query, METHOD, timeout=timeout)
        except RpcError as exc:
            raise CommandFailed(
                exc.message,
                Exit.NETWORK,
                "start a server with `veen disc serve`, or leave out --via",
                reason=exc.code,
            ) from None
    assert isinstance(done.reply, QueryResult)
    return done.reply


def _raise_refused(error: QueryError | None) -> None:
    if error is not None:
        raise CommandFailed(f"{error.code}: {error.detail}", Exit.REFUSED, reason=error.code)


@command(
    "veen disc query service --method translate --region eu",
    "veen disc query hub --region eu --tag public --json",
    "veen disc query service --method translate --via disc.query.v1",
)
@kind_argument
@click.option("--name", "name_prefix", help="The name starts with this (services and overlays).")
@click.option("--method", help="The service has this method.")
@click.option("--overlay", "overlay_", help="Name or id of an overlay that the hub or the service uses.")
@click.option("--schema", help="Name or id of a schema that the overlay has.")
@click.option("--region", help="The hub is in this region; the service prefers it.")
@click.option("--tag", "tags", multiple=True, help="It has one of these tags; repeatable.")
@click.option("--limit", type=Integer(0), help="Largest number of results [default and maximum: 100].")
@click.option("--offset", type=Integer(0), help="Number of results to skip.")
@click.option(
    "--at",
    type=times.Moment(),
    help="List what has not expired at this time [default: the time of the newest entry].",
)
@click.option("--via", metavar="STREAM", help="Ask a live server of this stream; read no descriptors.")
@click.option(
    "--server", "servers", multiple=True, type=Hex(ClientId), help="Identity key of a server to trust."
)
@click.option("--rejected", is_flag=True, help="Also list publishers whose records do not count, and why.")
@directory_option
@access_options
def query(
    out: Output,
    *,
    access: OverlayAccess,
    directory: str | None,
    kind: Kind,
    name_prefix: str | None,
    method: str | None,
    overlay_: str | None,
    schema: str | None,
    region: str | None,
    tags: tuple[str, ...],
    limit: int | None,
    offset: int | None,
    at: int | None,
    via: str | None,
    servers: tuple[ClientId, ...],
    rejected: bool,
) -> Answer:
    """List the hubs, services or overlays that fit.

    Readers at the same root of the stream list the same: descriptors expire at the time of the newest entry.
    Results are hints. `veen connect` pins the hub before it uses one.
    """
    del out
    if via is not None and (rejected or at is not None or directory is not None):
        raise click.UsageError(
            "--via asks a server, so it cannot be used with --at, --directory or --rejected."
        )
    wanted = Query(
        kind=kind,
        filter=filter_of(
            kind,
            {
                "name_prefix": name_prefix,
                "method": method,
                "overlay_id": None if overlay_ is None else bytes(overlay_named(overlay_)),
                "schema": None if schema is None else _schema(schema),
                "region": region,
                "tags_any": list(tags),
            },
        ),
        limit=limit,
        offset=offset,
    )
    stream = via or stream_of(kind, directory)

    async def work() -> Answer:
        async with access.streams(reader_of=public_reader) as at_stream:
            source = at_stream(stream)
            if via is not None:
                reply = await ask_server(source, wanted, servers, access.target.wait + 10)
                _raise_refused(reply.error)
                return _answer(kind, reply, {"via": via}, [])
            reply, found, position, state = await _locally(source, wanted, at)
            _raise_refused(reply.error)
            refused = [each for each in listing(state) if (each.kind, each.status) == (kind, "rejected")]
            data: dict[str, Any] = {
                "as_of": _position_data(stream, position),
                "publishers": [each.publisher.hex() for each in found.found],
                "rejected_records": sum(each.records for each in refused),
            }
            if rejected:
                data["rejected"] = [_refusal_data(each) for each in refused]
            as_of = f"as of message {position.upto_seq} of {stream}, {times.format_utc(position.hub_ts)}"
            lines = [as_of if position.upto_seq else f"{stream} has no messages at this hub"]
            if refused:
                count = plural(data["rejected_records"], "record")
                lines.append(f"{count} of {plural(len(refused), 'publisher')} do not count (--rejected)")
            if rejected:
                lines += [f"  {each.id.hex()} by {each.publisher.hex()}: {each.why}" for each in refused]
            return _answer(kind, reply, data, lines)

    return loop.run(work())


def _refusal_data(each: Listed) -> dict[str, Any]:
    return {
        "id": each.id.hex(),
        "publisher": each.publisher.hex(),
        "records": each.records,
        "why": each.why,
    }


def _answer(kind: Kind, reply: QueryResult, data: dict[str, Any], lines: list[str]) -> Answer:
    shown = [line for each in reply.results for line in descriptor_lines(kind, each)]
    shown = shown or [f"no {kind} fits"]
    if reply.more:
        shown.append("there are more results: see --limit and --offset")
    return Answer({"results": in_json(list(reply.results)), "more": reply.more, **data}, [*shown, *lines])


@command("veen disc watch service", "veen disc watch hub --count 3 --json")
@kind_argument
@click.option("--count", type=Integer(1), help="End after this many changes.")
@click.option(
    "--every",
    type=times.Duration(1),
    default="1s",
    show_default=True,
    help="Time between two reads of the directory.",
)
@directory_option
@access_options
def watch(
    out: Output, *, access: OverlayAccess, directory: str | None, kind: Kind, count: int | None, every: int
) -> None:
    """Show what is listed now, and then each change, until Ctrl-C.

    With --json each change is one JSON object on a line.
    """
    stream = stream_of(kind, directory)

    async def work() -> None:
        shown: dict[bytes, bytes] = {}
        left = count
        async with (
            access.streams(reader_of=public_reader) as at_stream,
            at_stream(stream).view(DISCOVERY) as view,
        ):
            live = LiveDirectory(view)
            while True:
                position = await live.refresh()
                now = max(position.hub_ts, times.now())
                for change, each in _changes(shown, live.directory, kind, now):
                    _print_change(out, kind, change, each)
                    left = None if left is None else left - 1
                    if left == 0:
                        return
                await asyncio.sleep(every)

    loop.run(work())


def _changes(
    shown: dict[bytes, bytes], directory: Directory, kind: Kind, now: int
) -> list[tuple[str, dict[str, Any]]]:
    """Return the differences between ``shown`` and the directory now, and update ``shown``."""
    listed = {each.id: each.body for each in directory.matching(kind, NO_CONDITIONS, now)}
    changes = [
        ("changed" if id_ in shown else "listed", body)
        for id_, body in sorted(listed.items())
        if shown.get(id_) != body
    ]
    changes += [("gone", body) for id_, body in sorted(shown.items()) if id_ not in listed]
    shown.clear()
    shown.update(listed)
    return [(change, _decoded(body)) for change, body in changes]


def _decoded(body: bytes) -> dict[str, Any]:
    item: Any = cbor.decode(body)
    found: dict[str, Any] = item
    return found


def _print_change(out: Output, kind: Kind, change: str, found: dict[str, Any]) -> None:
    if out.as_json:
        click.echo(json.dumps({"change": change, "descriptor": in_json(found)}))
    else:
        click.echo(f"{change:<8}{descriptor_lines(kind, found)[0]}")
