"""Retention: rules remove payloads; receipts and leaf hashes stay (COMP0.1, core §3.4.1).

Retention prunes whole sealed chunks, never a part of one, and never the growing chunk or the control label.
A pruned chunk leaves a file (``pruned_chunk``) with the time of pruning, the sizes of its entries, and of
each entry its receipt, its hash and the MSG fields that leaf hashes are made from. Every proof across the
chunk still verifies, and the index can be rebuilt.

A decision to prune is journaled, so that a pruning that a crash interrupts is repeated. Before a chunk is
pruned, its entry hashes are compared with the manifest, because its payloads cannot be checked afterwards:
once before the decision (``prunable``), and once when it is applied. A chunk that is damaged by then is left
as it is, and everything else continues. Once the chunk is restored, the rules prune it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from veen_core.chunk import PrunedEntry, PrunedHead, prune
from veen_core.entry import unframe
from veen_core.errors import DecodeError
from veen_core.ids import Epoch, Label, MmrRoot, StreamSeq, UnixTime
from veen_core.mmr import Mmr
from veen_storage.chunks.chunk_files import open_chunk
from veen_storage.chunks.pruned_chunk import encode_pruned, read_pruned_chunk
from veen_storage.commit.changes import Prune, Pruned
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, unreadable
from veen_storage.index.lmdb_index import Index, Transaction, View
from veen_storage.index.records import ChunkRecord, LabelNo, Segment, Tombstone
from veen_storage.index.tables import CHUNKS, LABELS, MANIFEST, TOMBSTONES, is_control_label, read_cursor

LOGGER: Final = logging.getLogger("veen_storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRule:
    """Bounds on the payloads that a label keeps, by age and by size; None means no bound."""

    max_age_sec: int | None = None
    max_bytes: int | None = None


LONG_TERM = PruneRule()
"""The rule that keeps everything (retention_hint = long_term)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePolicy:
    """One rule per label, and one for all other labels."""

    default: PruneRule = LONG_TERM
    labels: Mapping[Label, PruneRule] = field(default_factory=dict)

    def rule(self, label: Label) -> PruneRule:
        return self.labels.get(label, self.default)


@dataclass(frozen=True, slots=True)
class SealedChunk:
    """A sealed chunk that is not pruned, as the manifest records it."""

    start: StreamSeq
    end: StreamSeq
    total_bytes: int
    last_ts: UnixTime


def due(index: Index, label: Label, rule: PruneRule, now: UnixTime) -> list[Prune]:
    """Return the chunks that a rule prunes now, oldest first; a label that holds tokens has none."""
    with index.reading() as view:
        number = LABELS.get(view, label)
        if number is None or is_control_label(view, number):
            return []
        live = list(_live_chunks(view, number))
    decisions: list[Prune] = []
    kept_bytes = sum(chunk.total_bytes for chunk in live)
    for chunk in live:
        too_old = rule.max_age_sec is not None and chunk.last_ts + rule.max_age_sec < now
        too_much = rule.max_bytes is not None and kept_bytes > rule.max_bytes
        if not too_old and not too_much:
            break  # every later chunk is younger, and fewer bytes are left
        kept_bytes -= chunk.total_bytes
        decisions.append(Prune(label=label, start_seq=chunk.start, end_seq=chunk.end, pruned_at=now))
    return decisions


def is_held_back(index: Index, label: Label, rule: PruneRule, now: UnixTime) -> bool:
    """Return whether even the newest payload is too old, but stays because its chunk has not ended."""
    if rule.max_age_sec is None:
        return False
    with index.reading() as view:
        cursor = read_cursor(view, label)
    return cursor is not None and cursor.hub_ts + rule.max_age_sec < now


def _live_chunks(view: View, number: LabelNo) -> Iterator[SealedChunk]:
    for (_number, _epoch, start, end), segment in MANIFEST.scan_label(view, number):
        if not segment.pruned:
            yield SealedChunk(start, end, segment.total_bytes, segment.last_ts)


# --- pruning


