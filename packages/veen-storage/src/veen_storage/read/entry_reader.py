"""Reading heads, labels and entries of an open data directory (core §3.4, §10.2).

Every durable entry is in the tail or in the index (``commit.tail``). So a reader asks the tail first, and
opens its index transaction afterwards, never before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from veen_core.chunk import PrunedEntry
from veen_core.entry import Content, Entry
from veen_core.ids import Label, MmrRoot, StreamSeq, UnixTime
from veen_core.receipt import Receipt
from veen_storage.chunks.chunk_files import open_chunk
from veen_storage.chunks.chunk_origin_check import OriginCheck
from veen_storage.chunks.pruned_chunk import read_pruned
from veen_storage.commit.tail import Tail, receipt_of
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import Registry
from veen_storage.errors import AbsentError, DamageError, PrunedError
from veen_storage.index.lmdb_index import Index, View
from veen_storage.index.records import ChunkRecord, LabelCursor, LabelNo, Location
from veen_storage.index.tables import CHUNKS, ENTRIES, LABELS, read_cursor

MAX_ATTEMPTS = 4
"""Attempts to open a chunk, whose name may change twice meanwhile: when it is sealed, and when pruned."""
MAX_PAGE_BYTES = 8 * 1_048_576
"""A page of entries ends after this many bytes, but holds at least one entry."""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest durable entry of a label."""

    label: Label
    stream_seq: StreamSeq
    mmr_root: MmrRoot
    hub_ts: UnixTime


