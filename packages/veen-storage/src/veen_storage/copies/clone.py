"""Clone: the same hub in another directory, copied from one that may be running (core §0).

The order makes a clone either complete or not a data directory at all:

1. take a cut: where every label ends (``consistent_prefix``);
2. copy the growing chunks up to the cut, because only they still change;
3. copy sealed chunks, summaries, peaks, checkpoints, anchors and the lines of their indices; and the hub log
   up to the hub checkpoint of the cut;
4. copy attachments, each checked against its coid;
5. copy identity and registry and, only if asked for, the keys; sync everything;
6. build the index from the copied files: nothing of LMDB is copied;
7. write VERSION.

A clone without keys opens and can be read. It cannot sign, so it accepts no message and no hub starts on it.
Two directories that sign with the same key would contradict each other: copy keys only to move a hub.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from veen_core import cbor
from veen_core.chunk import CheckpointIndexEntry
from veen_core.entry import decode_frame
from veen_core.errors import DecodeError
from veen_core.hub_identity import CheckpointBinding
from veen_core.ids import Label, StreamSeq
from veen_storage.chunks.chunk_files import ChunkFile, open_chunk
from veen_storage.chunks.compression import finalize_chunk
from veen_storage.copies.consistent_prefix import (
    Cut,
    HubLogCut,
    LabelCut,
    SealedPart,
    anchored,
    checkpoints,
    sealed_end,
    sealed_parts,
    shorten,
    take_cut,
)
from veen_storage.disk import hub_keys
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import REPAIR, DamageError, StorageError, read_file, reading
from veen_storage.fsck.repair import RefusedError, rebuild_index
from veen_storage.opening.observer import Observer, Source, open_source
from veen_storage.read.attachments import Attachments
from veen_storage.store import Store

COPY_BYTES: Final = 1_048_576
"""Bytes that are copied at once."""
MAX_OPEN_FILES: Final = 256
"""Files that are synced together."""
MAX_RENAMES: Final = 16
"""How often a file may be renamed during its copy before it counts as missing."""
MAX_CUTS: Final = 8
"""Cuts that are tried while chunks are pruned faster than they are copied."""


ReportProgress = Callable[[int, int], None]
"""Called with the number of copied labels, and the number of all labels."""


def clone(
    source: Store | Path,
    target: Path,
    *,
    with_keys: bool = False,
    keys_directory: Path | None = None,
    progress: ReportProgress = lambda _done, _all: None,
    files: Files | None = None,
) -> Cut:
    """Copy a hub into a new directory; return the cut.

    The source may be closed, open here, or open in another process. From an open source,
    everything is copied that was applied when the cut was taken. ``keys_directory`` is where the source
    keeps its keys, if not in its data directory.
    """
    with open_source(source) as store:
        if with_keys and isinstance(store, Observer):
            raise StorageError(f"{source} is in use; stop the hub before you copy its keys")
        return copy_prefix(
            store,
            target,
            None,
            keys_directory=(keys_directory or store.layout.keys) if with_keys else None,
            progress=progress,
            files=files or Files(),
        )


def copy_prefix(
    store: Source,
    target: Path,
    upto: Mapping[Label, StreamSeq] | None,
    *,
    keys_directory: Path | None,
    progress: ReportProgress,
    files: Files,
) -> Cut:
    """Copy a hub up to ``upto`` in each label named there, and whole labels otherwise."""
    if target.exists() and any(target.iterdir()):
        raise StorageError(f"{target} is not empty; name a folder that does not exist yet")
    _check_attachments(store)
    copier = LogCopier(store, Layout(target), progress, files)
    for _attempt in range(MAX_CUTS):
        cut = take_cut(store.index)
        if upto is not None:
            cut = shorten(cut, store.index, store.read, store.hub_log, upto)
        try:
            copier.copy_log(cut, whole=upto is None)
        except PrunedMeanwhileError:
            copier.forget_log()
            continue
        copier.copy_rest(keys_directory)
        return cut
    raise StorageError(
        f"chunks were pruned faster than they could be copied, {MAX_CUTS} times; try again later"
    )


def _check_attachments(store: Source) -> None:
    """Raise if an attachment is lost: a clone without it would be incomplete."""
    for coid in store.attachments.lost():
        raise store.attachments.missing(coid)


class PrunedMeanwhileError(Exception):
    """A chunk that grew at the cut was sealed and pruned since then, so the cut cannot be copied."""


class LogCopier:
    """Copies the files of one hub up to a cut; ``copies.snapshot`` sends them to a replica instead."""

    def __init__(self, store: Source, target: Layout, progress: ReportProgress, files: Files) -> None:
        self._store = store
        self._source = store.layout
        self._target = target
        self._zstd_level = store.registry.zstd_level
        self._progress = progress
        self._files = files
        self._unsynced: list[int] = []

    # --- steps 2 and 3

    def copy_log(self, cut: Cut, *, whole: bool) -> None:
        self._make_folders()
        try:
            self._copy_labels(cut.labels)
            self._write(self._target.checkpoint_binding, [self.bindings(cut, whole=whole)])
            if cut.hub_log is not None:
                self._copy_hub_log(cut.hub_log)
            self._sync()
        finally:
            self._close()
        self._sync_folders()

    def copy_labels(self, labels: Sequence[LabelCut]) -> None:
        """Copy some labels durably, and nothing else; the target may have other labels already."""
        self._make_folders()
        try:
            self._copy_labels(labels)
            self._sync()
        finally:
            self._close()
        self._sync_folders()

    def copy_hub_log(self, cut: HubLogCut) -> None:
        """Copy the hub log durably, and nothing else."""
        try:
            self._copy_hub_log(cut)
            self._sync()
        finally:
            self._close()
        self._sync_folders()

    def _copy_labels(self, labels: Sequence[LabelCut]) -> None:
        for held in labels:
            path = self._target.chunk(held.label, held.chunk_start, None)
            self._write(path, self._growing(held))
        for done, held in enumerate(labels, start=1):
            self._copy_label(held)
            self._progress(done, len(labels))

    def _make_folders(self) -> None:
        self._files.make_directories(self._target.root)
        for directory in self._target.directories():
            self._files.make_directory(directory)

    def _sync_folders(self) -> None:
        self._files.sync_directory(self._target.log)
        self._files.sync_directory(self._target.hub_log)

    def forget_log(self) -> None:
        """Remove the copied log, to start again with another cut."""
        for path in (*self._target.log.iterdir(), *self._target.hub_log.iterdir()):
            self._files.remove(path)

    def _copy_hub_log(self, cut: HubLogCut) -> None:
        """Copy the hub log; the published hub checkpoint only if the copy has all its entries."""
        entries = read_parts(self._store.hub_log.entries_file, end=cut.entries_bytes)
        self._write(self._target.hub_log_entries, entries)
        self._write(self._target.hub_log_checkpoint, [cut.checkpoint])
        published = self._store.hub_log.published
        if published is not None and published.head.size <= cut.size:
            self._write(self._target.hub_log_published, [published.encode()])

    def _copy_label(self, cut: LabelCut) -> None:
        for part in sealed_parts(self._store.index, cut):
            self._copy_sealed(cut.label, part)
            self._copy(
                self._source.summary(cut.label, part.start, part.end),
                self._target.summary(cut.label, part.start, part.end),
            )
        known = anchored(self._store.index, cut)
        for upto in checkpoints(self._store.index, cut):
            for place in (Layout.peaks, Layout.checkpoint):
                self._copy(place(self._source, cut.label, upto), place(self._target, cut.label, upto))
            anchor = self._source.anchor(cut.label, upto)
            if upto in known or anchor.exists():
                self._copy(anchor, self._target.anchor(cut.label, upto))
        if cut.checkpointed:
            self._write(self._target.checkpoint_index(cut.label), [self._index_lines(cut)])

    def _copy_sealed(self, label: Label, part: SealedPart) -> None:
        """Copy a sealed chunk under its old or its new name: the index commits before the file is renamed."""
        final = self._source.chunk(label, part.start, part.end)
        pruned = self._source.pruned(label, part.start, part.end)
        for _attempt in range(MAX_RENAMES):
            for path in (pruned,) if part.pruned else (final, pruned):
                if path.exists() and self._copied(path, self._target.log / path.name):
                    return
            growing = self._source.chunk(label, part.start, None)
            copied = self._target.chunk(label, part.start, None)
            if growing.exists() and self._copied(growing, copied):
                self._seal(label, part)
                return
        raise DamageError(final.name, None, "is missing")

    def _seal(self, label: Label, part: SealedPart) -> None:
        """Give a chunk that was copied under its old name its final name and form."""
        self._sync()
        finalize_chunk(self._files, self._target, label, part.start, part.end, zstd_level=self._zstd_level)

    def _growing(self, cut: LabelCut) -> Iterator[bytes]:
        """Yield the frames of the growing chunk that belong to the cut."""
        with self._open_growing(cut) as chunk:
            if cut.chunk_bytes is None:
                for _offset, frame in chunk.walk():
                    yield frame
                    if decode_frame(frame).stream_seq == cut.stream_seq:
                        return
                raise DamageError(chunk.name, None, f"ends before entry {cut.stream_seq}")
            for at in range(0, cut.chunk_bytes, COPY_BYTES):
                yield chunk.read(at, min(COPY_BYTES, cut.chunk_bytes - at))

    def _open_growing(self, cut: LabelCut) -> ChunkFile:
        end = None
        for _attempt in range(MAX_RENAMES):
            end = sealed_end(self._store.index, cut)
            try:
                zstd = self._zstd_level is not None
                return open_chunk(self._source, cut.label, cut.chunk_start, end, zstd=zstd)
            except FileNotFoundError:
                if end is not None and self._source.pruned(cut.label, cut.chunk_start, end).exists():
                    raise PrunedMeanwhileError from None
        raise DamageError(self._source.chunk(cut.label, cut.chunk_start, end).name, None, "is missing")

    def _index_lines(self, cut: LabelCut) -> bytes:
        """Return the label's checkpoint index up to the cut; its last line may be half written."""
        path, size = self._source.checkpoint_index(cut.label), 0
        content = read_file(path, missing=REPAIR)
        try:
            for line in cbor.split_sequence(content):
                size += len(line)
                if CheckpointIndexEntry.decode(line).upto_seq == cut.checkpointed:
                    return content[:size]
        except DecodeError:
            pass  # a half-written line
        raise DamageError(path.name, size, f"has no line for the checkpoint at {cut.checkpointed}", REPAIR)

    def bindings(self, cut: Cut, *, whole: bool) -> bytes:
        """Return the binding lines of the copied checkpoints."""
        path = self._source.checkpoint_binding
        lines = read_file(path, missing=REPAIR)[: cut.binding_bytes]
        if whole:
            return lines
        kept = {(held.label, upto) for held in cut.labels for upto in checkpoints(self._store.index, held)}
        try:
            bound = [(line, CheckpointBinding.decode(line)) for line in cbor.split_sequence(lines)]
        except DecodeError as exc:
            raise DamageError(path.name, None, str(exc), REPAIR) from exc
        return b"".join(line for line, tie in bound if (tie.label, tie.upto_seq) in kept)

    # --- steps 4 to 7

    def copy_rest(self, keys_directory: Path | None) -> None:
        source, target = self._source, self._target
        copied = Attachments(self._files, target, self._store.registry.limits.max_attachment_bytes, None)
        _check_attachments(self._store)  # again, since copying the log takes long
        for coid in self._store.attachments.coids():
            copied.put(coid, self._store.attachments.get(coid))
        if keys_directory is not None:
            for key in hub_keys.read_keys(keys_directory, self._store.identity).values():
                hub_keys.write_key(self._files, target.keys, key)
        if source.fork.exists():
            for path in (source.fork_cuts, source.fork):
                self._files.replace(target.root / path.name, path.read_bytes())
            for ancestor in sorted(source.ancestry.iterdir()):
                copy_closed(ancestor, target.ancestry / ancestor.name, self._files)
        identity = self._store.artifacts().files(source)  # last: it has every key that signed the log
        for name, content in (*identity.items(), (source.registry.name, source.registry.read_bytes())):
            self._files.replace(target.root / name, content)
        finish_clone(source, target, self._files)

    # --- files

    def _copied(self, source: Path, target: Path) -> bool:
        """Copy a file; return False if it was renamed or removed before."""
        try:
            self._write(target, read_parts(source))
        except FileNotFoundError:
            return False
        return True

    def _copy(self, source: Path, target: Path) -> None:
        """Copy a file that the index knows and that is never removed."""
        if not self._copied(source, target):
            raise DamageError(source.name, None, "is missing")

    def _write(self, path: Path, parts: Iterable[bytes]) -> None:
        """Write all parts to a file, which is synced later together with others (``_sync``)."""
        parts = iter(parts)
        first = next(parts, b"")  # before the target is created: reading raises if the source is missing
        fd = self._files.open_append(path)
        self._unsynced.append(fd)
        offset = 0
        while first:
            self._files.write(fd, first, offset)
            offset += len(first)
            first = next(parts, b"")
        if len(self._unsynced) >= MAX_OPEN_FILES:
            self._sync()

    def _sync(self) -> None:
        if self._unsynced:
            self._files.sync_many(self._unsynced)
        self._close()

    def _close(self) -> None:
        while self._unsynced:
            os.close(self._unsynced.pop())


