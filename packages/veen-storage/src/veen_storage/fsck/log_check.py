"""The whole log: every label verified and folded, pending items replayed. For fsck and repair."""

from __future__ import annotations

from functools import partial
from itertools import groupby

from veen_core.entry import FLAG_AUTHORIZE, FRAME_SIZE, decode_frame
from veen_core.errors import VeenError
from veen_core.ids import Label, StreamSeq
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.entries import check_run, weigh
from veen_storage.fsck.files.log_files import chunks_of
from veen_storage.fsck.hub_log_fold import HubLogFold
from veen_storage.fsck.label_fold import LabelFold
from veen_storage.fsck.pending import check_pending
from veen_storage.fsck.plan import runs_of
from veen_storage.fsck.report import ReportProgress, no_progress
from veen_storage.fsck.workers import FsckWorkers


def check_log(
    context: FoldContext,
    workers: FsckWorkers,
    *,
    recent: int | None,
    surplus_remedy: str,
    progress: ReportProgress = no_progress,
) -> None:
    """Check the log into the context; its derived index is complete afterwards."""
    hub_log = HubLogFold(context)
    hub_log.read()
    labels = sorted(
        context.log.labels.keys() | context.journal.labels.keys(),
        key=lambda label: (not _holds_tokens(context, label), label),
    )
    runs = (
        run
        for label in labels
        for run in runs_of(context, label, recent=recent, surplus_remedy=surplus_remedy)
    )
    results = workers.map(partial(check_run, context.trust), runs, weigh)
    for label, found in groupby(results, key=lambda each: each[0].chunk.label):
        fold = LabelFold(context, label, hub_log.heads_of(label))
        for run, result in found:
            fold.add(run, result)
            progress(context.report.counters.entries)
        fold.end()
    for label in labels:
        if label not in context.sizes:  # it has no chunk
            LabelFold(context, label, hub_log.heads_of(label)).end()
    hub_log.finish()
    context.derived.finish(context.trust.registry.hub_id, context.finishing)
    hub_log.derive()
    _report_lost_entries(context)
    check_pending(context)
    progress(context.report.counters.entries)
    _report_strays(context)


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
            context.damage(label, "log", what, remedy, seq=StreamSeq(held + 1))


def _report_strays(context: FoldContext) -> None:
    """Report the files that neither the log nor the journal accounts for."""
    for label, files in () if context.damaged or context.journal.damaged else context.log.labels.items():
        for path in files.artifacts(context.layout, label):
            what = "belongs to no entry or checkpoint of the log"
            context.report.fault(path.name, what, label=label)
