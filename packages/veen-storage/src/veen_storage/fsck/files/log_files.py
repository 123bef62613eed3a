"""The files in ``log/``, sorted by label and by what their names say (core §4.8.3)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from veen_core.chunk import ChunkName, chunk_name, parse_chunk_name, pruned_name
from veen_core.ids import Label, StreamSeq
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, unreadable
from veen_storage.fsck.report import MOVE_AWAY, Fault, Report

_ARTIFACT: Final = re.compile(
    r"(?P<kind>peaks|checkpoint|anchor)-(?P<label>[0-9a-f]{64})-(?P<upto>[0-9]{20})\.cbor"
    r"|checkpoint-index-(?P<of>[0-9a-f]{64})\.cbor"
)
MAX_SEQ: Final = StreamSeq(2**64 - 1)
"""The highest possible stream_seq (core §4.8.1)."""


@dataclass(slots=True)
class LabelFiles:
    """The files of one label."""

    logs: dict[StreamSeq, StreamSeq] = field(default_factory=dict)
    """Sealed chunks: first entry to last entry."""
    pruned: dict[StreamSeq, StreamSeq] = field(default_factory=dict)
    summaries: set[tuple[StreamSeq, StreamSeq]] = field(default_factory=set)
    growing: set[StreamSeq] = field(default_factory=set)
    peaks: set[StreamSeq] = field(default_factory=set)
    checkpoints: set[StreamSeq] = field(default_factory=set)
    anchors: set[StreamSeq] = field(default_factory=set)
    has_index: bool = False

    def artifacts(self, layout: Layout, label: Label) -> list[Path]:
        """Return the paths of all files but the chunks and the checkpoint index."""
        paths = [layout.summary(label, start, end) for start, end in self.summaries]
        paths += [layout.peaks(label, upto) for upto in self.peaks]
        paths += [layout.checkpoint(label, upto) for upto in self.checkpoints]
        paths += [layout.anchor(label, upto) for upto in self.anchors]
        return sorted(paths)


@dataclass(slots=True)
class LogFiles:
    """Everything in ``log/``."""

    labels: dict[Label, LabelFiles] = field(default_factory=dict)
    duplicates: list[ChunkName] = field(default_factory=list)
    """Chunks that begin at the same entry as another chunk of the label."""

    def of(self, label: Label) -> LabelFiles:
        return self.labels.get(label) or LabelFiles()


def list_log(layout: Layout, report: Report) -> LogFiles:
    """Sort the names in ``log/``; report those that do not belong there."""
    found = LogFiles()
    unknown = [name for name in sorted(os.listdir(layout.log)) if not _sort_name(found, name)]
    for name in (*unknown, *_drop_duplicates(found)):
        if name.endswith(".tmp"):
            report.notes.append(f"log/{name} is left over from an interrupted write and may be removed")
        else:
            report.faults.append(Fault(file=name, what="is not a log file", remedy=MOVE_AWAY))
    return found


def _sort_name(found: LogFiles, name: str) -> bool:
    """Add a file to those of its label; return False if it is not a log file's name."""
    chunk = parse_chunk_name(name) if name.isascii() else None
    if chunk is not None:
        return max(chunk.start, chunk.end or 0) <= MAX_SEQ and _sort_chunk(found, chunk)
    match = _ARTIFACT.fullmatch(name)
    if match is None or int(match["upto"] or 0) > MAX_SEQ:
        return False
    files = found.labels.setdefault(Label.from_hex(match["label"] or match["of"]), LabelFiles())
    if match["of"] is not None:
        files.has_index = True
    else:
        names = {"peaks": files.peaks, "checkpoint": files.checkpoints, "anchor": files.anchors}
        names[match["kind"]].add(StreamSeq(int(match["upto"])))
    return True


def _sort_chunk(found: LogFiles, chunk: ChunkName) -> bool:
    files = found.labels.setdefault(chunk.label, LabelFiles())
    if chunk.end is None:
        files.growing.add(chunk.start)
    elif chunk.kind == "summary":
        files.summaries.add((chunk.start, chunk.end))
    else:
        kept = files.logs if chunk.kind == "log" else files.pruned
        if (other := kept.get(chunk.start)) is not None:
            found.duplicates.append(replace(chunk, end=other))
        kept[chunk.start] = chunk.end
    return True


def _drop_duplicates(found: LogFiles) -> Iterator[str]:
    """Keep one chunk for each first entry: the one with a summary, else the longest; yield the others."""
    for chunk in found.duplicates:
        files = found.labels[chunk.label]
        kept = files.logs if chunk.kind == "log" else files.pruned
        ends = sorted(end for end in (chunk.end, kept[chunk.start]) if end is not None)
        right = next((end for end in ends if (chunk.start, end) in files.summaries), ends[-1])
        kept[chunk.start] = right
        name = chunk_name if chunk.kind == "log" else pruned_name
        yield from (name(chunk.label, chunk.start, end) for end in ends if end != right)


# --- chunk files


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """One chunk file of a label. ``end`` is None while the chunk grows."""

    start: StreamSeq
    end: StreamSeq | None
    path: Path
    pruned: bool = False
    compressed: bool = False


def chunks_of(layout: Layout, label: Label, files: LabelFiles, *, zstd: bool) -> list[ChunkRef]:
    """Return a label's chunk files in order.

    A crash can leave the same chunk under two names: sealed is preferred to growing, growing to pruned.
    """
    found: dict[StreamSeq, ChunkRef] = {}
    for start, end in files.pruned.items():
        found[start] = ChunkRef(start, end, layout.pruned(label, start, end), pruned=True)
    for start in files.growing:
        found[start] = ChunkRef(start, None, layout.chunk(label, start, None))
    for start, end in files.logs.items():
        found[start] = ChunkRef(start, end, layout.chunk(label, start, end), compressed=zstd)
    return [found[start] for start in sorted(found)]


class FrameWalk:
    """Iterator over offset and size of each frame of a chunk, up to entry ``stop`` or to damage."""

    def __init__(self, chunk: ChunkRef, stop: StreamSeq = MAX_SEQ) -> None:
        self._chunk = chunk
        self._max_frames = stop - chunk.start
        self.damage: DamageError | None = None
        self.count = 0
        self.size = 0
        """Offset at which the last intact frame ends."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        path = self._chunk.path
        if self._max_frames <= 0:
            return
        try:
            with ChunkFile(path, compressed=self._chunk.compressed) as chunk:
                for offset, frame in chunk.walk():
                    self.count, self.size = self.count + 1, offset + len(frame)
                    yield offset, len(frame)
                    if self.count >= self._max_frames:
                        return
        except DamageError as exc:
            self.damage = exc
        except OSError as exc:
            self.damage = unreadable(path.name, exc)


def count_frames(chunk: ChunkRef, stop: StreamSeq = MAX_SEQ) -> int:
    """Return how many intact frames a chunk holds before entry ``stop``."""
    walk = FrameWalk(chunk, stop)
    for _ in walk:
        pass
    return walk.count
