"""Files that follow from the log byte for byte: summaries, peaks, checkpoint indices, bindings (core §4.8).

What differs or is missing is reported, and its right content is kept for repair to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from veen_core import cbor
from veen_core.errors import DecodeError
from veen_core.hub_identity import CheckpointBinding
from veen_core.ids import Label, StreamSeq
from veen_storage.commit.journal import foreign_at
from veen_storage.errors import REPAIR, RESTORE, DamageError, read_file
from veen_storage.fsck.report import Fault, Report


def first_difference(held: bytes, right: bytes) -> int:
    """Return the offset of the first byte that differs, or the end of the shorter."""
    pairs = enumerate(zip(held, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(held), len(right)))


@dataclass(frozen=True, slots=True)
class LabelArtifacts:
    """Reads and compares the files of one label, and reports what is wrong with them."""

    report: Report
    rewrites: dict[Path, bytes]
    label: Label

    def fault(
        self, path: Path, what: str, *, seq: StreamSeq, remedy: str = RESTORE, offset: int | None = None
    ) -> None:
        place = {"offset": offset, "label": self.label, "seq": seq}
        self.report.faults.append(Fault(file=path.name, what=what, remedy=remedy, **place))  # type: ignore[arg-type]

    def read(self, path: Path, *, seq: StreamSeq, remedy: str = RESTORE) -> bytes | None:
        """Return a file's content; None, and a fault, if it is missing or cannot be read."""
        try:
            return read_file(path)
        except DamageError as exc:
            self.fault(path, exc.what, seq=seq, remedy=remedy)
            return None

    def compare(self, path: Path, right: bytes, *, seq: StreamSeq, rewrite: bool = True) -> None:
        """Report a file that is not what follows from the log."""
        remedy = REPAIR if rewrite else RESTORE
        held = self.read(path, seq=seq, remedy=remedy)
        if held == right:
            return
        if held is not None:
            offset = first_difference(held, right)
            self.fault(path, "does not follow from the log", remedy=remedy, seq=seq, offset=offset)
        if rewrite:
            self.rewrites[path] = right


@dataclass(slots=True)
class Bindings:
    """The lines that ``checkpoint-binding.cbor`` must have: one for each checkpoint (core §8.4)."""

    applied: dict[bytes, tuple[Label, StreamSeq]] = field(default_factory=dict)
    """Lines of checkpoints that the index knows, in any order."""
    pending: list[bytes] = field(default_factory=list)
    """Lines of checkpoints that only the journal holds, in its order."""
    complete: bool = True
    """False once a checkpoint could not be read: the file then has more lines than are known here."""

    def check(self, path: Path) -> Iterator[Fault]:
        """Yield a fault for each line that is missing, and one for what follows the last known line."""
        try:
            data = read_file(path)
        except DamageError as exc:
            yield Fault(file=path.name, what=exc.what, remedy=REPAIR)
            return
        missing, offset = dict(self.applied), 0
        try:
            for line in cbor.split_sequence(data):
                if not missing and self.complete:
                    break
                if missing.pop(line, None) is None and not self._may_be_right(line):
                    break
                offset += len(line)
        except DecodeError:
            pass  # the rest is compared with the pending lines
        if check_tail(data[offset:], b"".join(self.pending), offset) is not None or (
            missing and len(data) > offset
        ):
            what = "contains a line that belongs to no checkpoint"
            yield Fault(file=path.name, offset=offset, what=what, remedy=REPAIR)
        for label, upto in missing.values():
            what = "has no line for this checkpoint"
            yield Fault(file=path.name, label=label, seq=upto, what=what, remedy=REPAIR)

    def _may_be_right(self, line: bytes) -> bool:
        """Return whether this may be the line of a checkpoint that could not be read."""
        if self.complete:
            return False
        try:
            CheckpointBinding.decode(line)
        except DecodeError:
            return False
        return True


def check_tail(tail: bytes, pending: bytes, offset: int) -> int | None:
    """Return the offset of the first byte of ``tail`` that the journal will not write there."""
    at = foreign_at(tail, pending, offset)
    if at is None and len(tail) > len(pending):
        at = offset + len(pending)
    return at


def describe(exc: Exception) -> str:
    """Return the text of an error, without the file name that a ``DamageError`` puts before it."""
    return exc.what if isinstance(exc, DamageError) else str(exc)
