"""The applier: move durable batches from the journal into chunk files and the index.

Order of one round, over any number of batches:

1. write and sync chunk bytes, summaries, peak snapshots, checkpoints, anchors, checkpoint index lines and
   entries of the hub log; after these, replace the hub checkpoint;
2. sync the names in the folders;
3. record all of it in one synced index transaction, with the number of the last batch: the round is applied;
4. give sealed chunks their final names and remove pruned payloads (a chunk that step 1 found damaged is not
   pruned, see ``chunks.retention``);
5. the store drops these batches from the tail, and removes journal segments that are applied.

A crash before step 3 leaves bytes that the index does not include: recovery truncates files to the lengths in
the index and applies the batches again. A crash after step 3 leaves step 4 undone: the transaction lists it,
and the next opening does it. Every write here may therefore happen twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from veen_core import cbor, chunk
from veen_core.ids import Label, StreamSeq
from veen_storage.chunks import compression, retention
from veen_storage.chunks.chunk_files import is_whole
from veen_storage.chunks.retention import Pruner
from veen_storage.commit.changes import Anchored, Changes, Checkpointed, HubExtended, Placed, Pruned, Sealed
from veen_storage.commit.hub_log import index_extension, index_moved
from veen_storage.commit.journal import foreign_at
from veen_storage.disk.files import Files, read_exactly
from veen_storage.disk.layout import HUB_LOG_ENTRIES, Layout
from veen_storage.errors import REPAIR, DamageError
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index, Transaction
from veen_storage.index.records import LABEL_SEQ, NODE, ChunkRecord, Segment

MAX_OPEN_FILES: Final = 256
"""Chunk files that are open at once during a round."""
ROUND_BYTES: Final = 8 * 1_048_576
"""A round takes about this many bytes of batches."""


@dataclass(slots=True)
class _Appends:
    """Bytes to append to one file from ``offset`` on, which is the file's length in the index."""

    offset: int
    parts: list[bytes] = field(default_factory=list)


