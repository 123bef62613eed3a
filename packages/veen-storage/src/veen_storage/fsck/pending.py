"""Pending items, which the index has not applied: check that the next start can apply all of them.

Items are replayed in the order of the journal, on top of the derived index and in memory only. Files of
pending steps may exist already, left from an interrupted round. The next start replaces most of them; only
those that it appends to (the checkpoint indices and the binding) must agree with what it will write.
"""

from __future__ import annotations

from collections.abc import Iterator

from veen_core.checkpoint import Checkpoint
from veen_core.errors import VeenError
from veen_core.ids import Label, StreamSeq
from veen_storage.commit import hub_log, journal
from veen_storage.commit.changes import Anchor, Checkpointed, Prune, Sealed, Step
from veen_storage.commit.ledger import Draft
from veen_storage.commit.writer import file_anchor, file_checkpoint, file_prune
from veen_storage.errors import REPAIR
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.entries import EntryFacts, EntryRun
from veen_storage.fsck.entry_order import note_content, place_entry
from veen_storage.fsck.files.checkpoint_files import check_checkpoint
from veen_storage.fsck.files.derived_files import check_tail, describe
from veen_storage.fsck.files.log_files import MAX_SEQ
from veen_storage.fsck.journal_items import HubItem, JournalItem
from veen_storage.fsck.workers import FsckWorkers
from veen_storage.index.records import LabelCursor


def pending_entries(context: FoldContext, label: Label) -> dict[StreamSeq, JournalItem]:
    """Return the entries of a label that the index has not applied."""
    items = context.journal.of(label, journal.ENTRY)
    return {item.seq: item for item in items if context.is_pending(item)}


def replay_pending(context: FoldContext, workers: FsckWorkers, *, verify_sigs: bool) -> None:
    """Replay every pending item; report those that the next start could not apply."""
    replay = _Replay(context)
    for event, result in workers.verify(_events(context, verify_sigs=verify_sigs)):
        if result is not None:
            context.report.faults.extend(result.faults)
            context.report.counters.signatures += result.signatures
            replay.fact = result.facts[0] if result.facts else None
        elif isinstance(event, JournalItem):
            replay.item(event)
        elif isinstance(event, HubItem):
            replay.hub_extension(event)
    replay.finish()


def _events(context: FoldContext, *, verify_sigs: bool) -> Iterator[JournalItem | HubItem | EntryRun]:
    """Yield each pending item; before an entry, also the span with which a worker verifies it."""
    for item in context.journal.items:
        if not context.is_pending(item):
            continue
        if isinstance(item, HubItem):
            yield item
            continue
        if item.kind == journal.ENTRY and item.seq <= context.sizes.get(item.label, 0):
            continue  # not pending: a chunk contains it already
        if item.kind == journal.ENTRY:
            yield EntryRun(
                path=context.layout.journal / item.file,
                label=item.label,
                frames=((item.offset, len(item.data)),),
                inline=(item.data,),
                sigs_from=StreamSeq(0) if verify_sigs else MAX_SEQ,
            )
        yield item


class _Replay:
    """Applies journal items to a draft that is never written."""

    def __init__(self, context: FoldContext) -> None:
        self._context = context
        self._draft = Draft(context.derived.ledger)
        self.fact: EntryFacts | None = None
        """Facts about the next entry, from its span; None if the entry cannot be decoded."""

    def item(self, item: JournalItem) -> None:
        if item.label in self._context.damaged:
            return
        try:
            match item.kind:
                case journal.ENTRY:
                    self._entry(item)
                case journal.CHECKPOINT:
                    self._checkpoint(item)
                case journal.ANCHOR:
                    file_anchor(self._draft, Anchor.decode(item.data))
                case _:
                    file_prune(self._draft, Prune.decode(item.data))
        except VeenError as exc:
            self._fault(item, describe(exc))
            self._context.damaged.add(item.label)

    def hub_extension(self, item: HubItem) -> None:
        """Replay an extension of the hub log; with a damaged label, nothing tells which labels moved."""
        context = self._context
        if context.damaged or context.hub_log_damaged:
            return
        try:
            hub_log.replay(self._draft, context.trust.identity, item.extension)
        except VeenError as exc:
            context.fault(item.file, describe(exc), offset=item.offset)
            context.hub_log_damaged = True
        context.report.counters.signatures += 1

    def _cursor(self, label: Label) -> LabelCursor:
        if self._draft.label(label) is not None:
            return self._draft.own(label)
        self._context.report.counters.labels += 1
        return self._context.derived.begin(label, self._draft)

    def _entry(self, item: JournalItem) -> None:
        cursor, fact, draft = self._cursor(item.label), self.fact, self._draft
        counters = self._context.report.counters
        counters.entries, counters.bytes = counters.entries + 1, counters.bytes + len(item.data)
        if item.seq != cursor.log.size + 1:
            raise VeenError(f"entry {item.seq} does not follow entry {cursor.log.size}")
        if fact is None or not fact.valid:
            self._context.damaged.add(item.label)  # reported by the span
            return
        if draft.must_roll(cursor, fact.size):
            if cursor.checkpointed != cursor.log.size:
                raise VeenError(f"the chunk ends at entry {cursor.log.size} without a checkpoint")
            draft.seal_chunk(cursor)
        broken = place_entry(draft, cursor, fact)
        broken += note_content(draft, cursor, fact, self._context.tokens)
        for error in broken:
            self._fault(item, str(error))
        if broken and cursor.log.root != fact.root:
            self._context.damaged.add(item.label)

    def _checkpoint(self, item: JournalItem) -> None:
        cursor, held = self._cursor(item.label), Checkpoint.decode(item.data)
        check_checkpoint(self._context.trust, cursor, held)
        file_checkpoint(self._draft, self._context.trust.identity, cursor, held)
        self._context.report.counters.checkpoints += 1

    def _fault(self, item: JournalItem, what: str) -> None:
        self._context.fault(item.file, what, offset=item.offset, label=item.label, seq=item.seq)

    # --- files that an interrupted round may have left

    def finish(self) -> None:
        """Check the appended files, and account for the files of pending steps."""
        lines: dict[Label, list[bytes]] = {}
        for step in self._draft.changes.steps:
            self._account_for(step)
            if isinstance(step, Checkpointed):
                lines.setdefault(step.checkpoint.label_curr, []).append(step.line.encode())
                self._context.bindings.pending.append(step.binding.encode())
        for label, (offset, tail) in self._context.index_tails.items():
            at = check_tail(tail, b"".join(lines.get(label, ())), offset)
            if at is not None and label not in self._context.damaged:
                path = self._context.layout.checkpoint_index(label)
                what = "contains a line that belongs to no checkpoint"
                self._context.fault(path.name, what, offset=at, label=label, remedy=REPAIR)
                self._context.rewrites[path] = path.read_bytes()[:offset]

    def _account_for(self, step: Step) -> None:
        if isinstance(step, Sealed):
            files = self._context.log.of(step.summary.label)
            files.summaries.discard((step.summary.start_seq, step.summary.end_seq))
        elif isinstance(step, Checkpointed):
            files = self._context.log.of(step.checkpoint.label_curr)
            files.peaks.discard(step.checkpoint.upto_seq)
            files.checkpoints.discard(step.checkpoint.upto_seq)
