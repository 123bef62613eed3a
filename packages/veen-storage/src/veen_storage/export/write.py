"""Writing an export, in either form of ``format``. Everything is streamed.

The manifest comes last: a folder without it was never finished.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

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
from veen_core.ids import Label, MmrRoot, NodeHash, StreamSeq, UnixTime
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_storage.cut import chunk_starts
from veen_storage.errors import AbsentError, DamageError, StorageError
from veen_storage.export.format import (
    CHECKPOINTS,
    IDENTITY,
    MANIFEST,
    PAYLOADS,
    RECEIPTS,
    SIGNATURE,
    AuthorizePayload,
    ExportedFile,
    FileHash,
    Form,
    IndexRow,
    Later,
    Manifest,
    PrunedPayload,
    PrunedRange,
    manifest_digest,
    note_pruned,
    sequence_name,
    sidecar_name,
)
from veen_storage.files import Files
from veen_storage.observer import Source
from veen_storage.pruned_chunk import join_pruned, read_pruned_head
from veen_storage.reader import Reader

PAGE: Final = 1_024
Watch = Callable[[int, int], None]
"""Hears how many entries are written, of how many."""
BUFFER: Final = 1_048_576


def export(
    store: Source,
    label: Label,
    from_seq: StreamSeq,
    to_seq: StreamSeq,
    target: Path,
    *,
    form: Form = "set",
    progress: Watch = lambda _done, _all: None,
    files: Files | None = None,
) -> Manifest:
    """Write entries ``from_seq … to_seq`` into a new folder; durable when this returns."""
    files, read = files or Files(), store.read
    head = read.head(label)
    if head is None or not 1 <= from_seq <= to_seq <= head.stream_seq:
        raise AbsentError(
            f"label {label.hex()} has {head.stream_seq if head else 0} entries, not {from_seq} to {to_seq}"
        )
    if target.exists() and any(target.iterdir()):
        raise StorageError(f"{target} is not empty: an export needs a folder of its own")
    files.make_directories(target)
    before = _tree_before(read, label, from_seq, to_seq)
    with _Folder(target, files) as folder:
        sink: _Sink = _SetSink(folder) if form == "set" else _ChunkSink(folder, label, store)
        after, first, last, pruned = _pour(read, label, to_seq, before, sink=sink, progress=progress)
        sink.finish(after, _checkpoints(read, label, from_seq, to_seq))
        identity = store.artifacts().files(store.layout)  # after the log: of keys that signed any of it
        for name in IDENTITY:
            folder.write(name, identity.get(name) or (store.layout.root / name).read_bytes())
    manifest = Manifest(
        form=form,
        hub_id=store.identity.hub_id,
        label=label,
        from_seq=from_seq,
        to_seq=to_seq,
        from_ts=first.hub_ts,
        to_ts=last.hub_ts,
        peaks_before=before.peaks,
        peaks_after=after.peaks,
        pruned=tuple(pruned),
        files=tuple(sorted(folder.written, key=lambda file: file.name)),
        before=read.receipt(label, StreamSeq(from_seq - 1)) if from_seq > 1 else None,
        later=_later(read, label, to_seq),
    )
    content = manifest.encode()
    if (signature := store.sign(manifest_digest(content))) is not None:
        files.replace(target / SIGNATURE, signature)
    files.sync_directory(target)
    files.replace(target / MANIFEST, content)
    return manifest


def export_window(
    store: Source,
    label: Label,
    start: UnixTime,
    end: UnixTime,
    target: Path,
    *,
    form: Form = "set",
    progress: Watch = lambda _done, _all: None,
    files: Files | None = None,
) -> Manifest:
    """The entries with ``start <= hub_ts <= end``."""
    window = store.read.window(label, start, end)
    if window is None:
        raise AbsentError(f"label {label.hex()} has no entry from {start} to {end}")
    return export(store, label, *window, target, form=form, progress=progress, files=files)


def _tree_before(read: Reader, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> Mmr:
    if from_seq == 1:
        return Mmr()
    proof = read.consistency(label, StreamSeq(from_seq - 1), to_seq)
    return Mmr(from_seq - 1, proof.peaks_from)


def _pour(
    read: Reader, label: Label, to_seq: StreamSeq, before: Mmr, *, sink: _Sink, progress: Watch
) -> tuple[Mmr, Receipt, Receipt, list[PrunedRange]]:
    """Every entry into the sink; the tree after them, the first and last receipt, what is pruned."""
    tree, pruned = before.copy(), list[PrunedRange]()
    first = last = None
    for entry in _entries(read, label, StreamSeq(tree.size + 1), to_seq):
        last = entry.receipt
        first = first or last
        if isinstance(entry, PrunedEntry):
            note_pruned(pruned, last.stream_seq)
        sink.take(entry, last, tree)
        tree.append(last.leaf_hash)
        if tree.root != last.mmr_root:
            raise DamageError(f"label {label.hex()}", None, f"entry {last.stream_seq} does not follow (I3)")
        if tree.size % PAGE == 0 or tree.size == to_seq:
            progress(tree.size - before.size, to_seq - before.size)
    assert first is not None
    assert last is not None
    return tree, first, last, pruned


def _entries(read: Reader, label: Label, at: StreamSeq, end: StreamSeq) -> Iterator[Entry | PrunedEntry]:
    while at <= end:
        page = read.entries(label, at, PAGE, end=end)
        at = StreamSeq(at + len(page))
        yield from page
        del page  # before the next one is read: one at a time in memory


def _checkpoints(read: Reader, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> list[Checkpoint]:
    """Those at ``from_seq - 1 … to_seq``, oldest first."""
    found = []
    at = read.checkpoint_before(label, to_seq)
    while at is not None and at.upto_seq >= from_seq - 1:
        found.append(at)
        at = read.checkpoint_before(label, StreamSeq(at.upto_seq - 1))
    return found[::-1]


def _later(read: Reader, label: Label, to_seq: StreamSeq) -> Later | None:
    latest = read.latest_checkpoint(label)
    if latest is None or latest.upto_seq <= to_seq:
        return None
    return Later(checkpoint=latest, consistency=read.consistency(label, to_seq, latest.upto_seq))


class _Output:
    """One file in the making: buffered, hashed, synced when it ends."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self.size = 0
        self._files = files
        self._fd = files.open_append(path)
        self._digest = sha256()
        self._parts: list[bytes] = []
        self._held = 0

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._held += len(data)
        self.size += len(data)
        if self._held >= BUFFER:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._parts)
        self._files.write(self._fd, data, self.size - self._held)
        self._digest.update(data)
        self._parts, self._held = [], 0

    def end(self, name: str) -> ExportedFile:
        """Synced and closed, under its final name."""
        self._flush()
        self._files.sync(self._fd)
        self.close()
        if self.path.name != name:
            self._files.rename(self.path, self.path.with_name(name))
        return ExportedFile(name=name, size=self.size, digest=FileHash(self._digest.digest()))

    def close(self) -> None:
        os.close(self._fd)


