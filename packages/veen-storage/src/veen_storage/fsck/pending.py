"""Pending batches, which the index has not applied: check that the next start can apply all of them.

They pass through the verification with which a replica receives batches, on top of the derived index and in
memory only. Files of pending steps may exist already, left from an interrupted round. The next start
replaces most of them; only those that it appends to (the checkpoint indices and the binding) must agree with
what it will write. Nothing of this is checked if the log before these batches is damaged.
"""

from __future__ import annotations

from veen_core import cbor
from veen_core.entry import decode_frame
from veen_core.errors import DecodeError
from veen_core.ids import Label
from veen_storage.commit import journal
from veen_storage.commit.changes import Checkpointed, Placed, Sealed, Step
from veen_storage.commit.journal import Item, JournalBatch
from veen_storage.commit.replicated_batch import RefusedBatchError, ReplicatedBatch
from veen_storage.errors import REPAIR, DamageError, read_file
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.files.surplus_bytes import foreign_byte


def check_pending(context: FoldContext) -> None:
    """Verify the pending batches in order, up to the first that the next start could not apply."""
    if context.damaged:
        return
    steps, ledger, seen = list[Step](), context.derived.ledger, context.report.counters
    labels = {label for label, size in context.sizes.items() if size}
    for file, offset, batch in context.journal.batches:
        if batch.number <= context.derived.applied:
            continue
        items = tuple(item for item in batch.items if not _is_applied(context, item))
        try:
            verified = ReplicatedBatch(
                ledger, context.trust.identity, JournalBatch(batch.number, items), threads=1
            )
        except RefusedBatchError as exc:
            found = exc.receipt
            label, seq = (found.label, found.stream_seq) if found is not None else (None, None)
            context.report.fault(file, exc.why, offset=offset, label=label, seq=seq)
            context.journal.damaged = True
            return
        changes = verified.finish(batch.number)
        ledger.adopt(changes)
        steps += changes.steps
        seen.signatures += verified.signatures
        labels |= changes.new_labels.keys()
    seen.labels = len(labels)
    _account_for(context, steps)


def _is_applied(context: FoldContext, item: Item) -> bool:
    """Return whether a chunk contains the entry already, or nothing tells what the item continues."""
    if item.kind == journal.HUB_CHECKPOINT:
        return context.hub_log_damaged
    if item.kind != journal.ENTRY:
        return False
    header = decode_frame(item.data)
    return header.stream_seq <= context.sizes.get(header.label, 0)


def _account_for(context: FoldContext, steps: list[Step]) -> None:
    """Account for the files of pending steps, and check those that the next start appends to."""
    index_lines, binding_lines, seen = dict[Label, bytes](), list[bytes](), context.report.counters
    for step in steps:
        match step:
            case Placed():
                seen.entries, seen.bytes = seen.entries + 1, seen.bytes + len(step.frame)
            case Sealed(number, summary):
                context.log.of(summary.label).summaries.discard((summary.start_seq, summary.end_seq))
                if not context.derived.ledger.has_checkpoint(number, summary.end_seq):
                    what = f"the chunk ends at entry {summary.end_seq} without a checkpoint"
                    context.report.fault("journal", what, label=summary.label, seq=summary.end_seq)
            case Checkpointed():
                label, upto = step.checkpoint.label_curr, step.checkpoint.upto_seq
                context.log.of(label).peaks.discard(upto)
                context.log.of(label).checkpoints.discard(upto)
                index_lines[label] = index_lines.get(label, b"") + step.line.encode()
                binding_lines.append(step.binding.encode())
                seen.checkpoints += 1
            case _:
                pass
    for label, (offset, tail) in context.index_tails.items():
        if (at := foreign_byte(tail, index_lines.get(label, b""), offset)) is not None:
            path = context.layout.checkpoint_index(label)
            what = "contains a line that belongs to no checkpoint"
            context.report.fault(path.name, what, REPAIR, offset=at, label=label)
            context.rewrites[path] = path.read_bytes()[:offset]
    _check_binding(context, b"".join(binding_lines))


def _check_binding(context: FoldContext, pending: bytes) -> None:
    """Check the lines of ``checkpoint-binding.cbor``: the applied ones in any order, then pending ones."""
    path, missing, offset = context.layout.checkpoint_binding, context.binding_lines.copy(), 0
    what, at = "does not have exactly one line for each checkpoint", None
    try:
        data = read_file(path)
        lines = cbor.split_sequence(data)
        while missing and (line := next(lines, b"")) in missing:
            del missing[line]
            offset += len(line)
        at = offset if missing else foreign_byte(data[offset:], pending, offset)
        if at is None:
            return
    except DamageError as exc:
        what = exc.what
    except DecodeError:
        at = offset
    context.report.fault(path.name, what, REPAIR, offset=at)
    context.rewrites[path] = b"".join(context.binding_lines)
