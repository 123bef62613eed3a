"""Files that describe the entries next to them: checkpoints, their index, peaks, summaries (core §4.8.3).

Each artifact belongs to one entry and is checked when the tree has grown to that entry. An artifact of
an entry that is not in the log shows that entries are missing, although the remaining ones verify.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

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
from veen_core.ids import Label, StreamSeq
from veen_core.log_verifier import LogVerifier
from veen_core.mmr import Mmr
from veen_spark.read.segment import SparkSegment
from veen_spark.read.set_walk import sequence

_NAME: Final = re.compile(r"(checkpoint|peaks)-([0-9a-f]{64})-(\d{20})\.cbor")
_INDEX: Final = re.compile(r"checkpoint-index-([0-9a-f]{64})\.cbor")
_FILES: Final = "core §4.8.3"
Kind = Literal["checkpoint", "index", "peaks", "summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One artifact and the entry it belongs to; a summary belongs to the last entry of its chunk."""

    seq: int
    kind: Kind
    file: str
    offset: int = 0
    content: bytes | None = None
    """The encoded artifact if it is an item of a CBOR sequence; None if it is the whole file."""

    def check(self, log: LogVerifier, chunk_start: int | None) -> None:
        """Raise unless the artifact matches the log, which has grown to the artifact's entry.

        ``chunk_start`` is the first entry of that entry's chunk, if known. A summary is not checked here.
        """
        if self.kind == "summary":
            return
        content = Path(self.file).read_bytes() if self.content is None else self.content
        label, tree = log.terms.label, log.tree
        assert tree is not None, "artifacts are checked only against a known tree"
        if self.kind == "checkpoint":
            log.accept_checkpoint(Checkpoint.decode(content))
        elif self.kind == "index":
            _check_index_row(CheckpointIndexEntry.decode(content), label, tree, chunk_start)
            if not Path(self.file).with_name(checkpoint_name(label, StreamSeq(self.seq))).is_file():
                raise CheckpointError(f"core §4.8.3: the checkpoint at entry {self.seq} is missing")
        elif decode_peaks(content) != tree.peaks:
            raise InvariantError(
                _FILES, f"the peaks before entry {self.seq + 1} differ from those of the log"
            )


def _check_index_row(row: CheckpointIndexEntry, label: Label, tree: Mmr, chunk_start: int | None) -> None:
    """Raise unless a row of the checkpoint index matches the log (core §4.8.3)."""
    size = StreamSeq(tree.size)
    expected = CheckpointIndexEntry(
        upto_seq=size,
        mmr_root=tree.root,
        chunk_start=row.chunk_start if chunk_start is None else StreamSeq(chunk_start),
        chunk_end=size,
        peaks_ref=peaks_name(label, size),
    )
    if row != expected:
        raise InvariantError(_FILES, f"the index row of the checkpoint at entry {size} differs from the log")


def find_artifacts(folder: Path, manifest: Manifest | None, *, indexed: bool) -> dict[Label, list[Artifact]]:
    """Return the artifacts in a folder by label, in the order of entries; raise for a broken sequence.

    ``indexed`` includes the checkpoint indexes, which describe whole labels: true for a data directory.
    """
    found: dict[Label, list[Artifact]] = {}
    for name in sorted(os.listdir(folder)):
        file = str(folder / name)
        if (match := _NAME.fullmatch(name)) is not None:
            artifact = Artifact(seq=int(match[3]), kind=match[1], file=file)  # type: ignore[arg-type]  # by the pattern
            found.setdefault(Label.from_hex(match[2]), []).append(artifact)
        elif (parsed := parse_chunk_name(name)) is not None and parsed.kind == "summary":
            assert parsed.end is not None
            found.setdefault(parsed.label, []).append(Artifact(seq=parsed.end, kind="summary", file=file))
        elif indexed and (match := _INDEX.fullmatch(name)) is not None:
            found.setdefault(Label.from_hex(match[1]), []).extend(_index_rows(folder / name))
    path = folder / sequence_name(CHECKPOINTS)
    if manifest is not None and manifest.form == "set" and path.is_file():
        for offset, item in sequence(str(path), 0, None):
            seq = Checkpoint.decode(item).upto_seq
            artifact = Artifact(seq=seq, kind="checkpoint", file=str(path), offset=offset, content=item)
            found.setdefault(manifest.label, []).append(artifact)
    return {label: sorted(artifacts, key=lambda artifact: artifact.seq) for label, artifacts in found.items()}


def _index_rows(path: Path) -> Iterator[Artifact]:
    """Yield the rows of a checkpoint index as artifacts.

    A row that does not decode has no known entry: it is assigned to entry 1, where its check fails.
    """
    at = 0
    try:
        for at, item in sequence(str(path), 0, None):
            seq = CheckpointIndexEntry.decode(item).upto_seq
            yield Artifact(seq=seq, kind="index", file=str(path), offset=at, content=item)
            at += len(item)  # noqa: PLW2901 - the start of the next row
    except VeenError:
        yield Artifact(seq=1, kind="index", file=str(path), offset=at, content=path.read_bytes()[at:])


def assign_to_parts(
    parts: Sequence[SparkSegment], artifacts: Iterable[Artifact]
) -> tuple[dict[tuple[str, int], list[Artifact]], list[Artifact]]:
    """Return the artifacts by the part of the label that holds their entry, and those without a part."""
    by_part: dict[tuple[str, int], list[Artifact]] = {}
    unassigned = []
    starts = [part.start_seq for part in parts]
    starts[0] -= 1  # an artifact of the entry before the first part is checked with that part
    for artifact in artifacts:
        part = parts[max(0, bisect_right(starts, artifact.seq) - 1)]
        if starts[0] <= artifact.seq and (part.end_seq is None or artifact.seq <= part.end_seq):
            by_part.setdefault((part.path, part.begin), []).append(artifact)
        else:
            unassigned.append(artifact)
    return by_part, unassigned
