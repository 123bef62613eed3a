"""Sanity checks when a directory is opened, in time that does not depend on the length of the log.

They check that every required folder exists, that the index is not older than the log, and that the log
belongs to this hub. The newest receipt of a label shows this, because its root commits to all entries before
it (I3): another hub's file, or an older one, fails at its last entry. Labels beyond ``MAX_CHECKED_LABELS``,
and chunks that no longer grow, are checked when they are first used (``chunks.chunk_origin_check``).
Everything else is the task of fsck.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from veen_storage.chunks.chunk_origin_check import OriginCheck
from veen_storage.commit import journal
from veen_storage.commit.journal_floor import read_floor
from veen_storage.disk.layout import Layout
from veen_storage.errors import REPAIR, RESTORE, DamageError
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index, View
from veen_storage.index.records import U32, LabelCursor

MAX_CHECKED_LABELS: Final = 384
"""Labels that are checked on open, at about 150 µs each."""


def check_names(layout: Layout) -> None:
    """Raise if a folder or the checkpoint binding is missing: it must not be taken for an empty one."""
    for path in (*layout.directories(), layout.checkpoint_binding):
        if path != layout.hub_log and not path.exists():  # older veens had no hub log
            derived = path in (layout.index, layout.checkpoint_binding)
            raise DamageError(path.name, None, "is missing", REPAIR if derived else RESTORE)


def check_journal(layout: Layout, applied: int) -> None:
    """Raise if the index includes less than was applied, or if the newest journal segment is missing."""
    floor = read_floor(layout.journal)
    if applied < floor.applied:
        what = f"is older than the log: its last batch is {applied}, but batch {floor.applied} was applied"
        raise DamageError("index/data.mdb", None, what, REPAIR)
    journal.check_newest(layout.journal, floor)


def check_newest_entries(origin: OriginCheck, index: Index) -> None:
    """Raise unless the newest entries are at the locations in the index, and this hub signed them."""
    with index.reading() as view:
        found = list(_newest(view))
    for cursor in found:
        origin.check_newest(cursor)


def _newest(view: View) -> Iterator[LabelCursor]:
    """Yield the cursors of at most ``MAX_CHECKED_LABELS`` labels: all, or an evenly spread fixed sample."""
    every = view.count(tables.LABELS.name) <= MAX_CHECKED_LABELS
    parts = range(MAX_CHECKED_LABELS)
    starts = [b""] if every else [U32.pack((part << 32) // MAX_CHECKED_LABELS) for part in parts]
    seen: set[bytes] = set()
    for start in starts:
        for label, number in islice(tables.LABELS.scan(view, start), None if every else 1):
            if label not in seen:
                seen.add(label)
                yield LabelCursor.unpack(number, tables.HEADS.require(view, number))