def read_parts(path: Path, end: int | None = None) -> Iterator[bytes]:
    """Yield a file's content, or its first ``end`` bytes, in parts of ``COPY_BYTES``."""
    with path.open("rb") as file:
        while part := _read(file, path.name, COPY_BYTES if end is None else end - file.tell()):
            yield part


def _read(file: BinaryIO, name: str, left: int) -> bytes:
    with reading(name):
        return file.read(min(left, COPY_BYTES))


def copy_closed(source: Path, target: Path, files: Files) -> None:
    """Copy a data directory that nothing writes to, such as a fork's ancestor, and build its index."""
    here, there = Layout(source), Layout(target)
    files.make_directories(target)
    for directory in there.directories():
        files.make_directory(directory)
    copied = [path for folder in (here.log, here.hub_log, here.attachments) for path in folder.rglob("*")]
    copied += [path for path in source.iterdir() if path not in (here.version, here.lock)]
    for path in sorted(path for path in copied if path.is_file()):
        copy = target / path.relative_to(source)
        files.make_directories(copy.parent)
        fd = files.open_append(copy)
        try:
            offset = 0
            for part in read_parts(path):
                files.write(fd, part, offset)
                offset += len(part)
            files.sync(fd)
        finally:
            os.close(fd)
    for folder in (there.root, *(path for path in target.rglob("*") if path.is_dir())):
        files.sync_directory(folder)
    for ancestor in sorted(here.ancestry.glob("*")):
        copy_closed(ancestor, there.ancestry / ancestor.name, files)
    finish_clone(here, there, files)


def finish_clone(source: Layout, target: Layout, files: Files) -> None:
    """Do steps 6 and 7. Before VERSION exists, the target is not a data directory."""
    try:
        rebuild_index(target, files)
    except RefusedError as exc:
        first, action = exc.faults[0], f"run `veen hub fsck` on {source.root}"
        raise DamageError(first.file, first.offset, f"{first.what}: not copied", action) from exc
    files.sync_directory(target.root)
    files.replace(target.version, source.version.read_bytes())
