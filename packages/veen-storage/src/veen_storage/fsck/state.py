"""Where the fold of a label stands, and whether what follows from it is for the index (``label``).

exact    everything so far holds: what follows from it is what the index must hold
aside    still in order, but not for the index: ahead of it (in the journal), or after a fault
lost     an entry is missing or unreadable: roots and cursors cannot be told until the next chunk,
         where a checkpoint's peaks let the fold go on
"""

from __future__ import annotations

from veen_core.ids import ClientId, ClientSeq, Label, StreamSeq, UnixTime
from veen_core.mmr import Mmr
from veen_storage.fsck.artifacts import Beside
from veen_storage.fsck.derive import DerivedDraft
from veen_storage.fsck.entries import NEVER
from veen_storage.fsck.fold_context import Book
from veen_storage.index.records import LabelCursor, LabelNo


class FoldState:
    """The label's cursor and draft, and how far they can be trusted."""

    def __init__(self, book: Book, label: Label) -> None:
        self._book = book
        self._label = label
        held = book.journal.of(label).entries
        self.ahead_from = min((seq for seq, item in held.items() if item.batch > book.applied), default=NEVER)
        """The first entry that the index does not know yet."""
        self.next = StreamSeq(1)
        self.wrong_roots = 0
        """In a row."""
        self.seen: dict[ClientId, ClientSeq] | None = None
        """Writers since the fold was lost; None while all of them are known."""
        self.ever_lost = False
        self.exact = self.ahead_from > 1
        self._lost_from: StreamSeq | None = None
        self.cursor: LabelCursor | None
        self.draft: DerivedDraft
        if self.exact:
            self.cursor, self.draft = book.derivation.begin(label), book.derivation.draft
        else:
            self.draft = book.derivation.aside()
            self.cursor = self.draft.own(label)

    @property
    def here(self) -> LabelCursor:
        """The cursor, where the fold is not lost."""
        assert self.cursor is not None
        return self.cursor

    @property
    def is_ahead(self) -> bool:
        """Whether the entry being placed is one that the index does not know yet."""
        return self.next - 1 >= self.ahead_from

    def pause(self) -> None:
        """Let go of what is drafted, so that memory stays bounded."""
        if self.exact:
            derivation = self._book.derivation
            derivation.settle(at_least=1_000)
            self.draft = derivation.draft
            self.cursor = self.draft.own(self._label)
        else:
            self.draft.changes.steps.clear()

    def step_aside(self) -> None:
        """From here on nothing is for the index."""
        self.exact = False
        self.draft = self._book.derivation.aside()
        self.cursor = self.draft.own(self._label)

    def distrust(self) -> None:
        """The index cannot be judged by this label any more; everything else can."""
        self._book.broken.add(self._label)
        if self.exact and self.cursor is not None:
            self.step_aside()
        self.exact = False

    def lose(self) -> None:
        self.distrust()
        if self.cursor is not None:
            self.cursor, self._lost_from, self.ever_lost = None, self.next, True

    def resume(self, start: StreamSeq, beside: Beside) -> None:
        """Go on at a chunk's start, from the snapshot of the checkpoint before it."""
        upto = StreamSeq(start - 1)
        snapshot = beside.snapshot(upto)
        if snapshot is None:
            return
        self.close_gap()
        self.draft = self._book.derivation.aside()
        self.cursor = LabelCursor(
            self._label, LabelNo(0), Mmr(upto, snapshot[1]), Mmr(), start, 0, UnixTime(0), upto, 0
        )
        self.draft.changes.heads[self._label] = self.cursor
        self.seen, self.wrong_roots = {}, 0
        beside.index_known = False

    def close_gap(self) -> None:
        """Say what could not be checked."""
        if self._lost_from is None:
            return
        self._book.report.notes.append(
            f"label {self._label.hex()}: roots, order and writers of entries {self._lost_from} to "
            f"{self.next - 1} could not be checked, nor what the index holds of this label"
        )
        self._lost_from = None
