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

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from veen_core.errors import InvariantError, VeenError
from veen_core.hub_log import HeadTable, LabelHead, check_uncovered
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.tlog.tiles import TILE_WIDTH
from veen_core.tlog.tree import Tree, leaf_hash
from veen_storage.commit.hub_log import LENGTH_BYTES
from veen_storage.disk.layout import HUB_LOG_CHECKPOINT, HUB_LOG_ENTRIES
from veen_storage.errors import unreadable
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.entries import EntryFacts
from veen_storage.fsck.files.derived_files import check_tail
from veen_storage.fsck.hub_log_notes import HubLogNotes
from veen_storage.index.lmdb_index import Transaction
from veen_storage.index.records import HubLogCursor, HubPlace, LabelNo
from veen_storage.index.tables import (
    HUB_BUNDLES,
    HUB_CHECKPOINT,
    HUB_HEADS,
    HUB_LOG,
    HUB_MOVED,
    HUB_NODES,
    META,
)
from veen_storage.read.hub_log_view import read_entry

ROWS_AT_ONCE: Final = 4_096
"""Entries whose rows are written, or read, in one transaction."""
READ_BYTES: Final = 1_048_576


@dataclass(slots=True)
class _Rows:
    """Rows of the derived index that wait to be written."""

    heads: list[tuple[tuple[LabelNo, StreamSeq], HubPlace]] = field(default_factory=list)
    nodes: list[tuple[tuple[int, int], bytes]] = field(default_factory=list)
    bundles: list[tuple[int, int]] = field(default_factory=list)

    def write(self, txn: Transaction) -> None:
        HUB_HEADS.put_many(txn, self.heads)
        HUB_NODES.put_many(txn, self.nodes)
        HUB_BUNDLES.put_many(txn, self.bundles)


