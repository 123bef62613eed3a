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
from veen_core.limits import Limits
from veen_storage.disk.layout import Layout
from veen_storage.errors import REPAIR, unreadable
from veen_storage.fsck.index_check import INDEX_FILE, Row, TableDifference
from veen_storage.fsck.report import MOVE_AWAY, Fault, FsckLevel, Report, counted
from veen_storage.fsck.workers import JOB_WEIGHT, FsckWorkers
from veen_storage.index.lmdb_index import Index, Transaction
from veen_storage.index.records import U64
from veen_storage.index.tables import ATTACHMENTS
from veen_storage.read.attachments import IF_LOST, PART_BYTES, UPLOAD_AGAIN

ROWS_AT_ONCE: Final = 4_096
"""Rows that are written in one transaction."""


def check_attachments(
    layout: Layout, report: Report, limits: Limits, workers: FsckWorkers, faulty: set[bytes]
) -> Iterator[tuple[str, int]]:
    """Check every attachment; yield name and size of the intact ones, add the others' coids to ``faulty``."""
    content, seen = report.level is FsckLevel.FULL, report.counters
    check = partial(check_attachment, max_bytes=limits.max_attachment_bytes, content=content)
    found = workers.map(check, list_attachments(layout, report), lambda _path: JOB_WEIGHT)
    for path, (size, fault) in found:
        seen.attachments += 1
        seen.bytes += size if content else 0
        if fault is None:
            yield path.name, size
        else:
            report.faults.append(fault)
            faulty.add(bytes.fromhex(path.name))


def list_attachments(layout: Layout, report: Report) -> Iterator[Path]:
    """Yield every file whose name and folder are an attachment's; report the others."""

    def unlistable(exc: OSError) -> None:
        report.fault_of(unreadable(os.path.relpath(exc.filename, layout.root), exc), "attachments")

    def misplaced(path: Path, what: str) -> None:
        report.fault(str(path.relative_to(layout.root)), what, MOVE_AWAY)

    for folder, folders, names in os.walk(layout.attachments, onerror=unlistable):
        for path in (Path(folder, name) for name in sorted(folders)):
            if _is_attachment_path(layout, path):
                misplaced(path, "is a folder with the name of an attachment")
        for path in (Path(folder, name) for name in sorted(names)):
            if path.suffix == ".tmp":
                report.note_leftover(str(path.relative_to(layout.root)), "upload")
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


def check_attachment(path: Path, max_bytes: int, *, content: bool) -> tuple[int, Fault | None]:
    """Check one attachment; return its size, and its fault or None (H17)."""
    file, size, what = f"attachments/{path.name}", 0, None
    try:
        size = path.stat().st_size
        if size > max_bytes:
            what = f"has {size} bytes, more than max_attachment_bytes"
        elif content and _sha256_of(path) != path.name:
            what = "does not hash to its name"
    except OSError as exc:
        what = unreadable(file, exc).what
    return size, Fault(file=file, what=what, remedy=UPLOAD_AGAIN) if what is not None else None


# --- the index's record


def record_attachments(index: Index, sizes: Iterable[tuple[str, int]]) -> None:
    """Write size by coid, as the index records attachments."""
    rest = ((bytes.fromhex(name), U64.pack(size)) for name, size in sizes)
    while rows := list(islice(rest, ROWS_AT_ONCE)):
        index.write(partial(Transaction.put_many, table=ATTACHMENTS.name, rows=rows))


def attachment_sizes(layout: Layout) -> Iterator[tuple[str, int]]:
    """Yield name and size of every attachment, without reading it."""
    for path in list_attachments(layout, Report(FsckLevel.QUICK)):
        yield path.name, path.stat().st_size


def report_records(found: TableDifference, report: Report, faulty: set[bytes]) -> None:
    """Report where the index's record differs from the attachments; ``faulty`` ones are reported already."""
    for row in found.rows:
        if row.key in faulty:
            continue
        file = f"attachments/{row.key.hex()}"
        if len(row.key) != Coid.SIZE or len(row.value) != U64.size:
            report.fault(INDEX_FILE, f"table attachments: row {row.key.hex()} is damaged", REPAIR)
            continue
        stored = f"was stored with {U64.unpack(row.value)[0]} bytes and"
        if row.wrong == "extra":
            remedy = f"{UPLOAD_AGAIN}, or restore it from a clone; {IF_LOST}"
            report.fault(file, f"{stored} is missing", remedy)
        elif report.level is FsckLevel.FULL:  # the content matches the name, so the record is wrong
            report.fault(INDEX_FILE, f"table attachments: {file} {stored} has another size now", REPAIR)
        else:
            remedy = "run a full `veen hub fsck`, which tells whether the file or the record is wrong"
            report.fault(file, f"{stored} has another size now", remedy)
    if more := found.count - len(found.rows):
        what = f"table attachments: {counted(more, 'more row')} differ from the files in attachments/"
        report.fault(INDEX_FILE, what, REPAIR)
    if found.unrecorded:
        report.notes.append(
            f"{counted(found.unrecorded, 'attachment is', 'attachments are')} not recorded in the index, "
            f"after an interrupted upload: a later loss would not be noticed; {REPAIR}"
        )


def describe_change(row: Row) -> str:
    """Describe an attachment that the index no longer records as it was, because repair built a new one."""
    name = f"attachments/{row.key.hex()}"
    if row.wrong == "extra":
        return f"{name} was stored and is missing: upload it again; it is no longer recorded"
    was = f"the {U64.unpack(row.value)[0]} bytes" if len(row.value) == U64.size else "the size"
    return (
        f"{name} does not have {was} that the old index recorded: "
        "run a full `veen hub fsck` to see whether it is intact"
    )
