"""Publish a committed batch: to metrics, to replicas, and to the followers of its labels.

``BatchPublisher.observe`` runs in the sequencer's thread after every batch. It counts, and leaves all other
work to the event loop, so that the next batch does not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from veen_core.entry import Entry
from veen_core.ids import Label, UnixTime
from veen_hub.ops.logs import LOGGER, log
from veen_hub.ops.metrics import Metrics, StageCounts
from veen_hub.pipeline.feed import Feed
from veen_hub.replica.announcements import Announcements
from veen_storage import Batch, Head


class BatchPublisher:
    """Tells metrics, replicas and followers of every batch; keeps the newest entry for ``/healthz``."""

    def __init__(
        self,
        metrics: Metrics,
        feed: Feed,
        announcements: Announcements,
        *,
        stream_name: Callable[[Label, UnixTime], str],
        committed: Callable[[Batch, Counter[Label]], None],
    ) -> None:
        """``committed``: called in the sequencer with each committed batch and its entries by label."""
        self.counts = StageCounts()
        self._metrics = metrics
        self._feed = feed
        self._announcements = announcements
        self._stream_name = stream_name
        self._committed = committed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._applied_before = 0
        self._last: Entry | Head | None = None
        self._summarized: tuple[float, dict[str, float]] = (0.0, {})
        metrics.stage.labels("accepted").set_function(lambda: self.counts.accepted)

    def start(self, loop: asyncio.AbstractEventLoop, applied_entries: int) -> None:
        """Begin to count; ``applied_entries`` were applied before this run."""
        self._loop = loop
        for name in ("durable", "checkpointed", "anchored"):
            self._metrics.stage.labels(name).set(0)
        self._applied_before = -applied_entries

    def start_at(self, newest: Entry | Head | None) -> None:
        """Set the newest entry that the log has at the start."""
        self._last = newest

    def count_backlog(self, entries: int) -> None:
        """In the sequencer: count entries that the last run left without a checkpoint or anchor."""
        self.counts.accepted += entries
        self.counts.durable += entries
        self._applied_before += entries
        self._metrics.stage.labels("durable").inc(entries)

    def observe(self, batch: Batch, seconds: float, sync_seconds: float, committed: bool) -> None:
        """In the sequencer, after every batch: record it, and leave the rest to the event loop."""
        counts = self.counts
        if committed:
            counts.durable = counts.accepted
        else:
            counts.accepted = counts.durable
        if not batch.items or self._loop is None:
            return
        entries = batch.entries if committed else []
        by_label = Counter(entry.label for entry in entries)
        if committed:
            self._committed(batch, by_label)
        names = {label: self._stream_name(label, batch.hub_ts) for label in by_label}
        times = (seconds, sync_seconds if committed else None)
        self._loop.call_soon_threadsafe(self._publish, len(batch.items), times, entries, by_label, names)

    def _publish(
        self,
        actions: int,
        times: tuple[float, float | None],
        entries: list[Entry],
        by_label: Counter[Label],
        names: dict[Label, str],
    ) -> None:
        """On the event loop: update the metrics of a batch and announce its entries to followers."""
        seconds, sync_seconds = times
        self._metrics.commit_ms.observe(seconds * 1_000)
        self._metrics.batch_size.observe(actions)
        if sync_seconds is None:
            return
        self._metrics.fsync_ms.observe(sync_seconds * 1_000)
        for label, count in by_label.items():
            self._metrics.appends.labels(names[label]).inc(count)
        self.announce(entries)

    def announce(self, entries: list[Entry]) -> None:
        """On the event loop: tell replicas and followers of durable entries, written here or replicated."""
        self._announcements.wake()
        if entries:
            self._last = entries[-1]
            self._metrics.stage.labels("durable").inc(len(entries))
        if self._feed.followers:
            self._feed.announce(entries)

    def last_entry(self) -> dict[str, object]:
        """Return facts about the newest entry, for ``/healthz`` (OBS0.3)."""
        last = self._last
        if last is None:
            return {"peaks_count": 0, "last_stream_seq": 0, "last_mmr_root": None}
        peaks = last.stream_seq.bit_count()
        return {
            "peaks_count": peaks,
            "last_stream_seq": last.stream_seq,
            "last_mmr_root": (last.receipt if isinstance(last, Entry) else last).mmr_root.hex(),
        }

    def refresh_applied(self, applied_entries: int) -> None:
        """Update the gauge of applied entries, before a scrape."""
        self._metrics.stage.labels("applied").set(self._applied_before + applied_entries)

    async def summarize(self) -> None:
        """Log how many messages were accepted and refused since the last summary."""
        if not LOGGER.isEnabledFor(logging.INFO):
            return
        accepted, refused = self._metrics.submit_counts()
        before, refused_before = self._summarized
        self._summarized = accepted, refused
        new = {code: int(count - refused_before.get(code, 0)) for code, count in refused.items()}
        new = {code: count for code, count in new.items() if count}
        if accepted != before or new:
            log(logging.INFO, "submits", accepted=int(accepted - before), refused=new)
