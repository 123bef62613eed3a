"""The hub log against the labels: entries, tree, hub checkpoint, published checkpoint (RESOLUTIONS P1).

In this order, around the fold of the labels:

1. ``read``: every entry continues its label, and the tree over all entries has the root that the hub signed;
2. ``heads_of``: while a label is folded, each of its heads has root and time of the RECEIPT at ``upto_seq``,
   and the first entry after the newest head is not one that the hub must have covered;
3. ``finish``: every label of the hub log reaches its newest head, and every label that is not at its newest
   head counts as moved.

The hub log is read as far as the index has applied it. What follows are entries of an interrupted round,
which the journal holds and ``pending`` replays. Only the rows of the index can be rebuilt from the rest:
entries and hub checkpoints are what the hub has shown to others.
"""

from __future__ import annotations

from typing import Final

from veen_core.errors import InvariantError, VeenError
from veen_core.hub_log import HeadTable, LabelHead, check_uncovered
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.tlog.tree import Tree
from veen_storage.commit.changes import HubEntry
from veen_storage.commit.hub_log import index_entries, lay_out
from veen_storage.disk.layout import HUB_LOG_CHECKPOINT, HUB_LOG_ENTRIES
from veen_storage.errors import unreadable
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.entries import EntryFacts
from veen_storage.fsck.files.surplus_bytes import foreign_byte
from veen_storage.fsck.hub_log_notes import HubLogNotes
from veen_storage.index.lmdb_index import Transaction
from veen_storage.index.records import HubLogCursor
from veen_storage.index.tables import HUB_CHECKPOINT, HUB_HEADS, HUB_LOG, HUB_MOVED, META
from veen_storage.read.hub_log_view import read_entry

ROWS_AT_ONCE: Final = 4_096
"""Entries whose rows are written in one transaction."""
READ_BYTES: Final = 1_048_576


