"""Verification of one segment, in one task.

veen_core's ``LogVerifier`` checks every entry and checkpoint, starting from the peaks before the segment.
This module feeds it the entries, compares the chunk with its summary, and records what the driver needs to
join the segments of a label (``report``). Verification of a segment ends at its first fault.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from veen_core.chunk import ChunkSummary, parse_chunk_name, summary_name
from veen_core.entry import FLAG_AUTHORIZE, FRAME_SIZE, Entry
from veen_core.errors import InvariantError, VeenError, VerificationError
from veen_core.ids import EntryHash, Label, MmrRoot, StreamSeq
from veen_core.log_rules import LogStep, LogTerms
from veen_core.log_verifier import LogVerifier
from veen_core.mmr import Mmr
from veen_spark.read.segment import (
    ControlEntry,
    Damage,
    PrunedLogEntry,
    SingleItem,
    SparkSegment,
    single_items,
)
from veen_spark.read.walk import walk
from veen_spark.verify.artifacts import Artifact
from veen_spark.verify.origin import Peaks, PrunedRanges
from veen_spark.verify.subtrees import Tile, Tiles

MAX_REPORTED_WRITERS: Final = 4_096
"""Largest number of writers that a task reports to the driver, which compares them across segments."""
MAX_REPORTED_TOKENS: Final = 65_536
"""Largest number of tokens that a task reports to the driver: the most entries of a chunk (core §4.8.2)."""
_UNBOUNDED: Final = 2**62
"""``LogVerifier`` follows all writers and tokens of a segment: a segment has few enough of them."""
_SUMMARY: Final = "core §4.8.3"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFault:
    """The first check that failed, with the entry, file and byte it concerns."""

    seq: int
    file: str
    offset: int
    reason: str


@dataclass(slots=True, kw_only=True)
class SegmentVerdict:
    """The result of one segment: O(log n) hashes, at most 4,096 writers and 65,536 tokens."""

    segment: SparkSegment
    entries: int = 0
    pruned_ranges: PrunedRanges = field(default_factory=list)
    first_ts: int = 0
    last_ts: int = 0
    peaks: Peaks | None = None
    """The peaks after the last entry; None after a fault, or if the peaks before the segment are unknown."""
    root: bytes | None = None
    """The root that the hub signed with the last valid entry."""
    writers: dict[bytes, tuple[int, int]] | None = field(default_factory=dict)
    """First and last client_seq of each writer; None if there are more than ``MAX_REPORTED_WRITERS``."""
    tokens: dict[bytes, tuple[int, int]] | None = field(default_factory=dict)
    """stream_seq and offset at which each token is authorized; None beyond ``MAX_REPORTED_TOKENS``."""
    hashes: list[Tile] | None = None
    """Subtrees over the entry hashes, if the chunk has a summary."""
    size: int = 0
    """Total size of the frames, if the chunk has a summary."""
    fault: LabelFault | None = None

    @property
    def last_seq(self) -> int:
        """The last valid entry."""
        return self.segment.start_seq + self.entries - 1

    @property
    def pruned(self) -> int:
        """The number of pruned entries."""
        return sum(end - start + 1 for start, end in self.pruned_ranges)


class SegmentVerifier:
    """Verifies the entries and artifacts of one segment."""

    def __init__(
        self, segment: SparkSegment, terms: LogTerms, peaks: Peaks | None, artifacts: Sequence[Artifact] = ()
    ) -> None:
        self._segment = segment
        self._position = (segment.path, segment.begin)
        """File and byte of the object that is being checked."""
        self._artifacts = deque(artifacts)
        self._log = LogVerifier(
            terms,
            size=segment.start_seq - 1,
            peaks=peaks,
            max_writers=_UNBOUNDED,
            max_tokens=_UNBOUNDED,
        )
        self._summary = summary_of(segment)
        self._hashes = None if self._summary is None else Tiles(segment.start_seq - _chunk_start(segment))
        self._writers: dict[bytes, tuple[int, int]] = {}
        self._tokens: dict[bytes, tuple[int, int]] = {}
        self.verdict = SegmentVerdict(segment=segment)

    def run(self) -> SegmentVerdict:
        """Verify the segment up to its first fault."""
        verdict = self.verdict
        try:
            self._check_artifacts()
            for item in walk(self._segment):
                for entry in single_items(item):
                    self._position = (self._segment.path, entry.offset)
                    self._check_entry(entry)
                    self._check_artifacts()
            self._check_end()
        except (VeenError, OSError) as exc:
            file, offset = self._position
            reason = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
            verdict.fault = LabelFault(seq=self._log.size + 1, file=file, offset=offset, reason=reason)
        if self._log.tree is not None and verdict.fault is None:
            verdict.peaks = self._log.tree.peaks
        verdict.writers = self._writers if len(self._writers) <= MAX_REPORTED_WRITERS else None
        verdict.tokens = self._tokens if len(self._tokens) <= MAX_REPORTED_TOKENS else None
        return verdict

    def _check_entry(self, item: SingleItem) -> None:
        if isinstance(item, Damage):
            raise VerificationError(item.reason)
        if isinstance(item, PrunedLogEntry):
            step = self._log.accept_pruned(item.entry)
            self._add_entry_hash(item.entry.entry_hash, item.size)
            self._add_pruned(item.seq)
        else:
            wire, flags = (item.token, FLAG_AUTHORIZE) if isinstance(item, ControlEntry) else (item.msg, 0)
            entry = Entry(self._segment.label, StreamSeq(item.seq), wire, item.receipt, flags)
            step = self._log.accept(entry)
            if self._hashes is not None:
                self._add_entry_hash(entry.entry_hash, FRAME_SIZE + len(wire) + len(item.receipt))
        self._record(step, item.offset)

    def _record(self, step: LogStep, offset: int) -> None:
        """Add a valid entry to the verdict: its time, its root, and its writer or token."""
        verdict = self.verdict
        if not verdict.entries:
            verdict.first_ts = step.hub_ts
        verdict.entries += 1
        verdict.last_ts = step.hub_ts
        verdict.root = bytes(step.mmr_root)
        if step.client_id is not None:
            first, _ = self._writers.get(step.client_id, (step.client_seq, 0))
            self._writers[bytes(step.client_id)] = (first, step.client_seq)
        elif step.authorizes is not None:
            self._tokens[bytes(step.authorizes)] = (step.stream_seq, offset)

    def _add_pruned(self, seq: int) -> None:
        ranges = self.verdict.pruned_ranges
        start = ranges.pop()[0] if ranges and ranges[-1][1] == seq - 1 else seq
        ranges.append((start, seq))

    def _add_entry_hash(self, digest: EntryHash, size: int) -> None:
        if self._hashes is not None:
            self._hashes.add(digest)
            self.verdict.size += size

    def _check_artifacts(self) -> None:
        """Check the artifacts that belong to the last entry."""
        while self._artifacts and self._artifacts[0].seq <= self._log.size and self._log.tree is not None:
            artifact = self._artifacts.popleft()
            position, self._position = self._position, (artifact.file, artifact.offset)
            artifact.check(self._log, _chunk_start(self._segment) if self.verdict.entries else None)
            self._position = position

    def _check_end(self) -> None:
        """Check that the segment ends where its name says, and that its chunk matches the summary."""
        segment, last = self._segment, self._log.size
        if segment.end_seq is not None and last != segment.end_seq:
            raise InvariantError(_SUMMARY, f"the log ends at entry {last}, expected entry {segment.end_seq}")
        if self._artifacts and self._log.tree is not None:
            artifact = self._artifacts[0]
            self._position = (artifact.file, artifact.offset)
            raise InvariantError(
                _SUMMARY, f"the file belongs to entry {artifact.seq}, but the log ends at entry {last}"
            )
        if self._hashes is None:
            return
        self.verdict.hashes = self._hashes.tiles
        if segment.whole and self._summary is not None and self._log.tree is not None:
            self._position = (str(self._summary), 0)
            check_summary(self._summary, segment.label, self._log.tree.root, [self.verdict])


def check_summary(path: Path, label: Label, root: bytes, parts: Sequence[SegmentVerdict]) -> None:
    """Raise unless the summary matches the chunk that consists of these parts (core §4.8.3)."""
    tree = Mmr()
    for height, node in (tile for part in parts for tile in part.hashes or ()):
        tree.append_subtree(height, node)
    summary, sizes = ChunkSummary.decode(path.read_bytes()), {sum(part.size for part in parts)}
    if parts[0].segment.form == "pruned":
        sizes.add(os.path.getsize(parts[0].segment.path))  # exports state the size of the pruned file
    expected = ChunkSummary(
        label=label,
        start_seq=StreamSeq(parts[0].segment.start_seq),
        end_seq=StreamSeq(parts[-1].last_seq),
        mmr_root_end=MmrRoot(root),
        entry_count=tree.size,
        total_bytes=summary.total_bytes,
        entry_hashes_root=tree.root,
    )
    if summary != expected or summary.total_bytes not in sizes:
        raise InvariantError(_SUMMARY, f"{path.name} does not match its chunk")


def _chunk_start(segment: SparkSegment) -> int:
    """Return the first entry of the segment's chunk, from the file name."""
    name = parse_chunk_name(Path(segment.path).name)
    return segment.start_seq if name is None else name.start


def summary_of(segment: SparkSegment) -> Path | None:
    """Return the summary file of the segment's chunk, or None if there is none (core §4.8.3)."""
    name = parse_chunk_name(Path(segment.path).name)
    if segment.form == "set" or name is None or name.end is None:
        return None
    path = Path(segment.path).with_name(summary_name(name.label, name.start, name.end))
    return path if os.path.lexists(path) else None