class Applier:
    """Writes the changes that the ledger decided."""

    def __init__(
        self,
        files: Files,
        layout: Layout,
        index: Index,
        zstd_level: int | None,
        pruner: Pruner,
    ) -> None:
        self._files = files
        self._layout = layout
        self._index = index
        self._zstd_level = zstd_level
        self._pruner = pruner
        # Folders with names that changed since their last sync. At first all: a process that crashed
        # may have left names that are not durable yet.
        self._renamed_in = {layout.log, layout.hub_log, layout.root}

    def apply(self, changes: list[Changes]) -> None:
        """Apply one round: steps 1 to 4."""
        self._write_files(changes)
        finishing = encode_finishing(changes)
        self._index.write(lambda txn: write_index(txn, changes, finishing))
        self.finish(finishing)

    def finish(self, finishing: bytes, *, after_crash: bool = False) -> None:
        """Do step 4; ``after_crash``: for a round that a crash interrupted after step 3."""
        for kind, label, start, end in decode_finishing(finishing):
            if kind == "seal" and after_crash and self._is_compressed(label, start, end):
                self._files.remove(self._layout.chunk(label, start, None))
            elif kind == "seal":
                compression.finalize_chunk(
                    self._files, self._layout, label, start, end, zstd_level=self._zstd_level
                )
            else:
                if after_crash:
                    self._pruner.write_again(self._files, label, start, end)
                self._files.remove(self._layout.chunk(label, start, end))
        if finishing != NOTHING_TO_FINISH:
            self._files.sync_directory(self._layout.log)

    def _is_compressed(self, label: Label, start: StreamSeq, end: StreamSeq) -> bool:
        """Return whether the compressed chunk is complete, so that it need not be made again."""
        final = self._layout.chunk(label, start, end)
        return self._zstd_level is not None and final.exists() and is_whole(final, compressed=True)

    # --- step 1 and 2

    def _write_files(self, changes: list[Changes]) -> None:
        appends: dict[Path, _Appends] = {}
        growing: dict[tuple[Label, StreamSeq], _Appends] = {}  # no paths as keys: one costs 6 µs an entry
        pruned: set[tuple[Label, StreamSeq]] = set()
        refused: set[int] = set()
        for step in (step for change in changes for step in change.steps):
            match step:
                case Placed():
                    key = (step.entry.label, step.location.chunk_start)
                    if (append := growing.get(key)) is None:
                        append = growing[key] = _Appends(step.location.offset)
                    append.parts.append(step.frame)
                case Sealed():
                    self._write_sealed(step)
                case Checkpointed():
                    self._write_checkpoint(step, appends)
                case Anchored():
                    self._replace(
                        self._layout.anchor(step.anchor.label, step.anchor.upto_seq), step.anchor.encode()
                    )
                case Pruned():
                    self._renamed_in.add(self._layout.log)
                    chunk_ = (step.decision.label, step.decision.start_seq)
                    if chunk_ in pruned:
                        continue  # decided twice: the first decision counts
                    if self._pruner.write(self._files, step.decision):
                        pruned.add(chunk_)
                    else:
                        refused.add(id(step))
        for change in changes if refused else ():
            change.steps = [step for step in change.steps if id(step) not in refused]
        appends.update({self._layout.chunk(label, start, None): a for (label, start), a in growing.items()})
        extensions = [step for change in changes for step in change.hub_extensions]
        self._append_hub_log(extensions, appends)
        self._append_all(appends)
        self._replace_hub_checkpoint(extensions)  # last: a hub checkpoint on disk has all its entries
        for folder in sorted(self._renamed_in):
            self._files.sync_directory(folder)
        self._renamed_in.clear()

    def _write_sealed(self, step: Sealed) -> None:
        summary = step.summary
        self._replace(
            self._layout.summary(summary.label, summary.start_seq, summary.end_seq), summary.encode()
        )

    def _write_checkpoint(self, step: Checkpointed, appends: dict[Path, _Appends]) -> None:
        label, upto = step.checkpoint.label_curr, step.checkpoint.upto_seq
        self._replace(self._layout.peaks(label, upto), chunk.encode_peaks(step.peaks))
        self._replace(self._layout.checkpoint(label, upto), step.checkpoint.encode())
        _add(appends, self._layout.checkpoint_index(label), step.index_at, step.line.encode())
        _add(appends, self._layout.checkpoint_binding, step.binding_at, step.binding.encode())

    def _append_hub_log(self, extensions: list[HubExtended], appends: dict[Path, _Appends]) -> None:
        for extension in extensions:
            _add(appends, self._layout.hub_log_entries, extension.entries[0].offset, extension.bundle)

    def _replace_hub_checkpoint(self, extensions: list[HubExtended]) -> None:
        if extensions:
            self._replace(self._layout.hub_log_checkpoint, extensions[-1].signed.encode())

    def _replace(self, path: Path, content: bytes) -> None:
        self._files.replace(path, content, sync_directory=False)
        self._renamed_in.add(path.parent)

    def _append_all(self, appends: dict[Path, _Appends]) -> None:
        """Write every file's bytes, then sync the files together."""
        pending = list(appends.items())
        for at in range(0, len(pending), MAX_OPEN_FILES):
            opened: list[int] = []
            try:
                for path, append in pending[at : at + MAX_OPEN_FILES]:
                    opened.append(fd := self._files.open_append(path))
                    self._append(fd, path, append)
                self._files.sync_many(opened)
            finally:
                for fd in opened:
                    os.close(fd)

    def _append(self, fd: int, path: Path, append: _Appends) -> None:
        length = os.fstat(fd).st_size
        if length == 0:
            self._renamed_in.add(path.parent)  # it may be new
        if length < append.offset:
            raise DamageError(
                self._name(path), length, f"ends here, but the index includes its bytes up to {append.offset}"
            )
        data = b"".join(append.parts)
        if length > append.offset:
            self._check_surplus(fd, path, append.offset, data)
            self._files.truncate(fd, append.offset)
        self._files.write(fd, data, append.offset)

    def _check_surplus(self, fd: int, path: Path, offset: int, data: bytes) -> None:
        """Raise unless the bytes beyond the index are the torn write of an interrupted round."""
        if (at := foreign_at(read_exactly(fd, len(data), offset), data, offset)) is not None:
            what = "contains bytes that are in neither index nor journal"
            raise DamageError(self._name(path), at, what, REPAIR)

    def _name(self, path: Path) -> str:
        """Return the name of a file as errors show it."""
        return HUB_LOG_ENTRIES if path == self._layout.hub_log_entries else path.name


def _add(appends: dict[Path, _Appends], path: Path, offset: int, data: bytes) -> None:
    appends.setdefault(path, _Appends(offset)).parts.append(data)


# --- step 3


