"""The whole log: every label verified and folded, pending items replayed. For fsck and repair."""

from __future__ import annotations

from collections.abc import Iterator

from veen_core.entry import FLAG_AUTHORIZE, FRAME_SIZE, decode_frame
from veen_core.errors import VeenError
from veen_core.ids import Label
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.commit.applier import encode_finishing
from veen_storage.commit.changes import Changes
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.entries import EntryRun
from veen_storage.fsck.files.log_files import chunks_of
from veen_storage.fsck.hub_log_fold import HubLogFold
from veen_storage.fsck.label_fold import LabelFold
from veen_storage.fsck.pending import pending_entries, replay_pending
from veen_storage.fsck.plan import ChunkBegins, ChunkEnds, Event, LabelBegins, LabelEnds, SpanPlanner
from veen_storage.fsck.report import ReportProgress
from veen_storage.fsck.workers import FsckWorkers


def check_log(
    context: FoldContext,
    workers: FsckWorkers,
    *,
    recent: int | None,
    surplus_remedy: str,
    progress: ReportProgress | None = None,
) -> None:
    """Check the log into the context; its derived index is complete afterwards."""
    planner = SpanPlanner(
        layout=context.layout, zstd=context.zstd, recent=recent, surplus_remedy=surplus_remedy
    )
    labels = sorted(
        context.log.labels.keys() | context.journal.labels.keys(),
        key=lambda label: (not _holds_tokens(context, label), label),
    )
    hub_log = HubLogFold(context)
    hub_log.read()
    fold: LabelFold | None = None
    for event, result in workers.verify(_plan(planner, context, labels)):
        if isinstance(event, LabelBegins):
            fold = LabelFold(context, event.label, hub_log.heads_of(event.label))
            continue
        assert fold is not None
        if result is not None:
            context.report.faults.extend(result.faults)
            context.report.counters.signatures += result.signatures
            fold.add(result.facts)
            _report_progress(progress, context)
            continue
        match event:
            case ChunkBegins(chunk):
                fold.begin_chunk(chunk)
            case ChunkEnds():
                fold.end_chunk(event)
            case LabelEnds():
                fold.end()
    hub_log.finish()
    finishing = encode_finishing([Changes(steps=context.unfinished)])
    context.derived.finish(context.trust.registry.hub_id, finishing)
    hub_log.derive()
    replay_pending(context, workers, verify_sigs=recent != 0)
    _report_progress(progress, context)
    _report_lost_entries(context)
    path = context.layout.checkpoint_binding
    if faults := list(context.bindings.check(path)):
        context.report.faults.extend(faults)
        context.rewrites[path] = b"".join(context.bindings.applied)
    _report_strays(context)


def _plan(planner: SpanPlanner, context: FoldContext, labels: list[Label]) -> Iterator[Event | EntryRun]:
    for label in labels:
        yield from planner.plan(label, context.log.of(label), pending_entries(context, label))


def _report_progress(progress: ReportProgress | None, context: FoldContext) -> None:
    if progress is not None:
        progress(context.report.counters.entries)


def _holds_tokens(context: FoldContext, label: Label) -> bool:
    """Whether a label's first entry is a token: such labels are folded before those that use the tokens."""
    for chunk in chunks_of(context.layout, label, context.log.of(label), zstd=context.zstd)[:1]:
        try:
            if not chunk.pruned:
                with ChunkFile(chunk.path, compressed=chunk.compressed) as file:
                    return bool(decode_frame(file.read(0, FRAME_SIZE)).flags & FLAG_AUTHORIZE)
        except (OSError, VeenError):
            return False  # reported when the label is folded
    return False


def _report_lost_entries(context: FoldContext) -> None:
    """Report entries that the existing index knows and no file holds. Such a label is damaged."""
    for label, size in context.known_sizes.items():
        held = context.sizes.get(label, 0)
        if size > held and label not in context.damaged:
            what = f"entries {held + 1} to {size} are in the index, but in no file"
            remedy = "restore the label's files from a clone, or move index/ away if the index is wrong"
            context.fault("log", what, label=label, seq=held + 1, remedy=remedy)
            context.damaged.add(label)
            context.bindings.complete = False


def _report_strays(context: FoldContext) -> None:
    """Report the files of intact labels that neither the log nor the journal accounts for."""
    for label, files in context.log.labels.items():
        if label in context.damaged:
            continue
        for path in files.artifacts(context.layout, label):
            context.fault(path.name, "belongs to no entry or checkpoint of the log", label=label)
