"""``veen authority``: name the primary hub of a stream, or pass a hub's authority on (FED1, AUTH1, P9)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.object_files import read_object
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.overlays.arguments import describe_realm, realm_option
from veen_cli.overlays.control import published, show
from veen_cli.overlays.overlay_stream import OverlayAccess, access_options
from veen_core.handover import Handover
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, UnixTime
from veen_core.receipt import Receipt
from veen_core.stream import stream_id
from veen_overlays.control.records import Authority, HandedOver, admin_stream
from veen_overlays.control.state import AUTHORITIES, authority_at
from veen_overlays.identifiers import RealmId
from veen_storage import Layout
from veen_storage.copies.fork_record import ancestors

_HERE: Final = "veen_cli.overlays.authority"
AUTHORITY: Final = {
    "set": LazyCommand(f"{_HERE}:authority_set", "Name the primary hub of a stream."),
    "handover": LazyCommand(
        f"{_HERE}:authority_handover", "Make the successor of a hub the primary of all its streams."
    ),
    "show": LazyCommand(f"{_HERE}:authority_show", "Show the authority record in force for a stream."),
}
authority = CommandGroup("authority", AUTHORITY, path="authority", help="The primary hub of a stream (FED1).")


@command(
    "veen authority set orders --realm shop --primary HUB_ID --replica HUB_ID --ttl 30d --reader realm",
    name="set",
)
@click.argument("stream")
@realm_option
@click.option("--primary", required=True, type=Hex(HubId), help="hub_id of the hub that accepts messages.")
@click.option("--replica", multiple=True, type=Hex(HubId), help="hub_id of a replica; may be repeated.")
@click.option("--multi-primary", is_flag=True, help="Every hub accepts messages; the primary is preferred.")
@click.option(
    "--ttl", type=times.Duration(1), default="30d", show_default=True, help="How long the record is in force."
)
@click.option("--ts", type=times.Moment(), help="Start time [default: now].")
@access_options
def authority_set(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    realm: RealmId,
    primary: HubId,
    replica: tuple[HubId, ...],
    multi_primary: bool,
    ttl: int,
    ts: int | None,
) -> Answer:
    """Name the primary hub of a stream.

    Of several records in force the earliest counts, so a new primary takes over when the old record ends. The
    command says so if an earlier record is still in force.
    """
    del out

    async def work() -> tuple[Authority, Receipt, Authority | None]:
        async with access.at(admin_stream(realm)) as source:
            record = Authority(
                realm_id=realm,
                stream_id=stream_id(stream),
                primary_hub=primary,
                replica_hubs=replica,
                policy="multi-primary" if multi_primary else "single-primary",
                ts=UnixTime(ts) if ts is not None else source.now,
                ttl=ttl,
            )
            receipt = await source.send(record)
            holds = authority_at(await source.state(AUTHORITIES), realm, record.stream_id, record.ts)
            return record, receipt, holds

    record, receipt, holds = loop.run(work())
    line = f"{stream}: primary {primary.hex()} for {times.format_duration(ttl)}"
    answer = published(record, receipt, admin_stream(realm), line)
    held = [] if holds is None or holds == record else [_until(holds)]
    data = {**answer.data, "in_force": None if holds is None else not held}
    return Answer(data, [*answer.lines, *held])


def _until(holds: Authority) -> str:
    end = times.format_utc(holds.ts + holds.ttl)
    return f"  the record is not in force yet: hub {holds.primary_hub.hex()} is the primary until {end}"


@command("veen authority handover new-hub --realm shop --reader realm", name="handover")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@realm_option
@access_options
def authority_handover(out: Output, *, access: OverlayAccess, directory: Path, realm: RealmId) -> Answer:
    """Make the successor of a hub the primary of all its streams.

    DIRECTORY is the data directory of the successor, of a replica or of the old hub, or a folder with copies
    of its handover.cbor and hub-identity.cbor. The handover, which the old hub signed, is published in the
    realm. From then on the successor is the primary wherever an authority record names the old hub, until
    that record ends.
    """
    del out
    record = _read_handover(directory, realm)

    async def work() -> Receipt:
        async with access.at(admin_stream(realm)) as source:
            return await source.send(record)

    passed = record.record
    line = f"hub {passed.new_hub.hex()} is the primary in place of hub {passed.old_hub.hex()}"
    return published(record, loop.run(work()), admin_stream(realm), line)


def _read_handover(directory: Path, realm: RealmId) -> HandedOver:
    for each in (directory, *(path for _fork, path in ancestors(directory))):
        layout = Layout(each)
        if layout.handover.exists():
            return HandedOver(
                realm_id=realm,
                identity=read_object(HubIdentity, layout.identity).encode(),
                handover=read_object(Handover, layout.handover).encode(),
            )
    raise CommandFailed(
        f"{directory} has no handover record",
        Exit.USAGE,
        "name the data directory of a hub that has handed over, of its replica or of its successor; after an "
        "unplanned promotion the old record must end first (`veen authority set`)",
    )


@command("veen authority show orders --realm shop --reader realm", name="show")
@click.argument("stream")
@realm_option
@click.option("--at", type=times.Moment(), help="Time at which the record must be in force [default: now].")
@access_options
def authority_show(
    out: Output, *, access: OverlayAccess, stream: str, realm: RealmId, at: int | None
) -> Answer:
    """Show the authority record in force for a stream.

    Ends with exit code 1 if there is none; every hub of the realm then accepts messages.
    """
    del out
    state = access.state(admin_stream(realm), AUTHORITIES, describe_realm(realm))
    found = authority_at(state, realm, stream_id(stream), at if at is not None else times.now())
    return show(found, f"no authority record for the stream {stream}")
