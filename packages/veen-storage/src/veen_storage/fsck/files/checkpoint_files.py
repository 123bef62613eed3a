"""A label's checkpoints with their peaks and index, and its anchors (core §4.4, §4.8.3, spec-1 ANCHOR0.2)."""

from __future__ import annotations

from veen_core import chunk
from veen_core.checkpoint import Checkpoint
from veen_core.errors import DecodeError, VeenError
from veen_core.ids import Label, StreamSeq
from veen_storage.commit import journal
from veen_storage.commit.changes import Anchor, Checkpointed
from veen_storage.commit.writer import check_checkpoint, file_checkpoint
from veen_storage.fsck.context import FoldContext
from veen_storage.index.records import LabelCursor


class CheckpointFiles:
    """Checks the checkpoint files of one label, each when the fold has come to its entry."""

    def __init__(self, context: FoldContext, label: Label) -> None:
        self._context = context
        self._label = label
        self._files = context.log.of(label)
        made = context.journal.of(label, journal.CHECKPOINT)
        pending = {item.seq for item in made if context.is_pending(item)}
        self.expected = (self._files.checkpoints | {item.seq for item in made}) - pending
        """Entries at which a checkpoint must be; those that the index has not applied are left out."""
        self._checked: set[StreamSeq] = set()
        self._lines: list[bytes] = []
        """Lines of the checkpoint index."""

    def check(self, upto: StreamSeq, cursor: LabelCursor) -> None:
        """Check the checkpoint at the last entry, and file it in the draft."""
        context, draft = self._context, self._context.derived.draft
        path = context.layout.checkpoint(self._label, upto)
        self._files.checkpoints.discard(upto)
        self._checked.add(upto)
        if (data := context.read(path, self._label, upto)) is None:
            self._continue_without(upto, cursor)
            return
        context.report.counters.checkpoints += 1
        try:
            held = Checkpoint.decode(data)
            check_checkpoint(context.trust.terms(self._label), cursor, held)
            file_checkpoint(draft, context.trust.identity, cursor, held)
        except VeenError as exc:
            context.damage(self._label, path.name, str(exc), offset=0, seq=upto)
            self._continue_without(upto, cursor)
            return
        step = draft.changes.steps[-1]
        assert isinstance(step, Checkpointed)
        self._files.peaks.discard(upto)
        peaks = context.layout.peaks(self._label, upto)
        context.compare(peaks, chunk.encode_peaks(step.peaks), self._label, upto)
        self._lines.append(step.line.encode())
        context.binding_lines[step.binding.encode()] = None

    def report_missing(self, upto: StreamSeq, cursor: LabelCursor) -> None:
        """Report that a chunk ends without a checkpoint."""
        file = self._context.layout.checkpoint(self._label, upto).name
        what = "is missing: every chunk ends with a checkpoint"
        self._context.damage(self._label, file, what, seq=upto)
        self._continue_without(upto, cursor)

    def _continue_without(self, upto: StreamSeq, cursor: LabelCursor) -> None:
        """Continue the fold as if the checkpoint were there."""
        self._context.damaged.add(self._label)
        cursor.checkpointed = upto

    def check_index(self) -> None:
        """Compare the label's checkpoint index with the lines of its checkpoints."""
        if not self._lines and not self._files.has_index:
            return
        context, right = self._context, b"".join(self._lines)
        path, last = context.layout.checkpoint_index(self._label), max(self._checked, default=StreamSeq(0))
        if tail := context.compare(path, right, self._label, last, grows=True):
            context.index_tails[self._label] = (len(right), tail)

    def check_anchors(self) -> None:
        """Check that each anchor file belongs to a checkpoint; its content follows from nothing else."""
        context = self._context
        items = context.journal.of(self._label, journal.ANCHOR)
        applied = {item.seq for item in items if not context.is_pending(item)}
        pending = {item.data for item in items if context.is_pending(item)}
        for upto in sorted(self._files.anchors | applied):
            self._files.anchors.discard(upto)
            path = context.layout.anchor(self._label, upto)
            data = context.read(path, self._label, upto)
            if data is None or data in pending:
                context.unknown_anchors.add((self._label, upto))
                continue
            try:
                anchor = self._decode_anchor(data, upto)
            except DecodeError as exc:
                context.report.fault(path.name, str(exc), offset=0, label=self._label, seq=upto)
                context.unknown_anchors.add((self._label, upto))
            else:
                if self._label not in context.damaged:
                    context.derived.draft.note_anchor(anchor)

    def _decode_anchor(self, data: bytes, upto: StreamSeq) -> Anchor:
        anchor = Anchor.decode(data)
        if (anchor.label, anchor.upto_seq) != (self._label, upto):
            raise DecodeError("is for another checkpoint than its name says")
        if upto not in self._checked and self._label not in self._context.damaged:
            raise DecodeError("anchors a checkpoint that does not exist")
        return anchor
