"""The ordered check of one label: its entries and the boundaries of its chunks (core §4.8).

A fault that breaks the order (an entry that is missing or unreadable, a wrong root) ends the fold of its
chunk. The next chunk is folded again from the checkpoint before it, so that faults are reported for each
chunk. The index rows of a damaged label are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from veen_core import checkpoint as checkpoints
from veen_core import chunk as chunks
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import chunk_name
from veen_core.errors import VeenError
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.mmr import Mmr
from veen_storage.chunks.pruned_chunk import read_pruned_head
from veen_storage.chunks.retention import pruned_form
from veen_storage.commit import journal
from veen_storage.commit.changes import Prune, Sealed
from veen_storage.commit.ledger import Draft
from veen_storage.errors import REPAIR, RESTORE, DamageError
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.entries import EntryFacts
from veen_storage.fsck.entry_order import note_content, place_entry
from veen_storage.fsck.files.checkpoint_files import CheckpointFiles
from veen_storage.fsck.files.derived_files import LabelArtifacts, describe
from veen_storage.fsck.files.log_files import ChunkRef
from veen_storage.fsck.hub_log_fold import FoldedHeads
from veen_storage.fsck.plan import ChunkEnds
from veen_storage.fsck.report import MOVE_AWAY
from veen_storage.index.records import LabelCursor


class LabelFold:
    """Folds one label: ``begin_chunk``, ``add`` and ``end_chunk`` for each chunk, then ``end``."""

    def __init__(self, context: FoldContext, label: Label, heads: FoldedHeads) -> None:
        self._context = context
        self._heads = heads
        self._label = label
        self._files = context.log.of(label)
        self._artifacts = LabelArtifacts(context.report, context.rewrites, label)
        self._cursor: LabelCursor | None = None
        """None before the first chunk, and from a fault that breaks the order until the next chunk."""
        self._next = StreamSeq(1)
        self._unfolded_from: StreamSeq | None = None
        self._resumed = False
        self._chunk: ChunkRef | None = None
        self._starts_chunk = False
        self._skips_chunk = False
        self._checkpoints = CheckpointFiles(context, label, self._artifacts)

    @property
    def _draft(self) -> Draft:
        return self._context.derived.draft

    # --- chunk files

    def begin_chunk(self, chunk: ChunkRef) -> None:
        self._skips_chunk = chunk.start < self._next
        if self._skips_chunk:
            what = f"overlaps the previous chunk, which ends at entry {self._next - 1}"
            self._context.fault(chunk.path.name, what, label=self._label, seq=chunk.start)
            self._context.damaged.add(self._label)
            return
        if chunk.start > self._next:
            self._report_gap(chunk.start)
            self._break_off(self._next)
            self._next = chunk.start
        self._chunk, self._starts_chunk = chunk, True
        if chunk.start == 1:
            self._cursor = self._context.derived.begin(self._label, self._draft)
        elif self._cursor is None:
            self._resume(chunk.start)

    def _report_gap(self, start: StreamSeq) -> None:
        at = self._next
        for first, last in sorted(self._files.summaries):
            if first == at and last < start:
                name = chunk_name(self._label, first, last)
                self._context.fault(name, "is missing, but its summary exists", label=self._label, seq=first)
                at = StreamSeq(last + 1)
        if at < start:
            name = chunk_name(self._label, at, StreamSeq(start - 1))
            self._context.fault(
                name, f"no chunk contains entries {at} to {start - 1}", label=self._label, seq=at
            )

    def end_chunk(self, ended: ChunkEnds) -> None:
        """Check that a chunk ends where its name says, and at the end of an entry."""
        chunk, damage = ended.chunk, ended.damage
        if ended.surplus:
            self._context.report.notes.append(
                f"{chunk.path.name} ends in part of an interrupted write, from byte {ended.size} on: "
                "the next start writes it again from the journal"
            )
        if self._skips_chunk:
            self._skips_chunk = False
            return
        place = {"label": self._label, "seq": self._next}
        if damage is not None:
            remedy = REPAIR if damage.action == REPAIR else RESTORE
            offset = damage.offset
            self._context.fault(chunk.path.name, damage.what, offset=offset, remedy=remedy, **place)
            rest = "the file" if chunk.end is None else f"entry {chunk.end}"
            self._context.report.notes.append(
                f"{chunk.path.name}: nothing from byte {damage.offset or 0} to the end of {rest} was checked"
            )
            self._break_off(self._next)
        elif chunk.end is not None and self._next != chunk.end + 1:
            what = f"ends after entry {self._next - 1}, but its name says {chunk.end}"
            self._context.fault(chunk.path.name, what, offset=ended.size, **place)
            self._break_off(self._next)
        if chunk.end is not None:
            self._next = StreamSeq(chunk.end + 1)

    def _break_off(self, seq: StreamSeq) -> None:
        """Stop the fold at an entry, until the next chunk."""
        self._context.damaged.add(self._label)
        self._cursor = None
        if self._unfolded_from is None:
            self._unfolded_from = seq

    def _resume(self, start: StreamSeq) -> None:
        """Continue the fold from the checkpoint before a chunk, if it and its peaks can be read."""
        upto = StreamSeq(start - 1)
        layout = self._context.layout
        try:
            held = Checkpoint.decode(layout.checkpoint(self._label, upto).read_bytes())
            peaks = chunks.decode_peaks(layout.peaks(self._label, upto).read_bytes())
            checkpoints.check_transition(held, Mmr(upto, peaks))
        except (OSError, VeenError):
            return
        self._note_unfolded()
        known = self._draft.label(self._label) or self._context.derived.begin(self._label, self._draft)
        self._cursor = LabelCursor(
            self._label, known.number, Mmr(upto, peaks), Mmr(), start, 0, UnixTime(0), upto, 0
        )
        self._draft.changes.heads[self._label] = self._cursor
        self._resumed = True

    def _note_unfolded(self) -> None:
        if self._unfolded_from is not None:
            self._context.report.notes.append(
                f"label {self._label.hex()}: roots and order of entries {self._unfolded_from} to "
                f"{self._next - 1} could not be checked, nor the index's rows of this label"
            )
            self._unfolded_from = None

    # --- entries

    def add(self, facts: Sequence[EntryFacts]) -> None:
        """Fold the next entries of the chunk."""
        if self._skips_chunk:
            return
        for fact in facts:
            self._add(fact)
        counters = self._context.report.counters
        counters.entries += len(facts)
        counters.bytes += sum(fact.size for fact in facts)
        self._context.derived.settle()
        if self._cursor is not None:
            self._cursor = self._draft.own(self._label)

    def _add(self, fact: EntryFacts) -> None:
        if fact.seq != self._next:
            self._fault(fact, f"is where entry {self._next} should be")
            self._break_off(self._next)
        self._next = StreamSeq(fact.seq + 1)
        if fact.seq == self._heads.next_seq:
            self._heads.check(fact)
        if not fact.valid:
            self._break_off(fact.seq)
        if self._cursor is None:
            return
        self._check_boundary(fact, self._cursor)
        cursor, draft, context = self._cursor, self._draft, self._context
        broken = place_entry(draft, cursor, fact)
        broken += note_content(draft, cursor, fact, context.tokens, follow_writers=not self._resumed)
        for error in broken:
            self._fault(fact, str(error))
        if broken and cursor.log.root != fact.root:  # place_entry has compared them already
            self._break_off(fact.seq)
        elif fact.seq in self._checkpoints.expected:
            self._checkpoints.check(fact.seq, cursor)

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
        self._artifacts.compare(path, step.summary.encode(), seq=end, rewrite=not pruned)
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
                context.fault(path.name, describe(exc), offset=0, label=self._label, seq=start)
                context.damaged.add(self._label)
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
        self._artifacts.compare(path, right, seq=decision.start_seq)

    # --- the end

    def end(self) -> None:
        """Check the rules that need all chunks of the label."""
        context, chunk = self._context, self._chunk
        if chunk is not None and chunk.end is not None:
            what = "is sealed, but the next chunk is missing"
            context.fault(chunk.path.name, what, label=self._label, seq=chunk.end)
            context.damaged.add(self._label)
        last = self._next - 1
        if chunk is not None and not last:
            context.fault(chunk.path.name, "contains no entry", label=self._label, remedy=MOVE_AWAY)
            context.damaged.add(self._label)
        if self._label not in context.damaged:
            self._check_lost_entries(last)
        self._checkpoints.check_anchors()
        self._note_unfolded()
        if self._label in context.damaged:
            context.bindings.complete = False
        else:
            self._checkpoints.check_index()
        context.sizes[self._label] = last
        context.report.counters.labels += bool(last)

    def _check_lost_entries(self, last: int) -> None:
        """Report the first entry that was applied, is still in the journal, and is in no chunk."""
        for item in self._context.journal.of(self._label, journal.ENTRY):
            if item.seq > last and not self._context.is_pending(item):
                what = f"entry {item.seq} was applied, but is in no chunk"
                self._context.fault(item.file, what, offset=item.offset, label=self._label, seq=item.seq)
                self._context.damaged.add(self._label)
                return

    def _fault(self, fact: EntryFacts, what: str) -> None:
        assert self._chunk is not None
        name = self._chunk.path.name
        self._context.fault(name, what, offset=fact.offset, label=self._label, seq=fact.seq)
