"""Attachments: each checked against its coid and limit, all against the index's record (H17, core §14.1)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final

from veen_core.errors import DecodeError
from veen_core.ids import Coid
from veen_storage.disk.layout import Layout
from veen_storage.errors import REPAIR, unreadable
from veen_storage.fsck.index_check import INDEX_FILE, Row
from veen_storage.fsck.report import MOVE_AWAY, Fault, FsckLevel, Report
from veen_storage.fsck.workers import FsckWorkers
from veen_storage.index.lmdb_index import Index, Transaction
from veen_storage.index.records import U64
from veen_storage.read.attachments import IF_LOST, PART_BYTES, UPLOAD_AGAIN

ROWS_AT_ONCE: Final = 4_096
"""Rows that are written in one transaction."""


def check_attachments(
    layout: Layout, report: Report, workers: FsckWorkers, faulty: set[bytes]
) -> Iterator[tuple[str, int]]:
    """Check every attachment; yield name and size of the intact ones, add the others' coids to ``faulty``."""
    content, seen = report.level is FsckLevel.FULL, report.counters
    max_bytes = workers.trust.registry.limits.max_attachment_bytes
    check = partial(check_attachment, max_bytes=max_bytes, content=content)
    for name, size, fault in workers.map(check, list_attachments(layout, report)):
        seen.attachments += 1
        seen.bytes += size if content else 0
        if fault is None:
            yield name, size
        else:
            report.faults.append(fault)
            faulty.add(bytes.fromhex(name))


def list_attachments(layout: Layout, report: Report) -> Iterator[Path]:
    """Yield every file whose name and folder are an attachment's; report the others."""

    def unlistable(exc: OSError) -> None:
        shown = os.path.relpath(exc.filename, layout.root)
        report.faults.append(Fault(file=shown, what=unreadable(shown, exc).what))

    def misplaced(path: Path, what: str) -> None:
        shown = str(path.relative_to(layout.root))
        report.faults.append(Fault(file=shown, what=what, remedy=MOVE_AWAY))

    for folder, folders, names in os.walk(layout.attachments, onerror=unlistable):
        for path in (Path(folder, name) for name in sorted(folders)):
            if _is_attachment_path(layout, path):
                misplaced(path, "is a folder with the name of an attachment")
        for path in (Path(folder, name) for name in sorted(names)):
            if path.suffix == ".tmp":
                shown = path.relative_to(layout.root)
                report.notes.append(f"{shown} is left over from an interrupted upload and may be removed")
            elif _is_attachment_path(layout, path):
                yield path
            else:
                misplaced(path, "is not an attachment")


def _is_attachment_path(layout: Layout, path: Path) -> bool:
    try:
        return layout.attachment(Coid.from_hex(path.name)) == path
    except DecodeError:
        return False


def _sha256_of(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while data := file.read(PART_BYTES):
            digest.update(data)
    return digest.hexdigest()


def check_attachment(path: Path, max_bytes: int, *, content: bool) -> tuple[str, int, Fault | None]:
    """Check one attachment; return its name, its size, and its fault or None (H17)."""
    file = f"attachments/{path.name}"
    try:
        size = path.stat().st_size
        digest = _sha256_of(path) if content and size <= max_bytes else None
    except OSError as exc:
        return path.name, 0, Fault(file=file, what=unreadable(file, exc).what, remedy=UPLOAD_AGAIN)
    if size > max_bytes:
        what = f"has {size} bytes, more than max_attachment_bytes"
    elif digest is None or digest == path.name:
        return path.name, size, None
    else:
        what = "does not hash to its name"
    return path.name, size, Fault(file=file, what=what, remedy=UPLOAD_AGAIN)


# --- the index's record


def record_attachments(index: Index, sizes: Iterable[tuple[str, int]]) -> None:
    """Write size by coid, as the index records attachments."""
    rest = ((bytes.fromhex(name), U64.pack(size)) for name, size in sizes)
    while rows := list(islice(rest, ROWS_AT_ONCE)):
        index.write(partial(_put, rows=rows))


def _put(txn: Transaction, rows: list[tuple[bytes, bytes]]) -> None:
    txn.put_many("attachments", rows)


def attachment_sizes(layout: Layout) -> Iterator[tuple[str, int]]:
    """Yield name and size of every attachment, without reading it."""
    for path in list_attachments(layout, Report(FsckLevel.QUICK)):
        yield path.name, path.stat().st_size


def record_fault(row: Row, level: FsckLevel) -> Fault:
    """Return the fault for a row of the index's record that differs from the attachment files."""
    file = f"attachments/{row.key.hex()}"
    if len(row.key) != Coid.SIZE or len(row.value) != U64.size:
        return Fault(
            file=INDEX_FILE, what=f"table attachments: row {row.key.hex()} is damaged", remedy=REPAIR
        )
    (size,) = U64.unpack(row.value)
    if row.wrong == "extra":
        remedy = f"{UPLOAD_AGAIN}, or restore it from a clone; {IF_LOST}"
        return Fault(file=file, what=f"was stored with {size} bytes and is missing", remedy=remedy)
    if level is FsckLevel.FULL:  # the content matches the name, so the record is wrong
        return Fault(
            file=INDEX_FILE, what=f"table attachments: {file} does not have {size} bytes", remedy=REPAIR
        )
    remedy = "run a full `veen hub fsck`, which tells whether the file or the record is wrong"
    return Fault(file=file, what=f"was stored with {size} bytes and has another size now", remedy=remedy)
