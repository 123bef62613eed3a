"""Metrics of a mirror in Prometheus' format, and its readiness (spec-4 10.1, 10.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

LATENCY_BUCKETS: Final = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
"""Upper bounds of the latency histogram, in seconds."""


@dataclass(frozen=True, slots=True)
class NotReady:
    """A stream that is not mirrored at this moment, and why."""

    stream: str
    reason: str


class MirrorMetrics:
    """The metrics of one mirror process, in a registry of their own."""

    def __init__(self, streams: Sequence[str]) -> None:
        self.registry = registry = CollectorRegistry()
        self.mirrored = Counter(
            "veen_bridge_events_total",
            "Source entries that are durable at the target, by the mode used",
            ("stream", "mode"),
            registry=registry,
        )
        self.found = Counter(
            "veen_bridge_events_found_total",
            "Source entries that the target already held when the mirror started",
            ("stream",),
            registry=registry,
        )
        self.lag_entries = Gauge(
            "veen_bridge_lag_entries",
            "Source entries that were read and are not yet durable at the target",
            ("stream",),
            registry=registry,
        )
        self.latency = Histogram(
            "veen_bridge_latency_seconds",
            "Time from reading a source entry to its receipt from the target",
            ("stream",),
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.source_ts = Gauge(
            "veen_bridge_mirrored_hub_ts_seconds",
            "hub_ts of the last source entry that the target holds",
            ("stream",),
            registry=registry,
        )
        self.faults = Counter(
            "veen_bridge_faults_total",
            "Failures that ended a session, by hub and kind",
            ("hub", "kind"),
            registry=registry,
        )
        self.ready = Gauge("veen_bridge_ready", "1 while every stream is mirrored", registry=registry)
        self._waiting: dict[str, str] = {}
        for stream in streams:
            self.set_waiting(stream, "starting")
            self.lag_entries.labels(stream).set(0)

    def set_waiting(self, stream: str, reason: str) -> None:
        """Note that a stream is not mirrored at this moment."""
        self._waiting[stream] = reason
        self.ready.set(0)

    def set_following(self, stream: str) -> None:
        """Note that a stream is mirrored live."""
        self._waiting.pop(stream, None)
        self.ready.set(0 if self._waiting else 1)

    @property
    def not_ready(self) -> list[NotReady]:
        return [NotReady(stream, reason) for stream, reason in sorted(self._waiting.items())]

    def expose(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry)
