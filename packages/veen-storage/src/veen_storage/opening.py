"""What is looked at before an opened directory is trusted: cheap, and the same however long its history is.

Everything else is fsck's. Here: that nothing which must be there is gone, that the index is not older than
the log, and that the log beside it is this hub's, judged by the newest receipts of a few labels: a root
commits to all before it (I3), so that another hub's file, or an older one, shows by its last entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from veen_core import hub_identity
from veen_core.errors import SignatureError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import Label
from veen_storage import journal
from veen_storage.chunk_files import ChunkFile
from veen_storage.errors import DamageError, MismatchError
from veen_storage.index import Index, View
from veen_storage.layout import Layout
from veen_storage.records import U32, U64, LabelCursor, LabelNo, Location

LABELS: Final = 8
"""So many labels are looked at, evenly spread over all there are."""
REPAIR: Final = "run `veen hub repair`"


def check_names(layout: Layout) -> None:
    """Raise if a folder or the checkpoint binding is gone: what is not there must not be taken for empty."""
    for path in (*layout.directories(), layout.checkpoint_binding):
        if not path.exists():
            derived = path in (layout.index, layout.checkpoint_binding)
            raise DamageError(path.name, None, "is missing", REPAIR if derived else "restore it from a clone")


def check_journal(layout: Layout, applied: int) -> None:
    """Raise if the index knows less than was applied, or if the newest segment is gone."""
    floor = journal.read_floor(layout.journal)
    if applied < floor.applied:
        what = f"is older than the log: it knows batch {applied}, {floor.applied} was applied"
        raise DamageError("index/data.mdb", None, what, REPAIR)
    journal.check_newest(layout.journal, floor)


def check_newest_entries(layout: Layout, identity: HubIdentity, index: Index) -> None:
    """Raise unless the newest entries of some labels are where the index says, and are this hub's."""
    with index.reading() as view:
        found = list(_newest(view))
    for cursor, place in found:
        _check_entry(layout, identity, cursor, place)


def _newest(view: View) -> Iterator[tuple[LabelCursor, Location]]:
    seen: set[bytes] = set()
    for part in range(LABELS):
        start = bytes([part * 256 // LABELS]).ljust(Label.SIZE, b"\x00")
        label, number = next(view.scan("labels", start), (b"", b""))
        if not label or label in seen:
            continue
        seen.add(label)
        head = view.get("heads", number)
        cursor = LabelCursor.unpack(LabelNo(U32.unpack(number)[0]), head) if head is not None else None
        row = view.get("entries", number + U64.pack(cursor.log.size)) if cursor is not None else None
        if cursor is None or row is None:
            raise DamageError("index/data.mdb", None, f"has no newest entry of label {label.hex()}", REPAIR)
        yield cursor, Location.unpack(row)


def _check_entry(layout: Layout, identity: HubIdentity, cursor: LabelCursor, place: Location) -> None:
    path = layout.chunk(cursor.label, place.chunk_start, None)
    try:
        with ChunkFile(path, compressed=False) as chunk:
            (entry,) = chunk.entries(place.offset, place.size)
    except FileNotFoundError:
        raise DamageError(path.name, None, "is missing", "restore it from a clone") from None
    try:
        hub_identity.verify_receipt(identity, entry.receipt)
    except SignatureError as exc:
        raise MismatchError(f"{path.name}: {exc}: another hub's files were mixed in") from None
    if entry.label != cursor.label or entry.receipt.mmr_root != cursor.log.root:
        what = f"does not hold the entry {cursor.log.size} that the index knows"
        raise DamageError(path.name, place.offset, what)
