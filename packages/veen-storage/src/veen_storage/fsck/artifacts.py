"""What lies beside chunks: summaries, peaks, checkpoints, their index and binding, anchors (§4.8.3, §8.4).

All but checkpoints and anchors follow from the log byte for byte: what differs or is missing is noted with
its right content, for repair to write. Files of steps that the journal holds and the index does not know
(``ahead``) may be missing; if they are there, they must be right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from veen_core import cbor, chunk, stream
from veen_core import checkpoint as checkpoints
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import ChunkSummary
from veen_core.errors import CheckpointError, DecodeError, VeenError
from veen_core.hub_identity import CheckpointBinding, HubIdentity
from veen_core.ids import Label, StreamSeq
from veen_core.mmr import Mmr
from veen_storage.commit.changes import Anchor, Checkpointed
from veen_storage.commit.journal import foreign_at
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import Registry
from veen_storage.errors import unreadable
from veen_storage.fsck.files import LabelFiles, read_held
from veen_storage.fsck.report import REPAIR, RESTORE, Fault, Report
from veen_storage.index.records import LabelCursor


def first_difference(held: bytes, right: bytes) -> int:
    """Where a file goes wrong; the end of the shorter, if all before it is alike."""
    pairs = enumerate(zip(held, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(held), len(right)))


@dataclass(slots=True)
class Bindings:
    """The lines that ``checkpoint-binding.cbor`` must have: one for each checkpoint, in any order (§8.4)."""

    applied: dict[bytes, tuple[Label, StreamSeq]] = field(default_factory=dict)
    ahead: list[tuple[int, bytes]] = field(default_factory=list)
    """With their position in the journal, which is the order in which they are applied."""
    complete: bool = True
    """False once a checkpoint could not be read: then more lines than these are right."""

    def expect(self, line: bytes, of: tuple[Label, StreamSeq], order: int | None) -> None:
        if order is None:
            self.applied[line] = of
        else:
            self.ahead.append((order, line))

    @property
    def size(self) -> int:
        return sum(map(len, self.applied))

    def content(self) -> bytes:
        return b"".join(self.applied)

    def check(self, path: Path) -> Iterator[Fault]:
        """Against the file; a line too many, too few, or torn."""
        try:
            data = path.read_bytes()
        except OSError as exc:
            gone = isinstance(exc, FileNotFoundError)
            what = "is missing" if gone else unreadable(path.name, exc).what
            yield Fault(file=path.name, what=what, remedy=REPAIR)
            return
        missing, offset = dict(self.applied), 0
        try:
            for line in cbor.split_sequence(data):
                if not missing and self.complete:
                    break
                if missing.pop(line, None) is None and not self._may_be(line):
                    break
                offset += len(line)
        except DecodeError:
            pass  # what is left is judged below
        beyond = b"".join(line for _order, line in sorted(self.ahead))
        rest = data[offset:]
        foreign = len(rest) > len(beyond) or foreign_at(rest, beyond, offset) is not None
        if foreign or (missing and rest):
            what = "goes on with something that is the line of no checkpoint"
            yield Fault(file=path.name, offset=offset, what=what, remedy=REPAIR)
        for label, upto in missing.values():
            what = "has no line for this checkpoint"
            yield Fault(file=path.name, label=label, seq=upto, what=what, remedy=REPAIR)

    def _may_be(self, line: bytes) -> bool:
        """Whether it may be the line of a checkpoint that could not be read."""
        if self.complete:
            return False
        try:
            CheckpointBinding.decode(line)
        except DecodeError:
            return False
        return True


@dataclass(slots=True)
class Beside:
    """One label's files beside its chunks."""

    layout: Layout
    identity: HubIdentity
    registry: Registry
    report: Report
    label: Label
    files: LabelFiles
    rewrites: dict[Path, bytes]
    index: bytes = b""
    lines: list[bytes] = field(default_factory=list)
    """Of the checkpoint index, as far as it is applied."""
    index_known: bool = True
    seen: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.files.index:
            path = self.layout.checkpoint_index(self.label)
            self.index = read_held(path, self.report, remedy=REPAIR, label=self.label) or b""

    def fault(
        self,
        path: Path,
        what: str,
        *,
        remedy: str = RESTORE,
        seq: StreamSeq | None = None,
        offset: int | None = None,
    ) -> None:
        self.report.faults.append(
            Fault(file=path.name, offset=offset, label=self.label, seq=seq, what=what, remedy=remedy)
        )

    def _derived(
        self, path: Path, right: bytes, *, ahead: bool, seq: StreamSeq, rewrite: bool = True
    ) -> None:
        """A file whose every byte follows from the log."""
        self.seen.add(path)
        remedy = REPAIR if rewrite else RESTORE
        held = read_held(path, self.report, remedy=remedy, label=self.label, seq=seq)
        if held == right or (held is None and ahead):
            return
        if held is None:
            self.fault(path, "is missing", remedy=remedy, seq=seq)
        else:
            offset = first_difference(held, right)
            self.fault(path, "is not what follows from the log", remedy=remedy, seq=seq, offset=offset)
        if rewrite:
            self.rewrites[path] = right

    def summary(self, summary: ChunkSummary, *, ahead: bool, pruned: bool) -> None:
        path = self.layout.summary(self.label, summary.start_seq, summary.end_seq)
        self._derived(path, summary.encode(), ahead=ahead, seq=summary.end_seq, rewrite=not pruned)

    def snapshot(self, upto: StreamSeq) -> tuple[Checkpoint, list[bytes]] | None:
        """A checkpoint and its peaks, to go on from where the log before it cannot be read."""
        try:
            held = Checkpoint.decode(self.layout.checkpoint(self.label, upto).read_bytes())
            peaks = chunk.decode_peaks(self.layout.peaks(self.label, upto).read_bytes())
            checkpoints.check_transition(held, Mmr(upto, peaks))
        except (OSError, VeenError):
            return None
        return held, list(peaks)

    # --- checkpoints

    def check_rules(self, cursor: LabelCursor, held: Checkpoint, upto: StreamSeq) -> None:
        """§4.4.1 and H9, as far as the files tell; raises."""
        path = self.layout.checkpoint(self.label, upto)
        self.seen.add(path)
        if (held.label_curr, held.upto_seq) != (self.label, upto):
            raise CheckpointError("is of another label or upto_seq than its name says")
        checkpoints.check_transition(held, cursor.log, last_upto_seq=cursor.checkpointed)
        epoch_sec = self.registry.profile.epoch_sec
        if held.epoch != stream.epoch_at(cursor.hub_ts, epoch_sec):
            raise CheckpointError(f"epoch {held.epoch} is not that of hub_ts {cursor.hub_ts} (H9)")
        if held.rotates and (cursor.checkpointed or not epoch_sec):
            raise CheckpointError("label_prev differs, and it is not the label's first (H9)")
        checkpoints.verify_witnesses(held, (), [key.hub_pk for key in self.identity.hub_keys])

    def checkpointed(self, step: Checkpointed, *, ahead: bool) -> None:
        """Peaks and index line of a checkpoint that holds."""
        upto = step.checkpoint.upto_seq
        self._derived(
            self.layout.peaks(self.label, upto), chunk.encode_peaks(step.peaks), ahead=ahead, seq=upto
        )
        line = step.line.encode()
        if not ahead:
            self.lines.append(line)
        have = self.index[step.index_at : step.index_at + len(line)]
        if not self.index_known or have == line:
            return
        if ahead and foreign_at(have, line, step.index_at) is None:
            return
        self.index_known = False
        path = self.layout.checkpoint_index(self.label)
        what = f"has no line for the checkpoint at {upto}" if self.files.index else "is missing"
        self.report.faults.append(
            Fault(file=path.name, offset=step.index_at, label=self.label, seq=upto, what=what, remedy=REPAIR)
        )

    def end_index(self, cursor: LabelCursor) -> None:
        """Nothing follows the last line; if anything was wrong, repair writes the lines again."""
        path = self.layout.checkpoint_index(self.label)
        if self.index_known and len(self.index) > cursor.index_bytes:
            self.index_known = False
            self.report.faults.append(
                Fault(
                    file=path.name,
                    offset=cursor.index_bytes,
                    label=self.label,
                    what="goes on with lines of no checkpoint",
                    remedy=REPAIR,
                )
            )
        if not self.index_known:
            self.rewrites[path] = b"".join(self.lines)

    # --- anchors and strays

    def anchor(self, upto: StreamSeq, *, checkpointed: bool) -> Anchor | None:
        path = self.layout.anchor(self.label, upto)
        self.seen.add(path)
        try:
            held = Anchor.decode(read_held(path, self.report, label=self.label, seq=upto) or b"")
        except DecodeError as exc:
            self.fault(path, str(exc), seq=upto, offset=0)
            return None
        if (held.label, held.upto_seq) != (self.label, upto):
            self.fault(path, "is of another checkpoint than its name says", seq=upto, offset=0)
            return None
        if not checkpointed:
            self.fault(path, "there is no checkpoint that it anchors", seq=upto)
        return held

    def strays(self, beyond: int) -> None:
        """Files of steps after ``beyond`` that the log never took."""
        of = self.label
        named = [(end, self.layout.summary(of, start, end)) for start, end in self.files.summaries]
        named += [(upto, self.layout.peaks(of, upto)) for upto in self.files.peaks]
        named += [(upto, self.layout.checkpoint(of, upto)) for upto in self.files.checkpoints]
        for seq, path in sorted(named):
            if seq > beyond and path not in self.seen:
                self.fault(path, "belongs to nothing that the log holds", seq=seq)
