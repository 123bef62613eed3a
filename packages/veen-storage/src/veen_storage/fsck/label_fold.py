"""The ordered check of one label: its entries and the boundaries of its chunks (core §4.8).

A fault that breaks the order (an entry that is missing or unreadable, a wrong root) ends the fold of the
label. Every later entry is still checked by itself, and so are the names and ends of later chunks. What
follows from the damaged entries is checked once they are restored: later roots and checkpoints, the index.
"""

from __future__ import annotations

from pathlib import Path

from veen_core.chunk import chunk_name
from veen_core.errors import VeenError
from veen_core.ids import Label, StreamSeq
from veen_storage.chunks.pruned_chunk import read_pruned_head
from veen_storage.chunks.retention import pruned_form
from veen_storage.commit import journal
from veen_storage.commit.changes import Prune, Sealed
from veen_storage.commit.ledger import Draft
from veen_storage.errors import RESTORE, DamageError
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.entries import ChunkEnd, EntryFacts, EntryRun, EntryRunResult
from veen_storage.fsck.entry_order import note_content, place_entry
from veen_storage.fsck.files.checkpoint_files import CheckpointFiles
from veen_storage.fsck.files.log_files import ChunkRef
from veen_storage.fsck.hub_log_fold import FoldedHeads
from veen_storage.fsck.report import MOVE_AWAY, describe
from veen_storage.index.records import LabelCursor