def write_index(txn: Transaction, changes: Iterable[Changes], finishing: bytes) -> None:
    """Write the index rows of these batches; repair calls this with changes that it derived from files."""
    entries: list[tuple[bytes, bytes]] = []
    nodes: list[tuple[bytes, bytes]] = []
    last_ts: dict[int, int] = {}
    changes = list(changes)
    for change in changes:
        for step in change.steps:
            match step:
                case Placed():
                    seq = step.entry.stream_seq
                    entries.append((LABEL_SEQ.pack(step.number, seq), step.location.pack()))
                    nodes.extend(
                        (NODE.pack(step.number, node.height, node.index), node.hash)
                        for node in step.nodes[1:]
                    )
                    if last_ts.get(step.number) != step.hub_ts:
                        last_ts[step.number] = step.hub_ts
                        tables.TIMES.put_if_absent(txn, (step.number, step.hub_ts), seq)
                        tables.ALL_TIMES.put_if_absent(txn, (step.hub_ts, step.number), seq)
                case Sealed():
                    index_sealed(txn, step)
                case Checkpointed():
                    _index_checkpoint(txn, step)
                case Anchored():
                    tables.ANCHORS.put(txn, (step.number, step.anchor.upto_seq), step.anchor.anchor_ref)
                case Pruned():
                    retention.index_pruned(txn, step)
                case HubExtended():
                    index_extension(txn, step)
        _index_cursors(txn, change)
    index_moved(txn, changes)
    txn.put_many(tables.ENTRIES.name, entries)
    txn.put_many(tables.NODES.name, nodes)
    tables.META.put(txn, tables.UNFINISHED, finishing)


def index_sealed(txn: Transaction, step: Sealed, *, pruned: bool = False) -> None:
    """Write the rows of a sealed chunk: its record and its leaf in the manifest."""
    summary = step.summary
    start, end = summary.start_seq, summary.end_seq
    tables.CHUNKS.put(txn, (step.number, start), ChunkRecord(end, step.epoch, pruned))
    segment = Segment(
        summary.entry_count,
        summary.total_bytes,
        step.last_ts,
        pruned,
        summary.mmr_root_end,
        summary.entry_hashes_root,
    )
    tables.MANIFEST.put(txn, (step.number, step.epoch, start, end), segment)


def _index_checkpoint(txn: Transaction, step: Checkpointed) -> None:
    upto = step.checkpoint.upto_seq
    tables.CHECKPOINTS.put(txn, (step.number, upto), step.checkpoint)
    tables.EPOCHS.put(txn, (step.checkpoint.epoch, step.number, upto), b"")


def _index_cursors(txn: Transaction, change: Changes) -> None:
    for label, number in change.new_labels.items():
        tables.LABELS.put(txn, label, number)
        tables.write_number(txn, tables.NEXT_LABEL, number + 1)
    for cursor in change.heads.values():
        tables.HEADS.put(txn, cursor.number, cursor.pack())
    for client, client_cursor in change.clients.items():
        tables.CLIENTS.put(txn, client, client_cursor)
    for ref, record in change.caps.items():
        tables.CAPS.put(txn, ref, record)
    for key, bucket in change.buckets.items():
        tables.BUCKETS.put(txn, key, bucket)
    for number in change.controls:
        tables.mark_control_label(txn, number)
    tables.write_number(txn, tables.APPLIED, change.batch)
    tables.write_number(txn, tables.HUB_TS, change.hub_ts)
    tables.write_number(txn, tables.BINDING_BYTES, change.binding_bytes)
    if change.hub_log is not None:
        tables.META.put(txn, tables.HUB_LOG, change.hub_log.pack())


# --- step 4, as the transaction of step 3 records it

NOTHING_TO_FINISH = cbor.encode([])


def encode_finishing(changes: Iterable[Changes]) -> bytes:
    rows: list[list[object]] = []
    for step in (step for change in changes for step in change.steps):
        if isinstance(step, Sealed):
            rows.append(["seal", bytes(step.summary.label), step.summary.start_seq, step.summary.end_seq])
        elif isinstance(step, Pruned):
            rows.append(["prune", bytes(step.decision.label), step.decision.start_seq, step.decision.end_seq])
    return cbor.encode(rows)


def decode_finishing(data: bytes) -> list[tuple[str, Label, StreamSeq, StreamSeq]]:
    rows = cbor.decode_items(data)
    return [(kind, Label(label), StreamSeq(start), StreamSeq(end)) for kind, label, start, end in rows]
