"""Write an export in one of its two forms, streaming entries from a store.

The manifest is written last: a folder without a manifest is an export that was never finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from veen_core.checkpoint import Checkpoint
from veen_core.chunk import PrunedEntry
from veen_core.entry import Entry
from veen_core.export import (
    IDENTITY,
    MANIFEST,
    SIGNATURE,
    ExportForm,
    LaterCheckpoint,
    Manifest,
    PrunedRange,
    manifest_digest,
)
from veen_core.hub_export import HUB_HEAD
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_core.tlog.tree_head import SignedHead
from veen_storage.copies.export.folder import ExportFolder
from veen_storage.copies.export.hub_head import find_hub_head
from veen_storage.copies.export.sequence import note_pruned
from veen_storage.copies.export.sinks import ChunkSink, SetSink, Sink
from veen_storage.disk.files import Files
from veen_storage.errors import AbsentError, DamageError, StorageError
from veen_storage.opening.observer import Source
from veen_storage.read.reader import Reader

PAGE_ENTRIES: Final = 1_024
"""Entries that are read at once."""
ReportProgress = Callable[[int, int], None]
"""Called with the number of entries written so far, and the number of all."""


def export(
    store: Source,
    label: Label,
    from_seq: StreamSeq,
    to_seq: StreamSeq,
    target: Path,
    *,
    form: ExportForm = "set",
    progress: ReportProgress = lambda _done, _all: None,
    files: Files | None = None,
    hub_checkpoints: Sequence[SignedHead] | None = None,
) -> Manifest:
    """Write entries ``from_seq`` to ``to_seq`` of a label into a new folder; return once it is durable.

    ``hub_checkpoints`` are those that the head in the hub log may lead to (``find_hub_head``).
    """
    files, read = files or Files(), store.read
    head = read.head(label)
    if head is None or not 1 <= from_seq <= to_seq <= head.stream_seq:
        raise AbsentError(
            f"label {label.hex()} has {head.stream_seq if head else 0} entries: "
            f"{from_seq} to {to_seq} cannot be exported"
        )
    if target.exists() and any(target.iterdir()):
        raise StorageError(f"{target} is not empty; name a folder that does not exist yet")
    files.make_directories(target)
    before = _tree_before(read, label, from_seq, to_seq)
    with ExportFolder(target, files) as folder:
        sink: Sink = SetSink(folder) if form == "set" else ChunkSink(folder, label, store)
        after, first, last, pruned = _write_entries(read, label, to_seq, before, sink=sink, progress=progress)
        sink.finish(after, _checkpoints(read, label, from_seq, to_seq))
        if (hub_head := find_hub_head(store, label, to_seq, hub_checkpoints)) is not None:
            folder.write(HUB_HEAD, hub_head.encode())
        identity = store.artifacts().files(
            store.layout
        )  # read after the entries, so that it has every key that signed one of them
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
    form: ExportForm = "set",
    progress: ReportProgress = lambda _done, _all: None,
    files: Files | None = None,
) -> Manifest:
    """Export the entries with ``start <= hub_ts <= end``."""
    window = store.read.window(label, start, end)
    if window is None:
        raise AbsentError(f"label {label.hex()} has no entry from {start} to {end}")
    return export(store, label, *window, target, form=form, progress=progress, files=files)


def _tree_before(read: Reader, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> Mmr:
    if from_seq == 1:
        return Mmr()
    proof = read.consistency(label, StreamSeq(from_seq - 1), to_seq)
    return Mmr(from_seq - 1, proof.peaks_from)


def _write_entries(
    read: Reader, label: Label, to_seq: StreamSeq, before: Mmr, *, sink: Sink, progress: ReportProgress
) -> tuple[Mmr, Receipt, Receipt, list[PrunedRange]]:
    """Write every entry; return the tree after them, the first and the last receipt, the pruned ranges."""
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
            raise DamageError(
                f"label {label.hex()}",
                None,
                f"entry {last.stream_seq} has a root that does not follow from the log (I3)",
            )
        if tree.size % PAGE_ENTRIES == 0 or tree.size == to_seq:
            progress(tree.size - before.size, to_seq - before.size)
    assert first is not None
    assert last is not None
    return tree, first, last, pruned


def _entries(read: Reader, label: Label, at: StreamSeq, end: StreamSeq) -> Iterator[Entry | PrunedEntry]:
    while at <= end:
        page = read.entries(label, at, PAGE_ENTRIES, end=end)
        at = StreamSeq(at + len(page))
        yield from page
        del page  # so that only one page is in memory at a time


def _checkpoints(read: Reader, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> list[Checkpoint]:
    """Return the checkpoints at ``from_seq - 1`` to ``to_seq``, oldest first."""
    found = []
    at = read.checkpoint_before(label, to_seq)
    while at is not None and at.upto_seq >= from_seq - 1:
        found.append(at)
        at = read.checkpoint_before(label, StreamSeq(at.upto_seq - 1))
    return found[::-1]


def _later(read: Reader, label: Label, to_seq: StreamSeq) -> LaterCheckpoint | None:
    latest = read.latest_checkpoint(label)
    if latest is None or latest.upto_seq <= to_seq:
        return None
    return LaterCheckpoint(checkpoint=latest, consistency=read.consistency(label, to_seq, latest.upto_seq))
