"""What the journal holds of a label and the index does not know yet: could opening apply all of it?

Its entries and checkpoints are folded with the rest (``label``); here is what the fold did not come to, and
what needs something to be there: an anchor its checkpoint, a pruning its sealed chunk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from veen_core.ids import NO_ENTRIES, Label, StreamSeq
from veen_storage.commit.changes import Prune
from veen_storage.fsck.files import Journaled
from veen_storage.fsck.fold_context import Book


@dataclass(slots=True)
class Folded:
    """What a label came to hold."""

    last: StreamSeq = NO_ENTRIES
    checkpoints: set[StreamSeq] = field(default_factory=set)
    sealed: dict[StreamSeq, StreamSeq] = field(default_factory=dict)
    """Chunks that ended: start to end."""
    tokens: bool = False
    lost: bool = False
    """Something could not be read: then what is not here may have been there."""


def check_pending(book: Book, label: Label, folded: Folded) -> None:
    """Report every item that opening would stumble over."""
    if folded.lost:
        return
    pending = book.journal.of(label)
    for seq, item in pending.entries.items():
        if seq > folded.last:
            lost = f"entry {seq} was applied, and no chunk holds it"
            ahead = f"entry {seq} does not follow entry {folded.last}"
            _fault(book, label, seq, item, ahead if item.batch > book.applied else lost)
    for upto, item in _ahead(book, pending.checkpoints.items()):
        if upto not in folded.checkpoints:
            _fault(book, label, upto, item, f"a checkpoint at {upto}, where no entry was the last")
    anchors = ((upto, item) for upto, items in pending.anchors.items() for item in items)
    for upto, item in _ahead(book, anchors):
        if upto not in folded.checkpoints:
            _fault(book, label, upto, item, f"an anchor of a checkpoint at {upto}, which there is not")
    prunes = ((start, item) for start, items in pending.prunes.items() for item in items)
    for start, item in _ahead(book, prunes):
        end = Prune.decode(item.data).end_seq
        if folded.sealed.get(start) != end or folded.tokens:
            what = f"prunes entries {start} to {end}, which are no chunk that may be pruned"
            _fault(book, label, start, item, what)


def _ahead(book: Book, items: Iterable[tuple[StreamSeq, Journaled]]) -> Iterable[tuple[StreamSeq, Journaled]]:
    return ((seq, item) for seq, item in items if item.batch > book.applied)


def _fault(book: Book, label: Label, seq: StreamSeq, item: Journaled, what: str) -> None:
    book.fault(item.file, what, offset=item.offset, label=label, seq=seq)
    book.broken.add(label)
