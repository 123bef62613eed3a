"""A label's checkpoints and anchors, each when the fold has come to it (§4.4, ANCHOR0.2)."""

from __future__ import annotations

from dataclasses import dataclass

from veen_core.checkpoint import Checkpoint
from veen_core.errors import VeenError
from veen_core.ids import Label, StreamSeq
from veen_storage.commit.changes import Checkpointed
from veen_storage.commit.writer import file_checkpoint
from veen_storage.fsck.artifacts import Beside, first_difference
from veen_storage.fsck.files import Journaled, LabelFiles, LabelJournal, read_held
from veen_storage.fsck.fold_context import Book
from veen_storage.fsck.pending import Folded
from veen_storage.fsck.state import FoldState


@dataclass(slots=True)
class CheckpointFold:
    """Files them with the label's draft, and holds them against what lies beside."""

    _book: Book
    _label: Label
    _state: FoldState
    _beside: Beside
    _folded: Folded

    @property
    def _files(self) -> LabelFiles:
        return self._book.log.of(self._label)

    @property
    def _pending(self) -> LabelJournal:
        return self._book.journal.of(self._label)

    def checkpoint(self, upto: StreamSeq) -> None:
        """The one at the entry that was placed last: in a file, or in the journal."""
        item = self._pending.checkpoints.get(upto)
        ahead = item is not None and item.batch > self._book.applied
        if ahead and self._state.exact:
            self._state.step_aside()
        path = self._book.layout.checkpoint(self._label, upto)
        written = None
        if upto in self._files.checkpoints:
            written = read_held(path, self._book.report, label=self._label, seq=upto)
        if written is None and not ahead:
            self._beside.fault(path, "is missing", seq=upto)
            self._without_checkpoint(upto)
            return
        if item is not None and written is not None and written != item.data:
            offset = first_difference(written, item.data)
            what = "is not the checkpoint that the journal holds"
            self._beside.fault(path, what, seq=upto, offset=offset)
        self._book.report.counters.checkpoints += 1
        self._file_checkpoint(upto, written if written is not None or item is None else item.data, item)

    def _file_checkpoint(self, upto: StreamSeq, data: bytes | None, item: Journaled | None) -> None:
        cursor = self._state.here
        path = self._book.layout.checkpoint(self._label, upto)
        try:
            held = Checkpoint.decode(data or b"")
            self._beside.check_rules(cursor, held, upto)
            file_checkpoint(self._state.draft, self._book.trust.identity, cursor, held)
        except VeenError as exc:
            self._beside.seen.add(path)
            self._beside.fault(path, str(exc), seq=upto, offset=0)
            self._without_checkpoint(upto)
            return
        step = self._state.draft.changes.steps[-1]
        assert isinstance(step, Checkpointed)
        ahead = item is not None and item.batch > self._book.applied
        self._folded.checkpoints.add(upto)
        self._beside.checkpointed(step, ahead=ahead)
        order = item.order if item is not None and ahead else None
        self._book.bindings.expect(step.binding.encode(), (self._label, upto), order)

    def _without_checkpoint(self, upto: StreamSeq) -> None:
        """Go on as if it were there: its absence is reported."""
        self._book.bindings.complete = False
        self._beside.index_known = False
        self._folded.checkpoints.add(upto)
        self._state.distrust()
        if self._state.cursor is not None:
            self._state.cursor.checkpointed = upto

    def anchors(self) -> None:
        """Once all checkpoints are known."""
        for upto in sorted(self._files.anchors | set(self._pending.anchors)):
            ahead = [i for i in self._pending.anchors.get(upto, ()) if i.batch > self._book.applied]
            if upto not in self._files.anchors:
                if len(ahead) < len(self._pending.anchors[upto]):
                    self._beside.fault(self._book.layout.anchor(self._label, upto), "is missing", seq=upto)
                    self._book.unsure.add(("anchors", self._label, upto))
                continue
            known = upto in self._folded.checkpoints or self._state.ever_lost
            anchor = self._beside.anchor(upto, checkpointed=known)
            if anchor is None or any(item.data == anchor.encode() for item in ahead):
                self._book.unsure.add(("anchors", self._label, upto))
            elif self._label not in self._book.broken and self._state.ahead_from > 1:
                self._book.derivation.draft.note_anchor(anchor)
