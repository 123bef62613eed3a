"""Upkeep: checkpoints, anchors and retention, by count, by time, or at an admin's request.

A scheduled task that fails is logged and repeated; a failed request of an admin is answered with the error.
Every change is an action for the sequencer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from veen_core import stream
from veen_core.checkpoint import Checkpoint
from veen_core.errors import ApiError
from veen_core.ids import NO_ENTRIES, HubId, Label, StreamId, StreamSeq, UnixTime
from veen_core.protocols import Clock
from veen_core.rejection import Code
from veen_hub.admission.labels import LabelMap
from veen_hub.admission.policy import AdmissionPolicy
from veen_hub.ops.anchors import AnchoredRoot, AnchorError, AnchorPublisher
from veen_hub.ops.chores import Chore
from veen_hub.ops.config import HubConfig, RetentionRule
from veen_hub.ops.logs import log
from veen_hub.ops.metrics import Metrics
from veen_hub.pipeline.log_access import LogAccess
from veen_storage import (
    LONG_TERM,
    Anchored,
    Batch,
    Checkpointed,
    LabelProgress,
    PrunePolicy,
    PruneRule,
    StorageError,
    Store,
)

LABELS_PER_BATCH: Final = 64
"""Labels that are checkpointed in one batch: they share a sync, and submits do not wait long behind them."""


class Upkeep:
    """Checkpoints, anchors and retention of one running hub."""

    def __init__(
        self,
        config: HubConfig,
        store: Store,
        log_access: LogAccess,
        *,
        clock: Clock,
        metrics: Metrics,
        labels: LabelMap,
        anchor: AnchorPublisher | None,
        control_label: Label,
        policy: AdmissionPolicy,
        on_backlog: Callable[[int], None],
        anchors_control: bool = True,
    ) -> None:
        """``on_backlog``, called in the sequencer, counts entries that the last run left uncovered.

        ``anchors_control``: whether this hub anchors the control label, and not another process of it.
        """
        self._config = config
        self._store = store
        self._log = log_access
        self._clock = clock
        self._metrics = metrics
        self._labels = labels
        self._anchor = anchor
        self._not_anchored = None if anchors_control else control_label
        self._control_label = control_label
        self._policy = policy
        self._on_backlog = on_backlog
        self._scan: asyncio.Task[None] | None = None
        self._scanned: Label | None = None
        """The last label that the scan has read."""
        self._scanning = True
        self._touched: set[Label] = set()
        """Labels that batches changed before the scan has ended; their backlog is noted."""
        self._grown: dict[Label, int] = {}
        """Number of entries after the last checkpoint, by label; owned by the sequencer after ``start``."""
        self._unanchored: dict[Label, tuple[StreamSeq, int]] = {}
        """Newest checkpoint that is not anchored, and how many entries it covers that no anchor does, by
        label; owned by the sequencer after ``start``."""
        self._streams: dict[Label, StreamId | None] = {}
        """The configured stream of a label, once it was determined."""
        self._tasks: list[asyncio.Task[None]] = []

    # --- running

    async def start(self) -> None:
        """Start the chores, and find in the background which labels the last run left behind."""
        self._scan = asyncio.create_task(self._find_backlog())
        config = self._config
        chores = [
            Chore("checkpoints", lambda: self.checkpoint(None), config.checkpoints.every_sec),
            Chore("retention", self.prune, config.retention.every_sec),
        ]
        if self._anchor is not None:
            retry = min(config.anchor.retry_sec, config.anchor.every_sec)
            chores.append(Chore("anchors", lambda: self.anchor(None), config.anchor.every_sec, retry))
        self._tasks = [asyncio.create_task(chore.repeat()) for chore in chores if chore.every_sec]

    async def _find_backlog(self) -> None:
        """Read every label's progress page by page, so that starting does not depend on their number.

        The scan only reads the log (``reads``), so it runs while a policy's view is stale after the start.
        """
        read = self._store.read
        try:
            while page := await self._log.read(partial(read.label_progress, self._scanned)):
                await self._log.act(partial(self._note_page, page), reads=True)
                self._scanned = page[-1].label
            await self._log.act(self._end_scan, reads=True)
        except Exception as exc:
            log(logging.ERROR, "backlog_scan_failed", error=str(exc))
            raise

    def _note_page(self, page: list[LabelProgress], _batch: Batch) -> None:
        """Note the backlog of labels, in the sequencer, except those that a batch of this run has noted."""
        for found in page:
            if found.label not in self._touched:
                self._note_backlog(found)

    def _end_scan(self, _batch: Batch) -> None:
        self._scanning = False
        self._touched.clear()

    def _note_backlog(self, found: LabelProgress) -> None:
        """Count the entries of one label that the last run left without checkpoint or anchor."""
        anchored = found.anchored if self._is_anchored(found.label) else found.checkpointed
        to_checkpoint, to_anchor = found.entries - found.checkpointed, found.checkpointed - anchored
        if to_checkpoint:
            self._grown[found.label] = to_checkpoint
        if to_anchor:
            self._unanchored[found.label] = found.checkpointed, to_anchor
        if to_checkpoint or to_anchor:
            self._metrics.stage.labels("checkpointed").inc(to_anchor)
            self._on_backlog(to_checkpoint + to_anchor)

    def _note_touched(self, batch: Batch, counts: Mapping[Label, int]) -> None:
        """During the scan: note the backlog that a batch's labels had before the batch."""
        covered: dict[Label, int] = {}
        labels = set(counts)
        for step in batch.view.changes.steps:
            if isinstance(step, Checkpointed):
                label = step.checkpoint.label_curr
                covered[label] = covered.get(label, 0) + step.covered
                labels.add(label)
            elif isinstance(step, Anchored):
                labels.add(step.anchor.label)
        for label in labels - self._touched:
            if (cursor := batch.label(label)) is not None:
                entries = StreamSeq(cursor.log.size - counts.get(label, 0))
                checkpointed = StreamSeq(cursor.checkpointed - covered.get(label, 0))
                anchored = min(checkpointed, self._store.read.anchored_upto(label))
                self._note_backlog(LabelProgress(label, entries, checkpointed, anchored))
        self._touched |= labels

    async def stop(self) -> None:
        tasks = [*self._tasks, *([self._scan] if self._scan is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def committed(self, batch: Batch, counts: Mapping[Label, int]) -> None:
        """Record a durable batch, in the sequencer's thread; ``counts`` are the new entries by label.

        The batch may have made checkpoints that were not requested: each chunk that ends gets one.
        """
        if self._scanning:
            self._note_touched(batch, counts)
        for label, count in counts.items():
            self._grown[label] = self._grown.get(label, 0) + count
        for step in batch.view.changes.steps:
            match step:
                case Checkpointed():
                    self._checkpointed(batch, step)
                case Anchored():
                    self._anchored(step.anchor.label, step.anchor.upto_seq)

    def _checkpointed(self, batch: Batch, step: Checkpointed) -> None:
        made, entries = step.checkpoint, step.covered
        label, cursor = made.label_curr, batch.label(made.label_curr)
        after = cursor.log.size - made.upto_seq if cursor is not None else 0
        self._grown.pop(label, None)
        if after:
            self._grown[label] = after
        self._metrics.checkpoints.inc()
        self._metrics.checkpoint_interval.observe(entries)
        self._metrics.stage.labels("checkpointed").inc(entries)
        if self._is_anchored(label):
            _before, waiting = self._unanchored.get(label, (NO_ENTRIES, 0))
            self._unanchored[label] = made.upto_seq, waiting + entries

    def _anchored(self, label: Label, upto_seq: StreamSeq) -> None:
        """Record an anchor; a checkpoint that is newer than its request still waits for an anchor."""
        newest, waiting = self._unanchored.pop(label, (upto_seq, 0))
        after = newest - upto_seq
        if after > 0:
            self._unanchored[label] = newest, after
        self._metrics.stage.labels("anchored").inc(max(0, waiting - after))

    # --- checkpoints

    def checkpoint_if_due(self, batch: Batch, label: Label) -> None:
        """Make a checkpoint, in the sequencer's thread, if the label has grown enough since the last."""
        cursor = batch.label(label)
        every = self._config.checkpoints.every_entries
        if cursor is not None and cursor.log.size - cursor.checkpointed >= every:
            self._checkpoint(batch, label)

    def _checkpoint(self, batch: Batch, label: Label) -> Checkpoint | None:
        """Make a checkpoint in the sequencer's thread; None if the last one covers the label."""
        if batch.label(label) is None:
            raise ApiError(Code.NOT_FOUND, f"label {label.hex()} has no entries to checkpoint")
        return batch.checkpoint(label)

    def _checkpoint_if_whole(self, batch: Batch, label: Label) -> Checkpoint | None:
        """Make a checkpoint in the sequencer's thread; skip and log a label that storage refuses to read."""
        try:
            batch.label(label)
        except StorageError as exc:
            log(logging.ERROR, "checkpoint_skipped", label=label.hex(), error=str(exc))
            return None
        return self._checkpoint(batch, label)

    async def checkpoint(self, label: Label | None) -> list[Checkpoint]:
        """Make checkpoints now: of one label, or of every label that grew since its last one."""
        if label is not None:
            made = await self._log.act(lambda batch: self._checkpoint(batch, label))
            last = made or await self._latest(label)
            return [last] if last is not None else []
        await self._backlog_found()
        found: list[Checkpoint] = []
        grown = await self._log.act(lambda _batch: sorted(self._grown))
        for at in range(0, len(grown), LABELS_PER_BATCH):
            some = grown[at : at + LABELS_PER_BATCH]
            new = await self._log.act(
                lambda batch, some=some: [self._checkpoint_if_whole(batch, one) for one in some]  # type: ignore[misc]
            )
            found += [checkpoint for checkpoint in new if checkpoint is not None]
        return found

    async def _backlog_found(self) -> None:
        """Wait until every label that the last run left behind is known; a scan that failed is continued."""
        scan = self._scan
        if scan is not None and scan.done() and not scan.cancelled() and scan.exception() is not None:
            scan = self._scan = asyncio.create_task(self._find_backlog())
        if scan is not None:
            await asyncio.shield(scan)

    async def _latest(self, label: Label) -> Checkpoint | None:
        return await self._log.read(lambda: self._store.read.latest_checkpoint(label))

    # --- anchors

    def _is_anchored(self, label: Label) -> bool:
        """Return whether the checkpoints of a label are anchored here."""
        return self._anchor is not None and label != self._not_anchored

    async def anchor(self, label: Label | None) -> list[Checkpoint]:
        """Publish the newest checkpoint of one label, or of every label where it is not anchored yet."""
        if self._anchor is None:
            raise ApiError(
                Code.NOT_FOUND, "no anchor is configured on this hub: set anchor.backend in hub.yaml"
            )
        if label is None:
            await self._backlog_found()
        done: list[Checkpoint] = []
        labels = await self._log.act(lambda _batch: [label] if label is not None else [*self._unanchored])
        for one in labels:
            try:
                checkpoint = await self._anchor_latest(self._anchor, one)
            except StorageError as exc:
                if label is not None:
                    raise
                log(logging.ERROR, "anchor_skipped", label=one.hex(), error=str(exc))
                continue
            if checkpoint is not None:
                done.append(checkpoint)
        return done

    async def _anchor_latest(self, anchor: AnchorPublisher, label: Label) -> Checkpoint | None:
        """Publish one label's newest checkpoint; None if it has none.

        The first action makes storage check the label, so that nothing about a damaged label is published.
        """
        await self._log.act(lambda batch: batch.label(label))
        if (last := await self._latest(label)) is None:
            return None
        root = anchored_root(self._store.identity.hub_id, last, self._clock.now())
        anchor_ref = await self._publish(anchor, root)
        await self._log.act(lambda batch: batch.anchor(label, last.upto_seq, anchor_ref))
        return last

    async def _publish(self, anchor: AnchorPublisher, root: AnchoredRoot) -> bytes:
        try:
            return await anchor.publish(root)
        except AnchorError as exc:
            self._metrics.anchor_fail.inc()
            log(logging.WARNING, "anchor_failed", label=root.label.hex(), error=str(exc))
            raise ApiError(Code.UNAVAILABLE, str(exc), retry_after=self._config.anchor.retry_sec) from exc

    # --- retention

    def retention_policy(self) -> PrunePolicy:
        """Return the rule of each label; a stream's rule covers its labels of all epochs.

        A rule in the configuration overrides the retention of the label's class.
        """
        settings = self._config.retention
        by_stream = {stream.stream_id(name): _rule(rule) for name, rule in settings.streams.items()}
        rules = {label: PruneRule(max_age_sec=age) for label, age in self._policy.retention().items()}
        for label in self._store.read.all_labels() if by_stream else ():
            try:
                found = self._stream_of(label, by_stream)
            except StorageError as exc:  # keep the payloads of a label whose rule is unknown
                log(logging.ERROR, "retention_skipped", label=label.hex(), error=str(exc))
                rules[label] = LONG_TERM
                continue
            if found is not None:
                rules[label] = by_stream[found]
        rules |= {label: _rule(rule) for label, rule in settings.labels.items()}
        return PrunePolicy(default=_rule(settings.default), labels=rules)

    def _stream_of(self, label: Label, streams: Collection[StreamId]) -> StreamId | None:
        if label not in self._streams:
            first_ts = self._store.read.receipt(label, StreamSeq(1)).hub_ts
            self._streams[label] = self._labels.stream_of(label, first_ts, streams)
        return self._streams[label]

    async def prune(self) -> tuple[int, int]:
        """Apply the retention rules now; return the number of chunks and entries that were pruned."""
        now = self._clock.now()
        decisions = await self._log.read(
            lambda: self._store.due(self.retention_policy(), now, keep=self._control_label)
        )
        for decision in decisions:
            await self._log.act(lambda batch, one=decision: batch.prune(one))  # type: ignore[misc]
        return len(decisions), sum(d.end_seq - d.start_seq + 1 for d in decisions)


def anchored_root(hub: HubId, checkpoint: Checkpoint, now: UnixTime) -> AnchoredRoot:
    """Make the record of a checkpoint that an anchor publishes (ANCHOR0)."""
    return AnchoredRoot(
        hub_id=hub,
        label=checkpoint.label_curr,
        upto_seq=checkpoint.upto_seq,
        mmr_root=checkpoint.mmr_root,
        epoch=checkpoint.epoch,
        ts=UnixTime(now),
    )


def _rule(settings: RetentionRule) -> PruneRule:
    if settings.long_term:
        return LONG_TERM
    return PruneRule(max_age_sec=settings.max_age_sec, max_bytes=settings.max_bytes)
