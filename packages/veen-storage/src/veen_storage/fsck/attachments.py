"""Attachments: each against its coid and limit, and all against what the index recorded (H17, §14.1)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final

from veen_core.errors import DecodeError
from veen_core.ids import Coid
from veen_storage.disk.layout import Layout
from veen_storage.errors import unreadable
from veen_storage.fsck.index import FILE, Row
from veen_storage.fsck.log import Tell
from veen_storage.fsck.plan import Workers
from veen_storage.fsck.report import REPAIR, Fault, Level, Progress, Report
from veen_storage.index.lmdb_index import Index, Transaction
from veen_storage.index.records import U64
from veen_storage.read.attachments import GONE, PART, PUT_AGAIN

ROUND: Final = 4_096
"""Rows that are written at once."""


def check_attachments(
    layout: Layout, report: Report, workers: Workers, tell: Tell | None, derived: Path | None
) -> set[tuple[str, bytes]]:
    """Each by itself; returns the rows of those that are reported.

    What the index would know of the others goes into ``derived``.
    """
    faulty: set[tuple[str, bytes]] = set()
    whole = _whole(layout, report, workers, tell, faulty)
    if derived is None:
        deque(whole, maxlen=0)
        return faulty
    index = Index(derived, sync=False)
    try:
        record(index, whole)
    finally:
        index.close()
    return faulty


def _whole(
    layout: Layout, report: Report, workers: Workers, tell: Tell | None, faulty: set[tuple[str, bytes]]
) -> Iterator[tuple[str, int]]:
    """Name and size of each that is as it must be."""
    content, seen = report.level is Level.FULL, report.counters
    max_bytes = workers.trust.registry.limits.max_attachment_bytes
    check = partial(check_attachment, max_bytes=max_bytes, content=content)
    for name, size, fault in workers.map(check, list_attachments(layout, report)):
        seen.attachments += 1
        seen.bytes += size if content else 0
        if fault is None:
            yield name, size
        else:
            report.faults.append(fault)
            faulty.add(("attachments", bytes.fromhex(name)))
        if tell is not None:
            tell(Progress("attachments", seen.labels, seen.labels, seen.entries, seen.bytes))


def list_attachments(layout: Layout, report: Report) -> Iterator[Path]:
    """Every attachment whose name and place are right; the rest is reported."""

    def fault(exc: OSError) -> None:
        shown = os.path.relpath(exc.filename, layout.root)
        report.faults.append(Fault(file=shown, what=unreadable(shown, exc).what))

    def misplaced(path: Path, what: str) -> None:
        shown = str(path.relative_to(layout.root))
        report.faults.append(Fault(file=shown, what=what, remedy="move it out of the data directory"))

    for folder, folders, names in os.walk(layout.attachments, onerror=fault):
        for path in (Path(folder, name) for name in sorted(folders)):
            if _is_placed(layout, path):
                misplaced(path, "is a folder, in the place of an attachment")
        for path in (Path(folder, name) for name in sorted(names)):
            if path.suffix == ".tmp":
                shown = path.relative_to(layout.root)
                report.notes.append(f"{shown} is left from a put that was cut off: it may be removed")
            elif _is_placed(layout, path):
                yield path
            else:
                misplaced(path, "has no place in attachments/")


def _is_placed(layout: Layout, path: Path) -> bool:
    """Whether an attachment is, or would be, where this is."""
    try:
        return layout.attachment(Coid.from_hex(path.name)) == path
    except DecodeError:
        return False


def sha256_of(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while data := file.read(PART):
            digest.update(data)
    return digest.hexdigest()


def check_attachment(path: Path, max_bytes: int, *, content: bool) -> tuple[str, int, Fault | None]:
    """Its name and size, and what is wrong with it (H17)."""
    file, remedy = f"attachments/{path.name}", PUT_AGAIN
    try:
        size = path.stat().st_size
        digest = sha256_of(path) if content and size <= max_bytes else None
    except OSError as exc:
        return path.name, 0, Fault(file=file, what=unreadable(file, exc).what, remedy=remedy)
    if size > max_bytes:
        what = f"{size} bytes exceed max_attachment_bytes"
    elif digest is None or digest == path.name:
        return path.name, size, None
    else:
        what = "is not the content its name says"
    return path.name, size, Fault(file=file, what=what, remedy=remedy)


# --- the index's record


def record(index: Index, sizes: Iterable[tuple[str, int]]) -> None:
    """What the index would know of the attachments that are there: size by coid."""
    rest = ((bytes.fromhex(name), U64.pack(size)) for name, size in sizes)
    while rows := list(islice(rest, ROUND)):
        index.write(partial(_put, rows=rows))


def _put(txn: Transaction, rows: list[tuple[bytes, bytes]]) -> None:
    txn.put_many("attachments", rows)


def sizes_of(layout: Layout) -> Iterator[tuple[str, int]]:
    """Of every attachment that is in its place, unread."""
    for path in list_attachments(layout, Report(Level.QUICK)):
        yield path.name, path.stat().st_size


def row_fault(row: Row, level: Level) -> Fault:
    """A row of the record that does not agree with the folder."""
    file = f"attachments/{row.key.hex()}"
    if len(row.key) != Coid.SIZE or len(row.value) != U64.size:
        return Fault(file=FILE, what=f"table attachments: row {row.key.hex()} is none", remedy=REPAIR)
    (size,) = U64.unpack(row.value)
    if row.wrong == "extra":
        remedy = f"{PUT_AGAIN}, or restore it from a clone; {GONE}"
        return Fault(file=file, what=f"was put, with {size} bytes, and is missing", remedy=remedy)
    if level is Level.FULL:  # its content is what its name says: the record is wrong
        return Fault(file=FILE, what=f"table attachments: {file} has not {size} bytes", remedy=REPAIR)
    remedy = "run a full `veen hub fsck`: it tells whether file or record is wrong"
    return Fault(file=file, what=f"has not the {size} bytes that were put", remedy=remedy)
