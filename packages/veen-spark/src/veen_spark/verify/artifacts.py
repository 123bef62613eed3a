"""What lies beside the entries and speaks of them: checkpoints, their index, peaks, summaries (§4.4, §4.8.3).

Each is a mark at an entry, judged when the tree has grown to it. A mark that no part of the log reaches is
how the loss of a label's beginning or end shows: the entries left would hold by themselves.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from veen_core import checkpoint, hub_identity
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import (
    CheckpointIndexEntry,
    checkpoint_name,
    decode_peaks,
    parse_chunk_name,
    peaks_name,
)
from veen_core.errors import CheckpointError, InvariantError, VeenError
from veen_core.export import CHECKPOINTS, Manifest, sequence_name
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.mmr import Mmr
from veen_core.stream import epoch_at
from veen_spark.read.segment import Segment
from veen_spark.read.set_walk import sequence
from veen_spark.verify.origin import Terms

_NAME: Final = re.compile(r"(checkpoint|peaks)-([0-9a-f]{64})-(\d{20})\.cbor")
_INDEX: Final = re.compile(r"checkpoint-index-([0-9a-f]{64})\.cbor")
Kind = Literal["checkpoint", "index", "peaks", "summary"]


class Reached(NamedTuple):
    """The label as it is when a mark is judged."""

    label: Label
    tree: Mmr
    hub_ts: UnixTime | None
    """Of the last entry, and where its chunk begins; None if that was not seen here."""
    chunk_start: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something beside the log that is of one entry; a summary, of its chunk's last."""

    seq: int
    kind: Kind
    file: str
    offset: int = 0
    content: bytes | None = None
    """Of an item in a sequence; else the file's content, read by whoever judges it."""

    def judge(self, at: Reached, terms: Terms) -> None:
        """Raise unless it is of the log up to here; a summary is judged with its chunk."""
        if self.kind == "summary":
            return
        content = Path(self.file).read_bytes() if self.content is None else self.content
        if self.kind == "checkpoint":
            _check_checkpoint(Checkpoint.decode(content), self.seq, at, terms)
        elif self.kind == "index":
            _check_line(CheckpointIndexEntry.decode(content), at)
            if not Path(self.file).with_name(checkpoint_name(at.label, StreamSeq(self.seq))).is_file():
                raise CheckpointError(f"§4.8.3: names a checkpoint at {self.seq}, which is missing")
        elif decode_peaks(content) != at.tree.peaks:
            raise InvariantError("§4.8.3", f"the peaks before entry {self.seq + 1} are not those of the log")


def _check_checkpoint(made: Checkpoint, seq: int, at: Reached, terms: Terms) -> None:
    if (made.label_curr, made.upto_seq) != (at.label, seq):
        raise CheckpointError("CHECKPOINT §4.4: is of another label or upto_seq than its place says")
    checkpoint.check_transition(made, at.tree)
    if terms.profile_id is not None and at.hub_ts is not None:
        expected = epoch_at(at.hub_ts, terms.epoch_sec)
        if made.epoch != expected:
            raise CheckpointError(f"CHECKPOINT.epoch §4.4: {made.epoch}, where hub_ts is of {expected} (H9)")
    hub_identity.verify_checkpoint(terms.identity, made, terms.epoch_sec)
    checkpoint.verify_witnesses(made, (), [key.hub_pk for key in terms.identity.hub_keys])


def _check_line(line: CheckpointIndexEntry, at: Reached) -> None:
    expected = CheckpointIndexEntry(
        upto_seq=StreamSeq(at.tree.size),
        mmr_root=at.tree.root,
        chunk_start=line.chunk_start if at.chunk_start is None else StreamSeq(at.chunk_start),
        chunk_end=StreamSeq(at.tree.size),
        peaks_ref=peaks_name(at.label, StreamSeq(at.tree.size)),
    )
    if line != expected:
        raise InvariantError("§4.8.3", f"the line of the checkpoint at {at.tree.size} is not of this log")


def marks_of(folder: Path, manifest: Manifest | None, *, indexed: bool) -> dict[Label, list[Mark]]:
    """Every mark in a folder, by label, in order of entries; raises ``VeenError`` for a broken sequence.

    ``indexed``: a label's index of checkpoints speaks of it, as in a data directory, where all of it lies.
    """
    found: dict[Label, list[Mark]] = {}
    for name in sorted(os.listdir(folder)):
        file = str(folder / name)
        if (match := _NAME.fullmatch(name)) is not None:
            mark = Mark(seq=int(match[3]), kind=match[1], file=file)  # type: ignore[arg-type]  # by the pattern
            found.setdefault(Label.from_hex(match[2]), []).append(mark)
        elif (parsed := parse_chunk_name(name)) is not None and parsed.kind == "summary":
            assert parsed.end is not None
            found.setdefault(parsed.label, []).append(Mark(seq=parsed.end, kind="summary", file=file))
        elif indexed and (match := _INDEX.fullmatch(name)) is not None:
            found.setdefault(Label.from_hex(match[1]), []).extend(_lines(folder / name))
    path = folder / sequence_name(CHECKPOINTS)
    if manifest is not None and manifest.form == "set" and path.is_file():
        for offset, item in sequence(str(path), 0, None):
            seq = Checkpoint.decode(item).upto_seq
            mark = Mark(seq=seq, kind="checkpoint", file=str(path), offset=offset, content=item)
            found.setdefault(manifest.label, []).append(mark)
    return {label: sorted(marks, key=lambda mark: mark.seq) for label, marks in found.items()}


def _lines(path: Path) -> Iterator[Mark]:
    """Of a checkpoint index; what is no line is a mark at the first entry, refused there."""
    at = 0
    try:
        for at, item in sequence(str(path), 0, None):
            seq = CheckpointIndexEntry.decode(item).upto_seq
            yield Mark(seq=seq, kind="index", file=str(path), offset=at, content=item)
            at += len(item)  # noqa: PLW2901 - where the next one should begin
    except VeenError:
        yield Mark(seq=1, kind="index", file=str(path), offset=at, content=path.read_bytes()[at:])


def dealt(
    parts: Sequence[Segment], marks: Iterable[Mark]
) -> tuple[dict[tuple[str, int], list[Mark]], list[Mark]]:
    """The marks by the part of a label that they are of (in order), and those that no part reaches."""
    held: dict[tuple[str, int], list[Mark]] = {}
    lost = []
    starts = [part.start_seq for part in parts]
    starts[0] -= 1  # the tree before the first entry is known, too
    for mark in marks:
        part = parts[max(0, bisect_right(starts, mark.seq) - 1)]
        if starts[0] <= mark.seq and (part.end_seq is None or mark.seq <= part.end_seq):
            held.setdefault((part.path, part.begin), []).append(mark)
        else:
            lost.append(mark)
    return held, lost
