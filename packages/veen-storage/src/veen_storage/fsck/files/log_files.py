"""The files in ``log/``, sorted by label and by what their names say (core §4.8.3)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from veen_core.chunk import ChunkName, chunk_name, parse_chunk_name, pruned_name
from veen_core.ids import Label, StreamSeq
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.disk.layout import Layout
from veen_storage.errors import RESTORE, DamageError, unreadable
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
    replaced: list[str] = field(default_factory=list)
    """Chunks that begin at the same entry as a longer chunk of the label."""

    def of(self, label: Label) -> LabelFiles:
        return self.labels.get(label) or LabelFiles()


def list_log(layout: Layout, report: Report) -> LogFiles:
    """Sort the names in ``log/``; report those that do not belong there."""
    found = LogFiles()
    unknown = [name for name in sorted(os.listdir(layout.log)) if not _sort_name(found, name)]
    for name in (*unknown, *found.replaced):
        if name.endswith(".tmp"):
            report.note_leftover(f"log/{name}", "write")
        else:
            report.fault(name, "is not a log file", MOVE_AWAY)
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
        kept, name_of = (files.logs, chunk_name) if chunk.kind == "log" else (files.pruned, pruned_name)
        if (shorter := kept.get(chunk.start)) is not None:
            if (chunk.start, shorter) in files.summaries:  # names are sorted: its summary came before
                return False
            found.replaced.append(name_of(chunk.label, chunk.start, shorter))
        kept[chunk.start] = chunk.end
    return True


# --- chunk files


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """One chunk file of a label. ``end`` is None while the chunk grows."""

    label: Label
    start: StreamSeq
    end: StreamSeq | None
    path: Path
    pruned: bool = False
    compressed: bool = False

    def fault(self, exc: DamageError | OSError, remedy: str = RESTORE) -> Fault:
        """Return the fault for damage in this chunk."""
        damage = unreadable(self.path.name, exc) if isinstance(exc, OSError) else exc
        file, offset = self.path.name, damage.offset
        return Fault(file=file, offset=offset, label=self.label, what=damage.what, remedy=remedy)


def chunks_of(layout: Layout, label: Label, files: LabelFiles, *, zstd: bool) -> list[ChunkRef]:
    """Return a label's chunk files in order.

    A crash can leave the same chunk under two names: sealed is preferred to growing, growing to pruned.
    """
    found: dict[StreamSeq, ChunkRef] = {}
    for start, end in files.pruned.items():
        found[start] = ChunkRef(label, start, end, layout.pruned(label, start, end), pruned=True)
    for start in files.growing:
        found[start] = ChunkRef(label, start, None, layout.chunk(label, start, None))
    for start, end in files.logs.items():
        found[start] = ChunkRef(label, start, end, layout.chunk(label, start, end), compressed=zstd)
    return [found[start] for start in sorted(found)]


def walk_frames(chunk: ChunkRef, stop: StreamSeq) -> tuple[list[tuple[int, int]], Fault | None]:
    """Return offset and size of each frame before entry ``stop``, and the damage that ends the walk."""
    frames: list[tuple[int, int]] = []
    if chunk.pruned or chunk.start >= stop:
        return frames, None
    try:
        with ChunkFile(chunk.path, compressed=chunk.compressed) as file:
            for offset, frame in file.walk():
                frames.append((offset, len(frame)))
                if len(frames) >= stop - chunk.start:
                    break
    except (DamageError, OSError) as exc:
        return frames, chunk.fault(exc)
    return frames, None