@dataclass(frozen=True, slots=True)
class Pruner:
    """Checks the chunks that are to be pruned, and writes their ``.pruned`` files.

    ``notice`` receives a line about each chunk that is left alone because it does not match the manifest.
    """

    layout: Layout
    index: Index
    zstd: bool
    notice: Callable[[str], None]

    def due(self, labels: Iterable[Label], policy: PrunePolicy, now: UnixTime) -> list[Prune]:
        """Return the chunks of these labels that the rules prune now and that can be pruned."""
        decisions, held_back = list[Prune](), 0
        for label in labels:
            if (rule := policy.rule(label)) == LONG_TERM:
                continue
            decisions += (each for each in due(self.index, label, rule, now) if self.prunable(each))
            held_back += is_held_back(self.index, label, rule, now)
        if held_back:
            LOGGER.warning(
                "retention_waits: %d labels keep payloads that are too old, because their chunk has not "
                "ended (max_checkpoint_interval, max_chunk_bytes)",
                held_back,
            )
        return decisions

    def prunable(self, decision: Prune) -> bool:
        """Return whether the chunk can be pruned, after reading all of it; log why not."""
        return self._pruned_form(decision) is not None

    def write(self, files: Files, decision: Prune) -> bool:
        """Write the ``.pruned`` file; return False if the chunk must not be pruned.

        The applier removes the chunk after its index transaction. An existing ``.pruned`` file is replaced:
        an interrupted round may have left it.
        """
        if self._is_pruned(decision) or self._is_removed(decision):
            return True  # decided twice, or applied before the index was rebuilt
        if (content := self._pruned_form(decision)) is None:
            return False
        files.replace(self._path(decision), content, sync_directory=False)
        return True

    def write_again(self, files: Files, label: Label, start: StreamSeq, end: StreamSeq) -> None:
        """Write the ``.pruned`` file again, before opening removes a chunk that a crash has kept."""
        if not self.layout.chunk(label, start, end).exists():
            return
        with self.index.reading() as view:
            pruned_at = TOMBSTONES.require(view, (LABELS.require(view, label), start)).pruned_at
        decision = Prune(label=label, start_seq=start, end_seq=end, pruned_at=pruned_at)
        try:
            content = self._checked_form(decision)
        except (DamageError, OSError):
            read_pruned_chunk(self._path(decision))  # raises if it is damaged as well
            return
        path = self._path(decision)
        if not path.exists() or path.read_bytes() != content:
            files.replace(path, content)

    def _path(self, decision: Prune) -> Path:
        return self.layout.pruned(decision.label, decision.start_seq, decision.end_seq)

    def _is_pruned(self, decision: Prune) -> bool:
        with self.index.reading() as view:
            number = LABELS.get(view, decision.label)
            record = CHUNKS.get(view, (number, decision.start_seq)) if number is not None else None
        return record is not None and record.pruned

    def _is_removed(self, decision: Prune) -> bool:
        """Return whether the chunk is removed and its ``.pruned`` file is complete."""
        label, start, end = decision.label, decision.start_seq, decision.end_seq
        if any(self.layout.chunk(label, start, name).exists() for name in (end, None)):
            return False
        try:
            kept = read_pruned_chunk(self._path(decision)).kept
        except (DamageError, OSError):
            return False
        hashes = Mmr()
        for _place, entry in kept:
            hashes.add(entry.entry_hash)
        return hashes.root == self._segment(decision).entry_hashes_root

    def _segment(self, decision: Prune) -> Segment:
        with self.index.reading() as view:
            return _segment(view, LABELS.require(view, decision.label), decision.start_seq)[1]

    def _pruned_form(self, decision: Prune) -> bytes | None:
        """Return the content of the ``.pruned`` file; None if the chunk does not match the manifest."""
        name = self.layout.chunk(decision.label, decision.start_seq, decision.end_seq).name
        try:
            return self._checked_form(decision)
        except DamageError as exc:
            damage = exc
        except OSError as exc:
            if self._is_pruned(decision):
                return None  # the applier has pruned it meanwhile
            damage = unreadable(name, exc)
        where = f"{name}{f' at byte {damage.offset}' if damage.offset is not None else ''}"
        self.notice(
            f"{where}: {damage.what}: retention does not prune it; "
            "run `veen hub fsck`, and restore the file from a clone"
        )
        return None

    def _checked_form(self, decision: Prune) -> bytes:
        form = pruned_form(self.layout, decision, zstd=self.zstd)
        if form.entry_hashes_root != self._segment(decision).entry_hashes_root:
            name = self.layout.chunk(decision.label, decision.start_seq, decision.end_seq).name
            raise DamageError(name, None, "is not the chunk that the manifest records")
        return form.content


class PrunedForm(NamedTuple):
    """The content of a ``.pruned`` file, and the root over the hashes of its entries."""

    content: bytes
    entry_hashes_root: MmrRoot


def pruned_form(layout: Layout, decision: Prune, *, zstd: bool) -> PrunedForm:
    """Read a chunk and return its pruned form; ``DamageError`` if it cannot be read to its end."""
    label, start, end = decision.label, decision.start_seq, decision.end_seq
    sizes: list[int] = []
    kept: list[PrunedEntry] = []
    hashes = Mmr()
    with open_chunk(layout, label, start, end, zstd=zstd) as chunk:
        for offset, frame in chunk.walk():
            try:
                entry = prune(unframe(frame))
            except DecodeError as exc:
                raise DamageError(chunk.name, offset, str(exc)) from exc
            sizes.append(len(frame))
            kept.append(entry)
            hashes.add(entry.entry_hash)
    head = PrunedHead(
        label=label, start_seq=start, end_seq=end, pruned_at=decision.pruned_at, sizes=tuple(sizes)
    )
    return PrunedForm(encode_pruned(head, kept), hashes.root)


def _segment(
    view: View, number: LabelNo, start: StreamSeq
) -> tuple[tuple[LabelNo, Epoch, StreamSeq, StreamSeq], Segment]:
    """Return key and row of the chunk in the manifest."""
    record = CHUNKS.require(view, (number, start))
    key = (number, record.epoch, start, record.end)
    return key, MANIFEST.require(view, key)


def newest_pruned(index: Index, steps: Iterable[Pruned]) -> UnixTime | None:
    """Return the time of the newest entry in chunks that were pruned; None if there are none."""
    with index.reading() as view:
        times = [_segment(view, step.number, step.decision.start_seq)[1].last_ts for step in steps]
    return max(times, default=None)


def index_pruned(txn: Transaction, step: Pruned) -> None:
    """Write the tombstone of a chunk, and mark its rows as pruned."""
    decision = step.decision
    key = (step.number, decision.start_seq)
    record = CHUNKS.require(txn, key)
    if record.pruned:
        return  # decided twice before it was applied once: the first decision counts
    CHUNKS.put(txn, key, ChunkRecord(record.end, record.epoch, True))
    manifest_key, segment = _segment(txn, step.number, decision.start_seq)
    MANIFEST.put(txn, manifest_key, dataclasses.replace(segment, pruned=True))
    TOMBSTONES.put(txn, key, Tombstone(decision.end_seq, decision.pruned_at))
