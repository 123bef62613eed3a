"""Metrics in Prometheus' format (OBS0.1, spec-4 §10.2, core §12).

Each stage (accepted, durable, applied, checkpointed, anchored) has a gauge of the entries that passed it, so
that the lag between two stages is a subtraction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from veen_core.rejection import Code
from veen_hub.ops import logs

_MS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)


@dataclass(slots=True)
class StageCounts:
    """Entries of this run that passed the first two stages; written by the sequencer's thread only."""

    accepted: int = 0
    """Entries whose place in the log was decided."""
    durable: int = 0
    """Entries of batches that were committed."""


class DroppedLogLines(Collector):
    """Counts the process's dropped log lines at the moment of the scrape."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        text = "Log lines that could not be written to stderr"
        yield CounterMetricFamily("veen_log_lines_dropped", text, logs.dropped())


class OverloadRefusals(Collector):
    """Exposes the waiting room's refusals; it counts them in a dict, which is cheaper than a ``Counter``."""

    def __init__(self, refused: Mapping[str, int]) -> None:
        self._refused = refused

    def collect(self) -> Iterator[CounterMetricFamily]:
        text = "Submit requests refused before admission because too much waited, by reason"
        family = CounterMetricFamily("veen_overload_refused", text, labels=("why",))
        for why, count in self._refused.items():
            family.add_metric((why,), count)
        yield family