class LabelFold:
    """Folds one label: ``add`` for each run of entries, then ``end``."""

    def __init__(self, context: FoldContext, label: Label, heads: FoldedHeads) -> None:
        self._context = context
        self._heads = heads
        self._label = label
        self._files = context.log.of(label)
        self._cursor: LabelCursor | None = None
        """None before the first chunk, and after a fault that breaks the order."""
        self._next = StreamSeq(1)
        self._chunk: ChunkRef | None = None
        self._between = True
        """Whether the next run begins a chunk."""
        self._starts_chunk = False
        self._overlaps = False
        self._checkpoints = CheckpointFiles(context, label)

    @property
    def _draft(self) -> Draft:
        return self._context.derived.draft

    def add(self, run: EntryRun, result: EntryRunResult) -> None:
        """Fold the next entries of the label."""
        if self._between:
            self._begin_chunk(run.chunk)
        self._between = run.ends is not None
        report, facts = self._context.report, result.facts
        report.faults += result.faults
        report.counters.signatures += result.signatures
        if not self._overlaps:
            for fact in facts:
                self._add(fact)
            report.counters.entries += len(facts)
            report.counters.bytes += sum(fact.size for fact in facts)
            self._context.derived.settle()
            if self._cursor is not None:
                self._cursor = self._draft.own(self._label)
            if run.ends is not None:
                self._end_chunk(run.chunk, run.ends)

    # --- chunk files

    def _begin_chunk(self, chunk: ChunkRef) -> None:
        self._overlaps = chunk.start < self._next
        if self._overlaps:
            what = f"overlaps the previous chunk, which ends at entry {self._next - 1}"
            self._damage(chunk.path.name, what, seq=chunk.start)
            return
        self._chunk, self._starts_chunk = chunk, True
        if chunk.start > self._next:
            first, last = self._next, StreamSeq(chunk.start - 1)
            name = chunk_name(self._label, first, last)
            self._damage(name, f"no chunk contains entries {first} to {last}", seq=first)
            self._cursor, self._next = None, chunk.start
        if chunk.start == 1:
            self._cursor = self._context.derived.begin(self._label, self._draft)

    def _end_chunk(self, chunk: ChunkRef, ended: ChunkEnd) -> None:
        """Check that a chunk ends where its name says, and at the end of an entry."""
        if (damage := ended.damage) is not None:
            self._damage(damage.file, damage.what, damage.remedy, offset=damage.offset, seq=self._next)
            self._cursor = None
        elif chunk.end is not None and self._next != chunk.end + 1:
            what = f"ends after entry {self._next - 1}, but its name says {chunk.end}"
            self._damage(chunk.path.name, what, offset=ended.size, seq=self._next)
            self._cursor = None
        if chunk.end is not None:
            self._next = StreamSeq(chunk.end + 1)

    # --- entries

    def _add(self, fact: EntryFacts) -> None:
        if fact.seq != self._next:
            self._fault(fact, f"is where entry {self._next} should be")
            self._break_off()
        self._next = StreamSeq(fact.seq + 1)
        if fact.seq == self._heads.next_seq:
            self._heads.check(fact)
        if not fact.valid:
            self._break_off()
        if self._cursor is None:
            return
        self._check_boundary(fact, self._cursor)
        cursor, draft, context = self._cursor, self._draft, self._context
        broken = place_entry(draft, cursor, fact)
        broken += note_content(draft, cursor, fact, context.tokens)
        for error in broken:
            self._fault(fact, str(error))
        if broken and cursor.log.root != fact.root:  # place_entry has compared them already
            self._break_off()
        elif fact.seq in self._checkpoints.expected:
            self._checkpoints.check(fact.seq, cursor)

    def _break_off(self) -> None:
        """Stop the fold."""
        self._context.damaged.add(self._label)
        self._cursor = None

    def _check_boundary(self, fact: EntryFacts, cursor: LabelCursor) -> None:
        """Check that chunks end exactly where core §4.8.2 says."""
        must = self._draft.must_roll(cursor, fact.size)
        does = self._starts_chunk and fact.seq > 1 and cursor.log.size >= cursor.chunk_start
        self._starts_chunk = False
        if must != does:
            what = "must begin a new chunk" if must else "begins a new chunk too early"
            self._fault(fact, f"{what} (core §4.8.2)")
            self._context.damaged.add(self._label)
        if does:
            self._seal(cursor)

    # --- sealed and pruned chunks

    def _seal(self, cursor: LabelCursor) -> None:
        start, end = cursor.chunk_start, cursor.log.stream_seq
        if cursor.checkpointed != end:
            self._checkpoints.report_missing(end, cursor)
        self._draft.seal_chunk(cursor)
        step = self._draft.changes.steps[-1]
        assert isinstance(step, Sealed)
        self._files.summaries.discard((start, end))
        path = self._context.layout.summary(self._label, start, end)
        pruned = start in self._files.pruned
        self._context.compare(path, step.summary.encode(), self._label, end, rewrite=not pruned)
        if start in self._files.growing:
            self._context.unfinished.append(step)
        if pruned:
            self._prune(start, end)

    def _prune(self, start: StreamSeq, end: StreamSeq) -> None:
        context, path = self._context, self._context.layout.pruned(self._label, start, end)
        chunk_remains = start in self._files.logs or start in self._files.growing
        prunes = [item for item in context.journal.of(self._label, journal.PRUNE) if item.seq == start]
        try:
            head = read_pruned_head(path)
            if (head.label, head.start_seq, head.end_seq) != (self._label, start, end):
                raise DamageError(path.name, 0, "has a label or range other than its name says")
        except (OSError, VeenError) as exc:
            next_start_writes_file = chunk_remains and any(map(context.is_pending, prunes))
            if not next_start_writes_file:
                self._damage(path.name, describe(exc), offset=0, seq=start)
            return
        decision = Prune(label=self._label, start_seq=start, end_seq=end, pruned_at=head.pruned_at)
        if chunk_remains:
            # The file names the decision that made it. If the index does not know that decision, the file
            # is left from an interrupted round, and the next start makes it again.
            made_by = [item for item in prunes if item.data == decision.encode()]
            if made_by and context.is_pending(made_by[0]):
                return
        self._draft.note_prune(decision)
        if chunk_remains:
            context.unfinished.append(self._draft.changes.steps[-1])
            self._check_pruned_file(path, decision)

    def _check_pruned_file(self, path: Path, decision: Prune) -> None:
        """Compare a ``.pruned`` file with its chunk, which still exists and will be removed."""
        try:
            right = pruned_form(self._context.layout, decision, zstd=self._context.zstd).content
        except (OSError, DamageError):
            return  # the reader of the chunk has reported it
        self._context.compare(path, right, self._label, decision.start_seq)

    # --- the end

    def end(self) -> None:
        """Check the rules that need all chunks of the label."""
        context, chunk, last = self._context, self._chunk, self._next - 1
        if chunk is not None and chunk.end is not None:
            self._damage(chunk.path.name, "is sealed, but the next chunk is missing", seq=chunk.end)
        elif chunk is not None and not last:
            self._damage(chunk.path.name, "contains no entry", MOVE_AWAY)
        if self._label not in context.damaged:
            self._check_lost_entries(last)
        self._checkpoints.check_anchors()
        if self._label not in context.damaged:
            self._checkpoints.check_index()
        else:
            context.report.notes.append(
                f"label {self._label.hex()} is damaged: what follows from its damaged entries was not "
                "checked; check again when they are restored"
            )
        context.sizes[self._label] = last
        context.report.counters.labels += bool(last)

    def _check_lost_entries(self, last: int) -> None:
        """Report the first entry that was applied, is still in the journal, and is in no chunk."""
        for item in self._context.journal.of(self._label, journal.ENTRY):
            if item.seq > last and not self._context.is_pending(item):
                what = f"entry {item.seq} was applied, but is in no chunk"
                self._damage(item.file, what, offset=item.offset, seq=item.seq)
                return

    def _damage(
        self,
        file: str,
        what: str,
        remedy: str = RESTORE,
        *,
        seq: StreamSeq | None = None,
        offset: int | None = None,
    ) -> None:
        self._context.damage(self._label, file, what, remedy, seq=seq, offset=offset)

    def _fault(self, fact: EntryFacts, what: str) -> None:
        assert self._chunk is not None
        name = self._chunk.path.name
        self._context.report.fault(name, what, offset=fact.offset, label=self._label, seq=fact.seq)
