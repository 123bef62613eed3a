"""``veen bridge inspect``: show headers and part tables of bundle files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from veen_bridge.bundles import BundleFiles, open_bundles
from veen_bridge.commands.verify import fault_object, header_object, title
from veen_cli.frame import Answer, Exit, Output, command, fields


@command("veen bridge inspect /media/usb", "veen bridge inspect orders.veenb --json", name="inspect")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path, exists=True)
)
def inspect(out: Output, *, files: tuple[Path, ...]) -> Answer:
    """Show headers and part tables of bundle files, without verifying anything.

    Use 'veen bridge verify' before you rely on a bundle. Missing and doubled parts are named. Exits with 3 if
    a file is no part of a bundle.
    """
    del out
    opened = open_bundles(files)
    data = {
        "files": [fault_object(fault) for fault in opened.faults],
        "bundles": [_object(each) for each in opened.bundles],
    }
    lines = [
        *(f"✗ {fault}" for fault in opened.faults),
        *(line for b in opened.bundles for line in _lines(b)),
    ]
    return Answer(data, lines, Exit.PROTOCOL if opened.faults else Exit.OK)


def _missing(files: BundleFiles) -> list[int]:
    return [n for n in range(1, len(files.header.parts) + 1) if n not in files.parts]


def _object(files: BundleFiles) -> dict[str, Any]:
    return {
        "bundle_id": files.bundle_id.hex(),
        **header_object(files.header),
        "files": {str(number): str(part.path) for number, part in sorted(files.parts.items())},
        "missing": _missing(files),
        "doubled": [part.number for part in files.doubled],
        "part_table": [
            {"part": n, "first_seq": row.first_seq, "last_seq": row.last_seq, "bytes": row.size}
            for n, row in enumerate(files.header.parts, start=1)
        ],
    }


def _lines(files: BundleFiles) -> Iterator[str]:
    header = files.header
    yield title(files)
    missing = ", ".join(map(str, _missing(files)))
    rows = {
        "source hub": header.hub_id.hex(),
        "bridge": header.bridge_id.hex(),
        "label": header.label.hex(),
        "previous bundle": header.prev_bundle_id.hex(),
        "hub checkpoint": f"{header.log_name} at size {header.signed_head.head.size}",
        "root before": header.root_before.hex(),
        "root after": header.root_after.hex(),
        "entries": header.counts.events,
        "attachments": f"{header.counts.attachments} ({header.attachments})",
        "messages not opened": header.counts.unopened or None,
        "parts": f"{len(header.parts)}" + (f"; missing: {missing}" if missing else ""),
    }
    yield from (f"  {line}" for line in fields(rows))
    for number, part in sorted(files.parts.items()):
        row = header.parts[number - 1] if number <= len(header.parts) else None
        span = "unknown to the header" if row is None else f"entries {row.first_seq} to {row.last_seq}"
        if row is not None and row.last_seq < row.first_seq:
            span = "no entries"
        yield f"  part {number}  {span}  {part.path}"
    for part in files.doubled:
        yield f"  part {part.number} again  {part.path}"
