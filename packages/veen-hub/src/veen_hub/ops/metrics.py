"""What the hub counts and times, in Prometheus' format (OBS0.1, spec-4 §10.2, §12).

One gauge per stage (accepted, durable, applied, checkpointed, anchored), so that lag is a subtraction.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from veen_hub.ops import logs

_MS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)


class LostLines(Collector):
    """Read off when somebody asks: the log is the process's, not a hub's."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        text = "Lines of the log that stderr did not take"
        yield CounterMetricFamily("veen_log_lines_dropped", text, logs.dropped())


class Metrics:
    """One registry per hub, so that two hubs in one process do not mix."""

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
        self.rate_limited = counter("veen_rate_limited_total", "Messages refused by a token's rate")
        self.verify_ms = milliseconds("veen_verify_latency_ms", "Examining one message")
        self.commit_ms = milliseconds(
            "veen_commit_latency_ms", "Settling one batch, from taking it to durable"
        )
        self.end_to_end_ms = milliseconds(
            "veen_end_to_end_latency_ms", "One submit request, read to answered"
        )
        self.fsync_ms = milliseconds("veen_fsync_latency_ms", "Making one batch durable in the journal")
        self.proof_ms = milliseconds("veen_proof_latency_ms", "Making one inclusion or consistency proof")
        self.batch_size = Histogram(
            "veen_batch_messages",
            "Actions in one group commit",
            buckets=(1, 4, 16, 64, 256, 1_024),
            registry=registry,
        )
        self.queue_depth = gauge("veen_queue_depth", "Messages in verification and sequencing")
        self.checkpoint_interval = Histogram(
            "veen_checkpoint_interval",
            "Entries between two checkpoints of a label",
            buckets=(1, 16, 256, 1_024, 4_096, 16_384, 65_536),
            registry=registry,
        )
        self.checkpoints = counter("veen_checkpoints_total", "Checkpoints made")
        self.anchor_fail = counter("veen_anchor_fail_total", "Attempts to anchor that failed")
        self.equivocation = counter(
            "veen_equivocation_reports_total",
            "Verified reports of equivocation, by whose key signed",
            ("whose",),
        )
        self.cap_checks = counter(
            "veen_cap_checks_total", "Tokens offered for authorization, by outcome", ("outcome",)
        )
        self.followers = gauge("veen_followers", "Open live streams")
        self.dropped_followers = counter("veen_followers_dropped_total", "Followers that did not read")
        self.stage = gauge(
            "veen_stage_entries",
            "Entries that have passed a stage, counted from those without a checkpoint or, where one is "
            "configured, an anchor at start",
            ("stage",),
        )
        self.appends = counter(
            "veen_stream_appends_total",
            "Entries appended, by stream where the configuration names it",
            ("stream",),
        )
        self.apply_lag_bytes = gauge("veen_wal_bytes", "Bytes that are durable and not yet applied")
        self.attachment_bytes = counter("veen_attachment_bytes_total", "Bytes of attachments in the store")
        self.attachments = counter("veen_attachments_total", "Attachments in the store")
        self.view_lag = gauge("veen_revocation_view_lag_seconds", "Age of the policy view")
        self.ready = gauge("veen_ready", "What /readyz said last, or the hub itself at its start")
        registry.register(LostLines())

    def expose(self) -> bytes:
        return generate_latest(self.registry)
