"""The reader: everything a hub answers from a data directory (§3.4, §10.1, §10.2).

Every answer finds its place in O(1) or O(log n) and sees durable entries only. Any number of threads
may read while the writer writes. Looking first at the tail and then at the index finds every entry
(``tail``); an index view must therefore be opened after the tail was asked, never before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from veen_core.checkpoint import Checkpoint
from veen_core.chunk import PrunedEntry
from veen_core.consistency import MmrConsistency, prove_consistency
from veen_core.entry import Entry
from veen_core.ids import Label, MmrRoot, StreamSeq, UnixTime
from veen_core.mmr import NodeLookup, mmr_at
from veen_core.proof import MmrProof, prove_inclusion
from veen_core.receipt import Receipt
from veen_storage.chunk_files import open_chunk
from veen_storage.errors import AbsentError, DamageError, PrunedError
from veen_storage.index import Index, View
from veen_storage.layout import Layout
from veen_storage.origin import Origin
from veen_storage.proof_cache import Asked, ProofCache
from veen_storage.pruned_chunk import read_pruned
from veen_storage.records import (
    EPOCH_LABEL_SEQ,
    LABEL_SEQ,
    NODE,
    TIME_LABEL,
    U32,
    U64,
    ChunkRecord,
    LabelCursor,
    LabelNo,
    Location,
)
from veen_storage.registry import Registry
from veen_storage.tail import Tail, receipt_of

ATTEMPTS = 4
"""A chunk can change its name twice while it is looked for: when it is sealed, and when it is pruned."""
MAX_PAGE_BYTES = 8 * 1_048_576
"""A page stops after this many bytes, but never before its first entry."""
FOREVER = UnixTime(2**64 - 1)


@dataclass(frozen=True, slots=True)
class Head:
    """The newest durable entry of a label."""

    label: Label
    stream_seq: StreamSeq
    mmr_root: MmrRoot
    hub_ts: UnixTime


@dataclass(frozen=True, slots=True)
class Moment:
    """The first entry of a label at one second of hub_ts."""

    hub_ts: UnixTime
    label: Label
    stream_seq: StreamSeq


class Reader:
    """Reads one open data directory."""

    def __init__(self, layout: Layout, registry: Registry, index: Index, tail: Tail, origin: Origin) -> None:
        self._layout = layout
        self._zstd = registry.zstd_level is not None
        self._index = index
        self._tail = tail
        self._origin = origin
        self.proofs = ProofCache()

    # --- heads and labels

    def head(self, label: Label) -> Head | None:
        """None for a label that holds nothing."""
        last = self._tail.last(label)
        if last is not None:
            receipt = receipt_of(last)
            return Head(label, receipt.stream_seq, receipt.mmr_root, receipt.hub_ts)
        cursor = self._cursor(label)
        return (
            Head(label, cursor.log.stream_seq, cursor.log.root, cursor.hub_ts) if cursor is not None else None
        )

    def labels(self, after: Label | None = None, limit: int = 1_000) -> list[Label]:
        """Labels in byte order, a page at a time."""
        waiting = [label for label in self._tail.labels() if after is None or label > after]
        found = set(waiting)
        start = b"" if after is None else after + b"\x00"
        with self._index.reading() as view:
            for label, _number in view.scan("labels", start):
                found.add(Label(label))
                if len(found) >= limit + len(waiting):
                    break
        return sorted(found)[:limit]

    def all_labels(self) -> Iterator[Label]:
        """Every label, in byte order; for work that is about all of them."""
        page = self.labels()
        while page:
            yield from page
            page = self.labels(after=page[-1])

    def grown(self) -> list[Label]:
        """Labels with entries after their last checkpoint; asks about every label."""
        return [label for label in self.all_labels() if self._has_grown(label)]

    def _has_grown(self, label: Label) -> bool:
        last, made, cursor = self._tail.last(label), self._tail.checkpoints(label), self._cursor(label)
        size, covered = (cursor.log.size, int(cursor.checkpointed)) if cursor is not None else (0, 0)
        size = last.entry.stream_seq if last is not None else size
        return max([covered, *(c.upto_seq for c in made)]) < size

    def unanchored(self) -> list[Label]:
        """Labels whose newest checkpoint has no anchor; asks about every label."""
        found = (self.latest_checkpoint(label) for label in self.all_labels())
        return [
            c.label_curr for c in found if c is not None and self.anchor(c.label_curr, c.upto_seq) is None
        ]

    def _cursor(self, label: Label) -> LabelCursor | None:
        with self._index.reading() as view:
            number = view.get("labels", label)
            head = view.get("heads", number) if number is not None else None
        return LabelCursor.unpack(LabelNo(U32.unpack(number)[0]), head) if number and head else None

    def _require_head(self, label: Label) -> Head:
        if (head := self.head(label)) is None:
            raise AbsentError(f"label {label.hex()} holds nothing")
        return head

    # --- entries

    def entries(
        self, label: Label, start: StreamSeq, limit: int, *, end: StreamSeq | None = None
    ) -> list[Entry | PrunedEntry]:
        """Entries from ``start`` on, at most ``limit`` and to ``end``; fewer at the end or at a full page."""
        head = self.head(label)
        if head is None or start > head.stream_seq or limit < 1:
            return []
        last = StreamSeq(min(head.stream_seq, start + limit - 1, end if end is not None else head.stream_seq))
        found: list[Entry | PrunedEntry] = []
        size, at = 0, max(start, 1)
        while at <= last and size < MAX_PAGE_BYTES:
            run, run_size = self._run(label, StreamSeq(at), last, MAX_PAGE_BYTES - size)
            found.extend(run)
            size, at = size + run_size, at + len(run)
        return found

    def _run(
        self, label: Label, start: StreamSeq, end: StreamSeq, room: int
    ) -> tuple[list[Entry | PrunedEntry], int]:
        """Entries from ``start`` on that lie together: in the tail, or in one chunk."""
        tail = self._tail.entries(label, start, end)
        if tail and tail[0].entry.stream_seq == start:
            return _within([placed.entry for placed in tail], [len(placed.frame) for placed in tail], room)
        for _attempt in range(ATTEMPTS):
            try:
                return self._stored_run(label, start, end, room)
            except FileNotFoundError:
                continue  # sealed or pruned since the index was asked: it knows by now
        name = self._layout.chunk(label, start, None).name
        raise DamageError(name, None, f"or the chunk that holds entry {start} is missing")

    def _stored_run(
        self, label: Label, start: StreamSeq, end: StreamSeq, room: int
    ) -> tuple[list[Entry | PrunedEntry], int]:
        with self._index.reading() as view:
            number = view.get("labels", label)
            located = self._locate(view, number, start, end, room) if number is not None else None
        if located is None:
            raise DamageError(
                "index/data.mdb", None, f"has no place for entry {start} of label {label.hex()}"
            )
        first, last, chunk = located
        if chunk is not None and chunk.pruned:
            path = self._layout.pruned(label, first.chunk_start, chunk.end)
            until = StreamSeq(min(end, chunk.end))
            kept, size = read_pruned(path, (first.chunk_start, chunk.end), start, until, room)
            if any(entry.receipt.label != label for entry in kept):
                raise DamageError(path.name, None, "holds entries of another label")
            self._origin.judge(path.name, kept)
            return list(kept), size
        length = last.offset + last.size - first.offset
        end_seq = chunk.end if chunk is not None else None
        with open_chunk(self._layout, label, first.chunk_start, end_seq, zstd=self._zstd) as file:
            found = file.entries(first.offset, length)
            if any((e.label, e.stream_seq) != (label, start + at) for at, e in enumerate(found)):
                raise DamageError(
                    file.name, first.offset, f"holds other entries than {start} and on of its label"
                )
            self._origin.judge(file.name, found)
            return list(found), length

    def _locate(
        self, view: View, number: bytes, start: StreamSeq, end: StreamSeq, room: int
    ) -> tuple[Location, Location, ChunkRecord | None] | None:
        """First and last place of a run inside one chunk, and that chunk's record if it has an end."""
        first = last = None
        for key, value in view.scan("entries", number + U64.pack(start), number):
            here = Location.unpack(value)
            if first is None:
                first = here
            fits = here.offset + here.size - first.offset <= room or here is first
            if here.chunk_start != first.chunk_start or not fits or LABEL_SEQ.unpack(key)[1] > end:
                break
            last = here
        if first is None or last is None:
            return None
        record = view.get("chunks", number + U64.pack(first.chunk_start))
        return first, last, ChunkRecord.unpack(record) if record is not None else None

    def readable_from(self, label: Label, start: StreamSeq) -> StreamSeq | None:
        """The first entry at or after ``start`` whose payload is there; None if there is none."""
        head, at = self._require_head(label), max(start, 1)
        with self._index.reading() as view:
            number = view.get("labels", label)
            place = view.get("entries", number + U64.pack(at)) if number is not None else None
            if number is not None and place is not None:
                first = Location.unpack(place).chunk_start
                for _key, value in view.scan("chunks", number + U64.pack(first), number):
                    chunk = ChunkRecord.unpack(value)
                    if not chunk.pruned:
                        break
                    at = chunk.end + 1
        return StreamSeq(at) if at <= head.stream_seq else None

    def entry(self, label: Label, stream_seq: StreamSeq) -> Entry:
        """One whole entry; ``PrunedError`` if only its receipt is left."""
        found = self._one(label, stream_seq)
        if isinstance(found, PrunedEntry):
            raise PrunedError(
                f"entry {stream_seq} of label {label.hex()}: its payload was pruned by retention"
            )
        return found

    def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt:
        """Kept for ever, also where the payload was pruned."""
        return self._one(label, stream_seq).receipt

    def _one(self, label: Label, stream_seq: StreamSeq) -> Entry | PrunedEntry:
        found = self.entries(label, stream_seq, 1) if stream_seq >= 1 else []
        if not found:
            raise AbsentError(f"label {label.hex()} has no entry {stream_seq}")
        return found[0]

    # --- proofs

    def proof(self, label: Label, stream_seq: StreamSeq, tree_size: StreamSeq | None = None) -> MmrProof:
        """Of any leaf against any tree that holds it; by default the one it completed (B10)."""
        asked = Asked(label, stream_seq, stream_seq if tree_size is None else tree_size)
        self._check_size(label, asked.tree_size)
        if (proof := self.proofs.get(asked)) is None:
            with self._nodes(label) as lookup:
                proof = prove_inclusion(lookup, stream_seq, asked.tree_size)
            self.proofs.put(asked, proof)
        return proof

    def consistency(self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency:
        self._check_size(label, to_seq)
        with self._nodes(label) as lookup:
            return prove_consistency(lookup, from_seq, to_seq)

    def root(self, label: Label, tree_size: StreamSeq) -> MmrRoot:
        """The root as it was at any size."""
        self._check_size(label, tree_size)
        with self._nodes(label) as lookup:
            return mmr_at(tree_size, lookup).root

    def _check_size(self, label: Label, tree_size: int) -> None:
        head = self._require_head(label)
        if tree_size > head.stream_seq:
            raise AbsentError(f"label {label.hex()} has {head.stream_seq} entries, not {tree_size}")

    @contextmanager
    def _nodes(self, label: Label) -> Iterator[NodeLookup]:
        """Nodes under one view. What has left the tail since it was opened is in a newer one."""
        waiting = self._tail.number(label) is not None
        with self._index.reading() as view:
            row = view.get("labels", label)
            number = U32.unpack(row)[0] if row is not None else 0

            def lookup(height: int, index: int) -> bytes:
                if waiting and (node := self._tail.node(label, height, index)) is not None:
                    return node
                if height == 0:
                    return self.receipt(label, StreamSeq(index + 1)).leaf_hash
                node = view.get("nodes", NODE.pack(number, height, index)) if row is not None else None
                return node or self._newer_node(label, height, index)

            yield lookup

    def _newer_node(self, label: Label, height: int, index: int) -> bytes:
        with self._index.reading() as view:
            number = view.get("labels", label)
            node = view.get("nodes", number + NODE.pack(0, height, index)[U32.size :]) if number else None
        if node is None:
            where = f"node ({height}, {index}) of label {label.hex()}"
            raise DamageError("index/data.mdb", None, f"{where} is missing", "run `veen hub repair`")
        return node

    # --- time

    def window(self, label: Label, start: UnixTime, end: UnixTime) -> tuple[StreamSeq, StreamSeq] | None:
        """First and last entry of a label with ``start <= hub_ts <= end``."""
        head = self.head(label)
        first = self._first_at(label, start)
        if head is None or first is None:
            return None
        beyond = self._first_at(label, UnixTime(end + 1)) if end < FOREVER else None
        last = StreamSeq(beyond - 1) if beyond is not None else head.stream_seq
        return (first, last) if first <= last else None

    def _first_at(self, label: Label, start: UnixTime) -> StreamSeq | None:
        """The first entry at or after a time: applied ones come before those in the tail."""
        tail = [p.entry.stream_seq for p in self._tail.all_of(label) if p.hub_ts >= start]
        with self._index.reading() as view:
            number = view.get("labels", label)
            rows = view.scan("times", number + U64.pack(start), number) if number is not None else iter(())
            row = next(rows, None)
        if row is not None:
            return StreamSeq(U64.unpack(row[1])[0])
        return tail[0] if tail else None

    def moments(
        self, start: UnixTime, end: UnixTime, limit: int, after: Moment | None = None
    ) -> list[Moment]:
        """Across labels: every (hub_ts, label) in a window with its first entry, in order of time."""
        found = {(m.hub_ts, m.label): m for m in self._tail_moments(start, end)}
        for moment in self._index_moments(start, end, limit + len(found), after):
            found[moment.hub_ts, moment.label] = moment
        ordered = sorted(found.items())
        beyond = (after.hub_ts, after.label) if after is not None else None
        return [moment for key, moment in ordered if beyond is None or key > beyond][:limit]

    def _tail_moments(self, start: UnixTime, end: UnixTime) -> Iterator[Moment]:
        seen: set[tuple[UnixTime, Label]] = set()
        for placed in self._tail.snapshot():
            key = (placed.hub_ts, placed.entry.label)
            if start <= placed.hub_ts <= end and key not in seen:
                seen.add(key)
                yield Moment(placed.hub_ts, placed.entry.label, placed.entry.stream_seq)

    def _index_moments(
        self, start: UnixTime, end: UnixTime, limit: int, after: Moment | None
    ) -> Iterator[Moment]:
        """Whole seconds at a time, since within one the index is in order of label numbers."""
        begin = max(start, after.hub_ts) if after is not None else start
        with self._index.reading() as view:
            count, last_ts = 0, None
            for key, value in view.scan("all_times", U64.pack(begin)):
                hub_ts, number = TIME_LABEL.unpack(key)
                if hub_ts > end or (count >= limit and hub_ts != last_ts):
                    return
                head = view.get("heads", U32.pack(number)) or b""
                yield Moment(UnixTime(hub_ts), Label(head[:32]), StreamSeq(U64.unpack(value)[0]))
                last_ts = hub_ts
                count += after is None or hub_ts > after.hub_ts

    # --- checkpoints

    def checkpoint(self, label: Label, upto_seq: StreamSeq) -> Checkpoint:
        """The one at exactly ``upto_seq``."""
        found = self.checkpoint_before(label, upto_seq)
        if found is None or found.upto_seq != upto_seq:
            raise AbsentError(f"label {label.hex()} has no checkpoint at {upto_seq}")
        return found

    def checkpoint_before(self, label: Label, seq: StreamSeq) -> Checkpoint | None:
        """The nearest one at or before ``seq``."""
        tail = [c for c in self._tail.checkpoints(label) if c.upto_seq <= seq]
        if tail:
            return tail[-1]
        with self._index.reading() as view:
            number = view.get("labels", label)
            row = (
                view.last_before("checkpoints", number + U64.pack(seq), number)
                if number is not None
                else None
            )
        return Checkpoint.decode(row[1]) if row is not None else None

    def latest_checkpoint(self, label: Label) -> Checkpoint | None:
        return self.checkpoint_before(label, StreamSeq(2**64 - 1))

    def checkpoints_by_epoch(
        self, first: int, last: int, limit: int, after: tuple[Label, StreamSeq] | None = None
    ) -> list[Checkpoint]:
        """In order of epoch, then as labels appeared, then upto_seq (spec-1 §16 checkpoint_range).

        ``after`` is the last of the page before, in epoch ``first``: label and upto_seq.
        """
        start = (first, *self._place_after(after)) if after is not None else (first, 0, 0)
        found = {
            place: made
            for number, made in self._tail.all_checkpoints()
            if start <= (place := (int(made.epoch), int(number), int(made.upto_seq))) and made.epoch <= last
        }
        waiting = len(found)
        with self._index.reading() as view:
            for key, _nothing in view.scan("epochs", EPOCH_LABEL_SEQ.pack(*start)):
                epoch, number, upto = EPOCH_LABEL_SEQ.unpack(key)
                if epoch > last or len(found) >= limit + waiting:
                    break
                made = Checkpoint.decode(view.get("checkpoints", LABEL_SEQ.pack(number, upto)) or b"")
                found[epoch, number, upto] = made
        return [made for _place, made in sorted(found.items(), key=lambda row: row[0])][:limit]

    def _place_after(self, last: tuple[Label, StreamSeq]) -> tuple[int, int]:
        label, upto = last
        if (number := self._tail.number(label)) is None:
            with self._index.reading() as view:
                row = view.get("labels", label)
            if row is None:
                raise AbsentError(f"label {label.hex()} holds nothing")
            number = LabelNo(U32.unpack(row)[0])
        return number, upto + 1

    def anchor(self, label: Label, upto_seq: StreamSeq) -> bytes | None:
        """Where a checkpoint was anchored, if it was (ANCHOR0.2)."""
        if (waiting := self._tail.anchor(label, upto_seq)) is not None:
            return waiting
        with self._index.reading() as view:
            number = view.get("labels", label)
            return view.get("anchors", number + U64.pack(upto_seq)) if number is not None else None


def _within(entries: list[Entry], sizes: list[int], room: int) -> tuple[list[Entry | PrunedEntry], int]:
    """As many as there is room for, but at least one."""
    taken, size = 0, 0
    while taken < len(entries) and (taken == 0 or size + sizes[taken] <= room):
        size += sizes[taken]
        taken += 1
    return list(entries[:taken]), size