class HubLogFold:
    """Checks the hub log, and adds its rows to the derived index."""

    def __init__(self, context: FoldContext) -> None:
        self._context = context
        self._notes = HubLogNotes(context)
        self._table = HeadTable()
        self._tree = Tree()
        self._offset = 0
        """The byte at which the last entry ends that was read."""
        self._rows = _Rows()

    # --- step 1

    def read(self) -> None:
        """Read all entries that the index has applied."""
        context, notes = self._context, self._notes
        path = context.layout.hub_log_entries
        try:
            with path.open("rb", buffering=READ_BYTES) as file:
                while notes.size is None or self._tree.size < notes.size:
                    entry = read_entry(file)
                    if entry is None or not self._add(entry):
                        break
                rest = b"" if context.hub_log_damaged else file.read()
        except FileNotFoundError:
            rest = b""
        except OSError as exc:
            context.fault(HUB_LOG_ENTRIES, unreadable(HUB_LOG_ENTRIES, exc).what, offset=self._offset)
            context.hub_log_damaged = True
            rest = b""
        self._flush()
        context.report.counters.hub_log_entries += self._tree.size
        if not context.hub_log_damaged:
            self._check_end(rest)
        if not context.hub_log_damaged:
            notes.check_published(self._tree.size)

    def _add(self, data: bytes) -> bool:
        """Add the next entry; return False, with a fault, if the hub log cannot be followed any further."""
        index, offset = self._tree.size, self._offset
        try:
            head = LabelHead.decode(data)
            self._table.add(head)
        except VeenError as exc:
            self._fault(f"entry {index}: {exc}")
            return False
        rows, number = self._rows, self._context.derived.number(head.label)
        nodes = self._tree.append(leaf_hash(data))
        rows.heads.append(((number, head.upto_seq), HubPlace(index, offset)))
        rows.nodes += (((index, node.height), node.hash) for node in nodes[1:])
        if index % TILE_WIDTH == 0:
            rows.bundles.append((index // TILE_WIDTH, offset))
        self._offset += LENGTH_BYTES + len(data)
        self._notes.check_root(self._tree.size, self._tree.root)
        if len(rows.heads) >= ROWS_AT_ONCE:
            self._flush()
        return True

    def _flush(self) -> None:
        self._context.derived.index.write(self._rows.write)
        self._rows = _Rows()

    def _check_end(self, rest: bytes) -> None:
        """Check size and root, and that ``rest`` is what an interrupted round may have left."""
        notes, size = self._notes, self._tree.size
        if notes.size is not None and size < notes.size:
            self._fault(f"ends before entry {size} is complete, but the hub log has {notes.size} entries")
            return
        if notes.applied is not None and notes.applied.signed.head.root != self._tree.root:
            what = f"its root is not that of hublog/entries at size {size}"
            self._context.fault(HUB_LOG_CHECKPOINT, what)
            self._context.hub_log_damaged = True
            return
        waiting = b"".join(item.extension.entries for item in notes.pending)
        if (at := check_tail(rest, waiting, self._offset)) is not None:
            self._fault("contains bytes that are in neither index nor journal", offset=at)
        elif rest:
            self._context.report.notes.append(
                f"{HUB_LOG_ENTRIES} ends in part of an interrupted write, from byte {self._offset} on: "
                "the next start writes it again from the journal"
            )

    def _fault(self, what: str, *, offset: int | None = None) -> None:
        self._context.fault(HUB_LOG_ENTRIES, what, offset=self._offset if offset is None else offset)
        self._context.hub_log_damaged = True

    # --- step 2

    def heads_of(self, label: Label) -> FoldedHeads:
        """Return the heads of a label, to be compared with its entries."""
        newest = self._table.newest.get(label)
        places = self._places(label) if newest is not None else iter(())
        covered = newest.upto_seq if newest is not None else 0
        return FoldedHeads(self._context, label, places, covered, self._table.hub_ts)

    def _places(self, label: Label) -> Iterator[tuple[StreamSeq, int]]:
        """Yield ``upto_seq`` and offset of each head of a label in order, a page of rows at a time."""
        index, number, after = self._context.derived.index, self._context.derived.number(label), 0
        while True:
            with index.reading() as view:
                rows = HUB_HEADS.scan_label(view, number, after)
                page = [(upto, place.offset) for (_number, upto), place in islice(rows, ROWS_AT_ONCE)]
            if not page:
                return
            yield from page
            after = page[-1][0] + 1

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
            context.fault("log", what, label=label, seq=head.upto_seq)
            context.damaged.add(label)
            context.bindings.complete = False

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
        ledger.hub_log = HubLogCursor(self._tree, self._offset)

        def write(txn: Transaction) -> None:
            for label in covered:
                txn.delete(HUB_MOVED.name, label)
            if self._tree.size:
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
        places: Iterator[tuple[StreamSeq, int]],
        covered: int,
        newest_ts: UnixTime,
    ) -> None:
        """``covered``: the label's last entry in the hub log. ``newest_ts``: the newest time of any label."""
        self._context = context
        self._label = label
        self._newest_ts = newest_ts
        first_uncovered: tuple[StreamSeq, int | None] = (StreamSeq(covered + 1), None)
        self._places = chain[tuple[StreamSeq, int | None]](places, [first_uncovered])
        self.next_seq, self._offset = next(self._places)
        """The next entry to check: one that a head names, then the first that no head covers; then 0."""

    def check(self, fact: EntryFacts) -> None:
        """Check the entry ``next_seq``."""
        offset = self._offset
        self.next_seq, self._offset = next(self._places, (StreamSeq(0), None))
        if not fact.valid:
            return  # reported already
        place = {"label": self._label, "seq": fact.seq, "offset": offset}
        if offset is None:
            try:
                check_uncovered(self._label, fact.seq, fact.hub_ts, self._newest_ts)
            except InvariantError as exc:
                self._context.fault(HUB_LOG_ENTRIES, str(exc), **place)
            return
        head = self._read(offset)
        if (head.mmr_root, head.hub_ts) != (fact.root, fact.hub_ts):
            self._context.fault(HUB_LOG_ENTRIES, "root or time is not that of the label's RECEIPT", **place)

    def _read(self, offset: int) -> LabelHead:
        with self._context.layout.hub_log_entries.open("rb") as file:
            file.seek(offset)
            return LabelHead.decode(read_entry(file) or b"")  # decoded before, in ``HubLogFold.read``
