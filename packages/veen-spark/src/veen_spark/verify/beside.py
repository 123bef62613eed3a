"""What lies beside the entries and speaks of them: checkpoints, peaks and summaries (§4.4, §4.8.3).

Each is a mark at an entry, judged when the tree has grown to it. A mark that no part of the log reaches is
how the loss of a label's beginning or end shows: the entries left would hold by themselves.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from veen_core import checkpoint, hub_identity
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import decode_peaks, parse_chunk_name
from veen_core.errors import CheckpointError, InvariantError
from veen_core.export import CHECKPOINTS, Manifest, sequence_name
from veen_core.ids import Label
from veen_core.mmr import Mmr
from veen_spark.segment import Segment
from veen_spark.set_walk import sequence
from veen_spark.verify.evidence import Terms

_NAME: Final = re.compile(r"(checkpoint|peaks)-([0-9a-f]{64})-(\d{20})\.cbor")
Kind = Literal["checkpoint", "peaks", "summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something beside the log that is of one entry; a summary, of its chunk's last."""

    seq: int
    kind: Kind
    file: str
    offset: int = 0
    content: bytes | None = None
    """Of an item in a sequence; else the file's content, read by whoever judges it."""

    def judge(self, tree: Mmr, label: Label, terms: Terms) -> None:
        """Raise unless it is of this tree; a summary is judged with its chunk."""
        if self.kind == "summary":
            return
        content = Path(self.file).read_bytes() if self.content is None else self.content
        if self.kind == "peaks":
            if decode_peaks(content) != tree.peaks:
                raise InvariantError(
                    "§4.8.3", f"the peaks before entry {self.seq + 1} are not those of the log"
                )
            return
        made = Checkpoint.decode(content)
        if (made.label_curr, made.upto_seq) != (label, self.seq):
            raise CheckpointError("CHECKPOINT §4.4: is of another label or upto_seq than its place says")
        checkpoint.check_transition(made, tree)
        hub_identity.verify_checkpoint(terms.identity, made, terms.epoch_sec)


def marks_of(folder: Path, manifest: Manifest | None) -> dict[Label, list[Mark]]:
    """Every mark in a folder, by label, in order of entries; raises ``VeenError`` for a broken sequence."""
    found: dict[Label, list[Mark]] = {}
    for name in sorted(os.listdir(folder)):
        file = str(folder / name)
        if (match := _NAME.fullmatch(name)) is not None:
            mark = Mark(seq=int(match[3]), kind=match[1], file=file)  # type: ignore[arg-type]  # by the pattern
            found.setdefault(Label.from_hex(match[2]), []).append(mark)
        elif (parsed := parse_chunk_name(name)) is not None and parsed.kind == "summary":
            assert parsed.end is not None
            found.setdefault(parsed.label, []).append(Mark(seq=parsed.end, kind="summary", file=file))
    path = folder / sequence_name(CHECKPOINTS)
    if manifest is not None and manifest.form == "set" and path.is_file():
        for offset, item in sequence(str(path), 0, None):
            seq = Checkpoint.decode(item).upto_seq
            mark = Mark(seq=seq, kind="checkpoint", file=str(path), offset=offset, content=item)
            found.setdefault(manifest.label, []).append(mark)
    return {label: sorted(marks, key=lambda mark: mark.seq) for label, marks in found.items()}


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