class EntryReader:
    """Reads heads, labels and entries of one open data directory."""

    def __init__(
        self, layout: Layout, registry: Registry, index: Index, tail: Tail, origin: OriginCheck
    ) -> None:
        self._layout = layout
        self._zstd = registry.zstd_level is not None
        self._index = index
        self._tail = tail
        self._origin = origin
        self.give_way: Callable[[], None] = lambda: None
        """Called in the middle of reading many entries, so that more urgent threads are not delayed."""

    # --- heads and labels

    def head(self, label: Label) -> Head | None:
        """Return the head of a label; None if the label has no entries."""
        last = self._tail.last(label)
        if last is not None:
            receipt = receipt_of(last)
            return Head(label, receipt.stream_seq, receipt.mmr_root, receipt.hub_ts)
        cursor = self._cursor(label)
        return (
            Head(label, cursor.log.stream_seq, cursor.log.root, cursor.hub_ts) if cursor is not None else None
        )

    def labels(self, after: Label | None = None, limit: int = 1_000) -> list[Label]:
        """Return one page of labels in byte order."""
        waiting = [label for label in self._tail.labels() if after is None or label > after]
        found = set(waiting)
        start = b"" if after is None else after + b"\x00"
        with self._index.reading() as view:
            for label, _number in LABELS.scan(view, start):
                found.add(label)
                if len(found) >= limit + len(waiting):
                    break
        return sorted(found)[:limit]

    def all_labels(self) -> Iterator[Label]:
        """Yield every label in byte order."""
        page = self.labels()
        while page:
            yield from page
            page = self.labels(after=page[-1])

    def _cursor(self, label: Label) -> LabelCursor | None:
        with self._index.reading() as view:
            return read_cursor(view, label)

    def _require_head(self, label: Label) -> Head:
        if (head := self.head(label)) is None:
            raise AbsentError(f"label {label.hex()} has no entries")
        return head

    # --- entries

    def entries(
        self, label: Label, start: StreamSeq, limit: int, *, end: StreamSeq | None = None
    ) -> list[Entry | PrunedEntry]:
        """Return entries from ``start`` on: at most ``limit``, up to ``end`` and ``MAX_PAGE_BYTES``."""
        stored = chain.from_iterable(self._runs(label, start, limit, end))
        return [
            one if isinstance(one, PrunedEntry) else Entry(label, StreamSeq(stream_seq), *one)
            for stream_seq, one in enumerate(stored, max(start, 1))
        ]

    def contents(
        self, label: Label, start: StreamSeq, limit: int, *, end: StreamSeq | None = None
    ) -> list[Content]:
        """Return entries as they are stored: as ``entries``, but up to the first one that was pruned.

        Each is checked against its entry hash, and none is decoded. ``PrunedError`` if ``start`` was pruned.
        """
        found: list[Content] = []
        for one in chain.from_iterable(self._runs(label, start, limit, end)):
            if isinstance(one, PrunedEntry):
                if not found:
                    raise pruned(label, one.receipt.stream_seq)
                break
            found.append(one)
        return found

    def _runs(
        self, label: Label, start: StreamSeq, limit: int, end: StreamSeq | None
    ) -> Iterator[Sequence[Content | PrunedEntry]]:
        """Yield the entries of a page, those that are together in the tail or in one chunk at a time."""
        head = self.head(label)
        if head is None or start > head.stream_seq or limit < 1:
            return
        at = max(start, 1)
        last = StreamSeq(min(head.stream_seq, start + limit - 1, end if end is not None else head.stream_seq))
        size = 0
        while at <= last and size < MAX_PAGE_BYTES:
            run, run_size = self._run(label, StreamSeq(at), last, MAX_PAGE_BYTES - size)
            yield run
            size, at = size + run_size, at + len(run)

    def _run(
        self, label: Label, start: StreamSeq, end: StreamSeq, room: int
    ) -> tuple[Sequence[Content | PrunedEntry], int]:
        """Return entries from ``start`` on that are together in the tail or in one chunk, and their size."""
        tail = self._tail.entries(label, start, end)
        if tail and tail[0].entry.stream_seq == start:
            return _within([placed.entry for placed in tail], [len(placed.frame) for placed in tail], room)
        for _attempt in range(MAX_ATTEMPTS):
            try:
                return self._stored_run(label, start, end, room)
            except FileNotFoundError:
                continue  # the applier has renamed the chunk: look its new name up
        name = self._layout.chunk(label, start, None).name
        raise DamageError(name, None, f"cannot be found, nor any other chunk with entry {start}")

    def _stored_run(
        self, label: Label, start: StreamSeq, end: StreamSeq, room: int
    ) -> tuple[Sequence[Content | PrunedEntry], int]:
        with self._index.reading() as view:
            number = LABELS.get(view, label)
            located = self._locate(view, number, start, end, room) if number is not None else None
        if located is None:
            raise DamageError(
                "index/data.mdb", None, f"has no location for entry {start} of label {label.hex()}"
            )
        first, last, chunk = located
        if chunk is not None and chunk.pruned:
            path = self._layout.pruned(label, first.chunk_start, chunk.end)
            until = StreamSeq(min(end, chunk.end))
            kept, size = read_pruned(path, (first.chunk_start, chunk.end), start, until, room)
            if any(entry.receipt.label != label for entry in kept):
                raise DamageError(path.name, None, "contains entries of another label")
            self._origin.check_read(path.name, kept[-1].receipt)
            return kept, size
        length = last.offset + last.size - first.offset
        end_seq = chunk.end if chunk is not None else None
        with open_chunk(self._layout, label, first.chunk_start, end_seq, zstd=self._zstd) as file:
            found = file.contents(first.offset, length, label, start, self.give_way)
            if not self._origin.is_checked(file.name):
                self._origin.check_read(file.name, Receipt.decode(found[-1][1]))
            return found, length

    def _locate(
        self, view: View, number: LabelNo, start: StreamSeq, end: StreamSeq, room: int
    ) -> tuple[Location, Location, ChunkRecord | None] | None:
        """Return the first and last location of a run inside one chunk, and the chunk's record if sealed."""
        first = ENTRIES.get(view, (number, start))
        last = ENTRIES.get(view, (number, end)) if first is not None else None
        if first is not None and last is not None and _is_one_run(first, last, room):
            return first, last, CHUNKS.get(view, (number, first.chunk_start))
        first = last = None
        for (_number, seq), here in ENTRIES.scan_label(view, number, start):
            if first is None:
                first = here
            if not (here is first or _is_one_run(first, here, room)) or seq > end:
                break
            last = here
        if first is None or last is None:
            return None
        return first, last, CHUNKS.get(view, (number, first.chunk_start))

    def readable_from(self, label: Label, start: StreamSeq) -> StreamSeq | None:
        """Return the first entry at or after ``start`` that is not pruned; None if there is none."""
        head, at = self._require_head(label), max(start, 1)
        with self._index.reading() as view:
            number = LABELS.get(view, label)
            location = ENTRIES.get(view, (number, StreamSeq(at))) if number is not None else None
            if number is not None and location is not None:
                for _key, chunk in CHUNKS.scan_label(view, number, location.chunk_start):
                    if not chunk.pruned:
                        break
                    at = chunk.end + 1
        return StreamSeq(at) if at <= head.stream_seq else None

    def entry(self, label: Label, stream_seq: StreamSeq) -> Entry:
        """Return one entry with its payload; ``PrunedError`` if only its receipt is left."""
        found = self._one(label, stream_seq)
        if isinstance(found, PrunedEntry):
            raise pruned(label, stream_seq)
        return found

    def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt:
        """Return the receipt of an entry, which is kept for ever, also after pruning."""
        return self._one(label, stream_seq).receipt

    def _one(self, label: Label, stream_seq: StreamSeq) -> Entry | PrunedEntry:
        found = self.entries(label, stream_seq, 1) if stream_seq >= 1 else []
        if not found:
            raise AbsentError(f"label {label.hex()} has no entry {stream_seq}")
        return found[0]


def _is_one_run(first: Location, last: Location, room: int) -> bool:
    """Return whether two entries are in one chunk, with at most ``room`` bytes from the first to the last."""
    return last.chunk_start == first.chunk_start and last.offset + last.size - first.offset <= room


def pruned(label: Label, stream_seq: StreamSeq) -> PrunedError:
    """Make the error for an entry of which retention has left the receipt only."""
    return PrunedError(f"entry {stream_seq} of label {label.hex()}: its payload was pruned by retention")


def _within(entries: list[Entry], sizes: list[int], room: int) -> tuple[list[Content], int]:
    """Return as many entries as fit into ``room`` bytes, but at least one, and their size."""
    taken, size = 0, 0
    while taken < len(entries) and (taken == 0 or size + sizes[taken] <= room):
        size += sizes[taken]
        taken += 1
    return [entry.content for entry in entries[:taken]], size
