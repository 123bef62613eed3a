"""``veen bridge export``: write new entries of streams and their evidence into bundles."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from veen_bridge.commands.arguments import config_option, unlock_with
from veen_bridge.exporting.export import ExportedBundle, Exporter, ProgressBar
from veen_bridge.exporting.planning import ExportWishes
from veen_bridge.exporting.selection import select_streams
from veen_bridge.roles.config import ONLINE, load_config
from veen_bridge.roles.session import RoleKeys, open_session
from veen_cli.frame import (
    Answer,
    CommandFailed,
    Exit,
    Integer,
    Output,
    Passphrase,
    Seconds,
    command,
    passphrase_option,
    plural,
    run_loop,
)

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Parse a size such as ``4700M``."""
    if value is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,14})([KMGT]?)(?:iB)?", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a size; write bytes, or 64K, 700M, 4G")
    return int(found.group(1)) * _UNITS[found.group(2)]


@command(
    "veen bridge export --out /media/usb",
    "veen bridge export export/zone1/orders --out out --part-size 4G --json",
    name="export",
)
@click.argument("streams", nargs=-1, metavar="[STREAM…]")
@config_option
@click.option(
    "--out",
    "-o",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder for the bundles.",
)
@click.option("--from", "from_seq", type=Integer(1), help="First entry [default: after the last bundle].")
@click.option("--upto", "to_seq", type=Integer(1), help="Last entry [default: the hub checkpoint's].")
@click.option(
    "--part-size",
    metavar="SIZE",
    callback=parse_size,
    help="Largest size of a file: 700M, 4G … [default: one file].",
)
@click.option("--no-attachments", is_flag=True, help="Leave attachments out; the header says so.")
@click.option("--no-heartbeat", is_flag=True, help="Write no bundle for a stream without new entries.")
@click.option("--checkpoint-now", is_flag=True, help="Wait for a hub checkpoint over the newest entry.")
@click.option(
    "--wait",
    type=Seconds(),
    default=30.0,
    show_default=True,
    help="Seconds to wait for a hub checkpoint, or for its witnesses.",
)
@passphrase_option
def export(
    out: Output,
    *,
    streams: tuple[str, ...],
    config_file: Path,
    folder: Path,
    from_seq: int | None,
    to_seq: int | None,
    part_size: int | None,
    no_attachments: bool,
    no_heartbeat: bool,
    checkpoint_now: bool,
    wait: float,
    passphrase_file: Path | None,
) -> Answer:
    """Write new entries of STREAMs and their evidence into bundles.

    STREAM is a name, an id in hex, or a pattern such as 'export/*', of the streams that the configuration
    lists; by default all of them. An export starts after the last bundle that bridge/online/log records, and
    ends at the hub's newest hub checkpoint. Interrupted, it continues when it is started again.
    """
    config = load_config(config_file)
    config.require(ONLINE, "export")
    chosen = select_streams(config.streams, streams)
    if (from_seq or to_seq) and len(chosen) != 1:
        raise click.UsageError("--from and --upto need exactly one STREAM.")
    wishes = ExportWishes(
        from_seq=from_seq,
        to_seq=to_seq,
        attachments=not no_attachments,
        part_size=part_size,
        checkpoint_now=checkpoint_now,
        timeout=wait,
        heartbeat=not no_heartbeat,
    )
    keys = RoleKeys.load(config, unlock_with(Passphrase(passphrase_file)))

    @contextmanager
    def watch(what: str, total: int) -> Iterator[ProgressBar]:
        with out.progress(what, total) as progress:
            yield progress

    async def work() -> list[ExportedBundle]:
        async with open_session(config, keys) as session:
            exporter = Exporter(session, folder, wishes, watch)
            return [bundle async for bundle in exporter.export(chosen)]

    try:
        bundles = run_loop(work())
    except OSError as exc:
        if exc.errno != errno.ENOSPC:
            raise
        found = f"the bundle does not fit into {folder}: {exc.strerror}"
        raise CommandFailed(
            found, Exit.USAGE, "free space there and start the same command again: it continues"
        ) from None
    return Answer({"bundles": [as_object(each) for each in bundles]}, _lines(bundles))


def as_object(bundle: ExportedBundle) -> dict[str, Any]:
    """Return the JSON object of an exported bundle, for ``--json``."""
    header = bundle.header
    return {
        "bundle_id": bundle.bundle_id.hex(),
        "prev_bundle_id": header.prev_bundle_id.hex(),
        "stream": header.stream,
        "label": header.label.hex(),
        "from_seq": header.from_seq,
        "to_seq": header.to_seq,
        "events": header.counts.events,
        "attachments": header.counts.attachments,
        "unopened": header.counts.unopened,
        "heartbeat": header.is_heartbeat,
        "resumed": bundle.resumed,
        "files": [str(path) for path in bundle.files],
    }


def _lines(bundles: Sequence[ExportedBundle]) -> Iterator[str]:
    if not bundles:
        yield "no new entries; nothing was written"
    for bundle in bundles:
        header, name = bundle.header, bundle.bundle_id.hex()[:16]
        again = ", continued after an interruption" if bundle.resumed else ""
        if header.is_heartbeat:
            yield f"{header.stream}: no new entries after {header.to_seq}; heartbeat {name}…{again}"
        else:
            counts = plural(header.counts.events, "entry", "entries")
            span = f"{header.from_seq} to {header.to_seq}"
            extra = plural(header.counts.attachments, "attachment")
            yield f"{header.stream}: {counts} ({span}), {extra}; bundle {name}…{again}"
        for path in bundle.files:
            yield f"  {path}"
        if header.counts.unopened:
            yield (
                f"  {plural(header.counts.unopened, 'message')} could not be opened: their attachments, if "
                "any, are not in the bundle"
            )
