"""What is looked at before an opened directory is trusted: cheap, and the same however long its history is.

Everything else is fsck's. Here: that nothing which must be there is gone, that the index is not older than
the log, and that the log beside it is this hub's, judged by the newest receipts of its labels: a root
commits to all before it (I3), so that another hub's file, or an older one, shows by its last entry.
Labels beyond ``LABELS`` and chunks that grow no more are judged when they are first touched (``origin``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from veen_storage.chunks.chunk_origin_check import OriginCheck
from veen_storage.commit import journal
from veen_storage.commit.journal_floor import read_floor
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index, View
from veen_storage.index.records import U32, LabelCursor

LABELS: Final = 384
"""So many labels are looked at: about 150 µs each."""
REPAIR: Final = "run `veen hub repair`"


def check_names(layout: Layout) -> None:
    """Raise if a folder or the checkpoint binding is gone: what is not there must not be taken for empty."""
    for path in (*layout.directories(), layout.checkpoint_binding):
        if not path.exists():
            derived = path in (layout.index, layout.checkpoint_binding)
            raise DamageError(path.name, None, "is missing", REPAIR if derived else "restore it from a clone")


def check_journal(layout: Layout, applied: int) -> None:
    """Raise if the index knows less than was applied, or if the newest segment is gone."""
    floor = read_floor(layout.journal)
    if applied < floor.applied:
        what = f"is older than the log: it knows batch {applied}, {floor.applied} was applied"
        raise DamageError("index/data.mdb", None, what, REPAIR)
    journal.check_newest(layout.journal, floor)


def check_newest_entries(origin: OriginCheck, index: Index) -> None:
    """Raise unless the newest entries of the labels are where the index says, and are this hub's."""
    with index.reading() as view:
        found = list(_newest(view))
    for cursor in found:
        origin.judge_newest(cursor)


def _newest(view: View) -> Iterator[LabelCursor]:
    """Of every label, if there are no more than ``LABELS``; else of some, always the same, evenly spread."""
    every = view.count(tables.LABELS.name) <= LABELS
    starts = [b""] if every else [U32.pack((part << 32) // LABELS) for part in range(LABELS)]
    seen: set[bytes] = set()
    for start in starts:
        for label, number in islice(tables.LABELS.scan(view, start), None if every else 1):
            if label not in seen:
                seen.add(label)
                yield LabelCursor.unpack(number, tables.HEADS.require(view, number))