class HubLogFold:
    """Checks the hub log, and adds its rows to the derived index."""

    def __init__(self, context: FoldContext) -> None:
        self._context = context
        self._notes = HubLogNotes(context)
        self._table = HeadTable()
        self._cursor = HubLogCursor(Tree(), 0)
        """The tree of the entries that were read, and the byte at which the last of them ends."""
        self._entries: list[HubEntry] = []
        """Entries whose rows wait to be written."""

    # --- step 1

    def read(self) -> None:
        """Read all entries that the index has applied."""
        context, notes = self._context, self._notes
        path = context.layout.hub_log_entries
        try:
            with path.open("rb", buffering=READ_BYTES) as file:
                while notes.size is None or self._cursor.size < notes.size:
                    entry = read_entry(file)
                    if entry is None or not self._add(entry):
                        break
                rest = b"" if context.hub_log_damaged else file.read()
        except FileNotFoundError:
            rest = b""
        except OSError as exc:
            self._fault(unreadable(HUB_LOG_ENTRIES, exc).what)
            rest = b""
        self._flush()
        context.report.counters.hub_log_entries += self._cursor.size
        if not context.hub_log_damaged:
            self._check_end(rest)
        if not context.hub_log_damaged:
            notes.check_published(self._cursor.size)

    def _add(self, data: bytes) -> bool:
        """Add the next entry; return False, with a fault, if the hub log cannot be followed any further."""
        try:
            head = LabelHead.decode(data)
            self._table.add(head)
        except VeenError as exc:
            self._fault(f"entry {self._cursor.size}: {exc}")
            return False
        number = self._context.derived.number(head.label)
        self._cursor, entries = lay_out(self._cursor, [(number, head)])
        self._entries += entries
        self._notes.check_root(self._cursor.size, self._cursor.tree.root)
        if len(self._entries) >= ROWS_AT_ONCE:
            self._flush()
        return True

    def _flush(self) -> None:
        self._context.derived.index.write(lambda txn: index_entries(txn, self._entries))
        self._entries = []

    def _check_end(self, rest: bytes) -> None:
        """Check size and root, and that ``rest`` is what an interrupted round may have left."""
        notes, size, end = self._notes, self._cursor.size, self._cursor.entries_bytes
        if notes.size is not None and size < notes.size:
            self._fault(f"ends before entry {size} is complete, but the hub log has {notes.size} entries")
            return
        if notes.applied is not None and notes.applied.signed.head.root != self._cursor.tree.root:
            what = f"its root is not that of hublog/entries at size {size}"
            self._context.report.fault(HUB_LOG_CHECKPOINT, what)
            self._context.hub_log_damaged = True
            return
        waiting = b"".join(item.extension.entries for item in notes.pending)
        if (at := foreign_byte(rest, waiting, end)) is not None:
            self._fault("contains bytes that are in neither index nor journal", offset=at)
        elif rest:
            self._context.report.notes.append(
                f"{HUB_LOG_ENTRIES} ends in part of an interrupted write, from byte {end} on: "
                "the next start writes it again from the journal"
            )

    def _fault(self, what: str, *, offset: int | None = None) -> None:
        at = self._cursor.entries_bytes if offset is None else offset
        self._context.report.fault(HUB_LOG_ENTRIES, what, offset=at)
        self._context.hub_log_damaged = True

    # --- step 2

    def heads_of(self, label: Label) -> FoldedHeads:
        """Return the heads of a label, to be compared with its entries."""
        newest, derived = self._table.newest.get(label), self._context.derived
        places: list[tuple[StreamSeq, int | None]] = []
        if newest is not None:
            with derived.index.reading() as view:
                rows = HUB_HEADS.scan_label(view, derived.number(label))
                places += ((upto, place.offset) for (_number, upto), place in rows)
        places.append((StreamSeq(newest.upto_seq + 1 if newest is not None else 1), None))
        return FoldedHeads(self._context, label, places, self._table.hub_ts)

    # --- step 3

    def finish(self) -> None:
        """Check that no label of the hub log is missing or shorter, after all labels were folded."""
        context = self._context
        for label, head in self._table.newest.items():
            size = context.sizes.get(label, 0)
            if size >= head.upto_seq or label in context.damaged:
                continue
            found = f"ends at entry {size}" if size else "has no entries in log/"
            what = f"the label {found}, but the hub log has its head at entry {head.upto_seq}"
            context.damage(label, "log", what, seq=head.upto_seq)

    def derive(self) -> None:
        """Write the rows that need all labels, and give the ledger the state that pending items continue."""
        context, notes = self._context, self._notes
        ledger = context.derived.ledger
        covered = [
            label
            for label, head in self._table.newest.items()
            if context.sizes.get(label, 0) == head.upto_seq
        ]
        ledger.moved.difference_update(covered)
        ledger.hub_log = self._cursor

        def write(txn: Transaction) -> None:
            for label in covered:
                txn.delete(HUB_MOVED.name, label)
            if self._cursor.size:
                META.put(txn, HUB_LOG, ledger.hub_log.pack())
            if notes.applied is not None:
                META.put(txn, HUB_CHECKPOINT, notes.applied.content)

        context.derived.index.write(write)


class FoldedHeads:
    """The heads of one label in the hub log, compared with its entries in order."""

    def __init__(
        self,
        context: FoldContext,
        label: Label,
        places: list[tuple[StreamSeq, int | None]],
        newest_ts: UnixTime,
    ) -> None:
        """``places``: entry and offset of each head; then the first entry that no head covers, and None.

        ``newest_ts``: the newest time of any label in the hub log.
        """
        self._context = context
        self._label = label
        self._newest_ts = newest_ts
        self._places = iter(places)
        self.next_seq, self._offset = next(self._places)
        """The next entry to check; 0 after the last."""

    def check(self, fact: EntryFacts) -> None:
        """Check the entry ``next_seq``."""
        offset = self._offset
        self.next_seq, self._offset = next(self._places, (StreamSeq(0), None))
        if not fact.valid:
            return  # reported already
        try:
            if offset is None:
                check_uncovered(self._label, fact.seq, fact.hub_ts, self._newest_ts)
                return
            head = self._read(offset)
        except InvariantError as exc:
            what = str(exc)
        else:
            if (head.mmr_root, head.hub_ts) == (fact.root, fact.hub_ts):
                return
            what = "root or time is not that of the label's RECEIPT"
        self._context.report.fault(HUB_LOG_ENTRIES, what, offset=offset, label=self._label, seq=fact.seq)

    def _read(self, offset: int) -> LabelHead:
        with self._context.layout.hub_log_entries.open("rb") as file:
            file.seek(offset)
            return LabelHead.decode(read_entry(file) or b"")  # decoded before, in ``HubLogFold.read``