class Metrics:
    """The metrics of one hub, in a registry of their own: two hubs in one process do not mix."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def milliseconds(name: str, text: str) -> Histogram:
            return Histogram(name, text, buckets=_MS, registry=registry)

        self.submit_ok = counter("veen_submit_ok_total", "Messages accepted")
        self.submit_err = counter("veen_submit_err_total", "Messages refused, by code", ("code",))
        self.submit_unavailable = self.submit_err.labels(Code.UNAVAILABLE.value)
        self.rate_limited = counter("veen_rate_limited_total", "Messages refused because of a rate limit")
        self.verify_ms = milliseconds(
            "veen_verify_latency_ms", "Time to check one message without the log's state"
        )
        self.commit_ms = milliseconds(
            "veen_commit_latency_ms", "Time to decide one batch and make it durable"
        )
        self.end_to_end_ms = milliseconds(
            "veen_end_to_end_latency_ms", "Time from receiving a submit request to its answer"
        )
        self.fsync_ms = milliseconds(
            "veen_fsync_latency_ms", "Time to write and sync one batch to the journal"
        )
        self.proof_ms = milliseconds(
            "veen_proof_latency_ms", "Time to make one inclusion or consistency proof"
        )
        self.batch_size = Histogram(
            "veen_batch_messages",
            "Actions in one group commit",
            buckets=(1, 4, 16, 64, 256, 1_024),
            registry=registry,
        )
        self.queue_depth = gauge("veen_queue_depth", "Messages in verification and sequencing")
        self.estimated_wait_ms = gauge(
            "veen_estimated_wait_ms", "Estimated time until every message that waits now is settled"
        )
        self.checkpoint_interval = Histogram(
            "veen_checkpoint_interval",
            "Entries between two checkpoints of a label",
            buckets=(1, 16, 256, 1_024, 4_096, 16_384, 65_536),
            registry=registry,
        )
        self.checkpoints = counter("veen_checkpoints_total", "Checkpoints made")
        self._add_hub_log(counter, gauge, milliseconds)
        self._add_replication(counter, gauge)
        self.anchor_fail = counter("veen_anchor_fail_total", "Attempts to anchor that failed")
        self.equivocation = counter(
            "veen_equivocation_reports_total",
            "Verified reports of equivocation, by the signing hub",
            ("whose",),
        )
        self.cap_checks = counter(
            "veen_cap_checks_total", "Tokens presented for authorization, by outcome", ("outcome",)
        )
        self.followers = gauge("veen_followers", "Open live streams")
        self.dropped_followers = counter(
            "veen_followers_dropped_total", "Followers dropped because they read too slowly"
        )
        self.stage = gauge(
            "veen_stage_entries",
            "Entries that passed a stage; at start, entries without a checkpoint (or anchor, if configured)",
            ("stage",),
        )
        self.appends = counter(
            "veen_stream_appends_total",
            "Entries appended, by configured stream name",
            ("stream",),
        )
        self.apply_lag_bytes = gauge("veen_wal_bytes", "Journal bytes that are durable and not yet applied")
        self.attachment_bytes = counter("veen_attachment_bytes_total", "Bytes of attachments in the store")
        self.attachments = counter("veen_attachments_total", "Attachments in the store")
        self.attachment_puts = counter(
            "veen_attachment_puts_total", "Uploads that were accepted, of new and of known attachments"
        )
        self.attachment_refused = counter(
            "veen_attachment_quota_refused_total", "Uploads refused because of a quota"
        )
        self.disk_bytes = gauge("veen_disk_bytes", "Size of the file system with the data directory")
        self.disk_free_bytes = gauge(
            "veen_disk_free_bytes", "Free bytes of the file system with the data directory"
        )
        self.view_lag = gauge("veen_revocation_view_lag_seconds", "Age of the policy view")
        self.ready = gauge("veen_ready", "1 if the hub was ready when last checked, else 0")
        registry.register(DroppedLogLines())

    def _add_hub_log(
        self,
        counter: Callable[..., Counter],
        gauge: Callable[..., Gauge],
        milliseconds: Callable[..., Histogram],
    ) -> None:
        """Declare the metrics of hub log, witnesses and memories (RESOLUTIONS P1-P3)."""
        self.signing = gauge("veen_signing", "1 if the hub may sign; 0 if its memories forbid it (P3)")
        self.hub_log_size = gauge("veen_hub_log_entries", "Entries of the hub log")
        self.hub_log_moved = gauge(
            "veen_hub_log_moved_labels", "Labels that have grown since the newest hub checkpoint"
        )
        self.hub_checkpoints = counter("veen_hub_checkpoints_total", "Hub checkpoints made")
        self.hub_checkpoint_age = gauge(
            "veen_hub_checkpoint_age_seconds", "Time since the newest hub checkpoint, or since the start"
        )
        self.witness_rounds = counter("veen_witness_rounds_total", "Witness rounds that have ended")
        self.witness_round_ms = milliseconds(
            "veen_witness_round_ms", "Time of one witness round, until the hub checkpoint is published"
        )
        self.witness_failures = counter(
            "veen_witness_failures_total", "Requests to a witness that brought no cosignature", ("witness",)
        )
        self.cosignature_age = gauge(
            "veen_cosignature_age_seconds", "Age of a witness's newest cosignature", ("witness",)
        )

    def _add_replication(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        """Declare the metrics of replicas (RESOLUTIONS P9)."""
        self.replicas = gauge("veen_replicas", "Replicas that are connected to this hub")
        self.replica_connected = gauge("veen_replica_connected", "1 if this replica follows its primary")
        self.replica_behind = gauge(
            "veen_replica_behind_batches", "Batches of the primary that are not durable at this replica"
        )
        self.replica_batches = counter("veen_replica_batches_total", "Batches of the primary made durable")
        self.replica_diverged = gauge("veen_replica_diverged", "1 if the primary contradicts this replica")
        self.replica_missing_attachments = gauge(
            "veen_replica_missing_attachments", "Attachments of the primary that this replica lacks"
        )

    def count_overload(self, refused: Mapping[str, int]) -> None:
        """Expose the refusals of the waiting room, by reason."""
        self.registry.register(OverloadRefusals(refused))

    def submit_counts(self) -> tuple[float, dict[str, float]]:
        """Return the number of accepted messages, and of refused ones by code."""
        accepted = sum(
            s.value for m in self.submit_ok.collect() for s in m.samples if s.name.endswith("_total")
        )
        refused = {
            sample.labels["code"]: sample.value
            for metric in self.submit_err.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
        }
        return accepted, refused

    def expose(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry)
