"""The two forms of an export, written entry by entry: the portable set, and chunk files."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from veen_core.checkpoint import Checkpoint
from veen_core.chunk import (
    ChunkSummary,
    PrunedEntry,
    PrunedHead,
    checkpoint_name,
    chunk_name,
    encode_peaks,
    peaks_name,
    pruned_name,
    rolls,
    summary_name,
)
from veen_core.entry import Entry
from veen_core.export import (
    CHECKPOINTS,
    PAYLOADS,
    RECEIPTS,
    AuthorizePayload,
    IndexRow,
    PrunedPayload,
    sequence_name,
    sidecar_name,
)
from veen_core.ids import Label, MmrRoot, NodeHash, StreamSeq
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_storage.chunks.pruned_chunk import join_pruned, read_pruned_head
from veen_storage.copies.consistent_prefix import chunk_starts
from veen_storage.copies.export.folder import ExportFile, ExportFolder
from veen_storage.opening.observer import Source


class Sink(Protocol):
    """One form of an export, to which entries are written in order."""

    def take(self, entry: Entry | PrunedEntry, receipt: Receipt, before: Mmr) -> None: ...
    def finish(self, after: Mmr, checkpoints: list[Checkpoint]) -> None: ...


class Sequence:
    """Writes a CBOR sequence and the sidecar that indexes it."""

    def __init__(self, folder: ExportFolder, stem: str) -> None:
        self._folder = folder
        self._stem = stem
        self._items = folder.begin(sequence_name(stem))
        self._rows = folder.begin(sidecar_name(stem))

    def append(self, item: bytes, stream_seq: StreamSeq) -> None:
        self._rows.write(IndexRow(offset=self._items.size, stream_seq=stream_seq).encode())
        self._items.write(item)

    def end(self) -> None:
        self._folder.end(self._items, sequence_name(self._stem))
        self._folder.end(self._rows, sidecar_name(self._stem))


class SetSink:
    """Writes a portable set (spec-1 §15)."""

    def __init__(self, folder: ExportFolder) -> None:
        self._receipts = Sequence(folder, RECEIPTS)
        self._payloads = Sequence(folder, PAYLOADS)
        self._checkpoints = Sequence(folder, CHECKPOINTS)

    def take(self, entry: Entry | PrunedEntry, receipt: Receipt, before: Mmr) -> None:  # noqa: ARG002 - a Sink
        self._receipts.append(receipt.encode(), receipt.stream_seq)
        self._payloads.append(_payload(entry), receipt.stream_seq)

    def finish(self, after: Mmr, checkpoints: list[Checkpoint]) -> None:  # noqa: ARG002 - a Sink
        for checkpoint in checkpoints:
            self._checkpoints.append(checkpoint.encode(), checkpoint.upto_seq)
        for sequence in (self._receipts, self._payloads, self._checkpoints):
            sequence.end()


def _payload(entry: Entry | PrunedEntry) -> bytes:
    if isinstance(entry, PrunedEntry):
        return PrunedPayload(pruned=entry).encode()
    return AuthorizePayload(authorize=entry.msg_bytes).encode() if entry.is_authorize else entry.msg_bytes


class ChunkWriter:
    """Writes one exported chunk: all its entries whole, or all pruned.

    Pruned entries are held until the chunk ends, because the head before them counts them.
    """

    def __init__(self, output: ExportFile, start: StreamSeq, *, pruned: bool) -> None:
        self.output = output
        self.start = start
        self.end = start
        self.pruned = pruned
        self.root = MmrRoot(bytes(MmrRoot.SIZE))
        self.hashes = Mmr()
        self.held: list[bytes] = []

    @property
    def size(self) -> int:
        return self.output.size

    def add(self, entry: Entry | PrunedEntry, data: bytes, receipt: Receipt) -> None:
        if self.pruned:
            self.held.append(data)
        else:
            self.output.write(data)
        self.hashes.append(entry.entry_hash)
        self.end, self.root = receipt.stream_seq, receipt.mmr_root


class ChunkSink:
    """Writes chunk files that end where the hub's own chunks end."""

    def __init__(self, folder: ExportFolder, label: Label, store: Source) -> None:
        self._folder = folder
        self._label = label
        self._layout = store.layout
        self._limits = store.registry.limits
        self._index = store.index
        self._starts = chunk_starts(store.index, label)
        self._part: ChunkWriter | None = None

    def take(self, entry: Entry | PrunedEntry, receipt: Receipt, before: Mmr) -> None:
        data, pruned = entry.encode(), isinstance(entry, PrunedEntry)
        if pruned and receipt.stream_seq > max(self._starts, default=0):  # sealed since the export began
            self._starts = chunk_starts(self._index, self._label)
        part = self._part
        if part is not None and (part.pruned != pruned or self._ends_before(part, len(data))):
            self._end(part)
            part = None
        if part is None:
            self._write_peaks(before.size, before.peaks)
            start = receipt.stream_seq
            output = self._folder.begin(chunk_name(self._label, start, None))
            part = self._part = ChunkWriter(output, start, pruned=pruned)
        part.add(entry, data, receipt)

    def _ends_before(self, part: ChunkWriter, size: int) -> bool:
        """Return whether the chunk ends here, by the index or, for unapplied entries, by core §4.8.2."""
        return part.end in self._starts or (
            not part.pruned and rolls(part.size, part.hashes.size, size, self._limits)
        )

    def _end(self, part: ChunkWriter) -> None:
        name = pruned_name if part.pruned else chunk_name
        if part.pruned:
            part.output.write(join_pruned(self._head(part).encode(), part.held))
        summary = ChunkSummary(
            label=self._label,
            start_seq=part.start,
            end_seq=part.end,
            mmr_root_end=part.root,
            entry_count=part.hashes.size,
            total_bytes=part.output.size,
            entry_hashes_root=part.hashes.root,
        )
        self._folder.end(part.output, name(self._label, part.start, part.end))
        self._folder.write(summary_name(self._label, part.start, part.end), summary.encode())

    def _head(self, part: ChunkWriter) -> PrunedHead:
        """Return the head of the hub's pruned chunk, reduced to the entries of this part."""
        end = min(end for end in self._starts if end >= part.end)
        whole = read_pruned_head(self._layout.pruned(self._label, self._starts[end], end))
        sizes = whole.sizes[part.start - whole.start_seq : part.end - whole.start_seq + 1]
        return replace(whole, start_seq=part.start, end_seq=part.end, sizes=sizes)

    def _write_peaks(self, size: int, peaks: tuple[NodeHash, ...]) -> None:
        if size:
            self._folder.write(peaks_name(self._label, StreamSeq(size)), encode_peaks(peaks))

    def finish(self, after: Mmr, checkpoints: list[Checkpoint]) -> None:
        if self._part is not None:
            self._end(self._part)
        self._write_peaks(after.size, after.peaks)
        for checkpoint in checkpoints:
            self._folder.write(checkpoint_name(self._label, checkpoint.upto_seq), checkpoint.encode())