class _Folder:
    """The target, and what was written into it."""

    def __init__(self, root: Path, files: Files) -> None:
        self._root = root
        self._files = files
        self._open: list[_Output] = []
        self.written: list[ExportedFile] = []

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, *_: object) -> None:
        for output in self._open:  # those that an error cut off
            output.close()

    def begin(self, name: str) -> _Output:
        self._open.append(output := _Output(self._root / name, self._files))
        return output

    def end(self, output: _Output, name: str) -> None:
        self.written.append(output.end(name))
        self._open.remove(output)

    def write(self, name: str, content: bytes) -> None:
        output = self.begin(name)
        output.write(content)
        self.end(output, name)


class _Sink(Protocol):
    """One form of export, fed entry by entry."""

    def take(self, entry: Entry | PrunedEntry, receipt: Receipt, before: Mmr) -> None: ...
    def finish(self, after: Mmr, checkpoints: list[Checkpoint]) -> None: ...


class _Sequence:
    """A CBOR sequence and its sidecar."""

    def __init__(self, folder: _Folder, stem: str) -> None:
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


class _SetSink:
    """The portable set (spec-1 §15)."""

    def __init__(self, folder: _Folder) -> None:
        self._receipts = _Sequence(folder, RECEIPTS)
        self._payloads = _Sequence(folder, PAYLOADS)
        self._checkpoints = _Sequence(folder, CHECKPOINTS)

    def take(self, entry: Entry | PrunedEntry, receipt: Receipt, before: Mmr) -> None:  # noqa: ARG002 - a _Sink
        self._receipts.append(receipt.encode(), receipt.stream_seq)
        self._payloads.append(_payload(entry), receipt.stream_seq)

    def finish(self, after: Mmr, checkpoints: list[Checkpoint]) -> None:  # noqa: ARG002 - a _Sink
        for checkpoint in checkpoints:
            self._checkpoints.append(checkpoint.encode(), checkpoint.upto_seq)
        for sequence in (self._receipts, self._payloads, self._checkpoints):
            sequence.end()


def _payload(entry: Entry | PrunedEntry) -> bytes:
    if isinstance(entry, PrunedEntry):
        return PrunedPayload(pruned=entry).encode()
    return AuthorizePayload(authorize=entry.msg_bytes).encode() if entry.is_authorize else entry.msg_bytes


class _Part:
    """One exported chunk in the making: all its entries whole, or all pruned.

    Pruned ones are held until it ends, since what stands before them counts them.
    """

    def __init__(self, output: _Output, start: StreamSeq, *, pruned: bool) -> None:
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


class _ChunkSink:
    """Framed chunk files, cut where the hub's own are cut."""

    def __init__(self, folder: _Folder, label: Label, store: Source) -> None:
        self._folder = folder
        self._label = label
        self._layout = store.layout
        self._limits = store.registry.limits
        self._index = store.index
        self._starts = chunk_starts(store.index, label)
        self._part: _Part | None = None

    def take(self, entry: Entry | PrunedEntry, receipt: Receipt, before: Mmr) -> None:
        data, pruned = entry.encode(), isinstance(entry, PrunedEntry)
        if pruned and receipt.stream_seq > max(self._starts, default=0):  # sealed and pruned meanwhile
            self._starts = chunk_starts(self._index, self._label)
        part = self._part
        if part is not None and (part.pruned != pruned or self._ends_before(part, len(data))):
            self._end(part)
            part = None
        if part is None:
            self._write_peaks(before.size, before.peaks)
            start = receipt.stream_seq
            output = self._folder.begin(chunk_name(self._label, start, None))
            part = self._part = _Part(output, start, pruned=pruned)
        part.add(entry, data, receipt)

    def _ends_before(self, part: _Part, size: int) -> bool:
        """Where the index says; by the rule of §4.8.2 for what is not applied yet."""
        return part.end in self._starts or (
            not part.pruned and rolls(part.size, part.hashes.size, size, self._limits)
        )

    def _end(self, part: _Part) -> None:
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

    def _head(self, part: _Part) -> PrunedHead:
        """Of the pruned chunk that a part is from, cut to the part."""
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
