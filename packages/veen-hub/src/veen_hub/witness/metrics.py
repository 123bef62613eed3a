"""Metrics of a witness in Prometheus' format."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from veen_hub.ops.metrics import DroppedLogLines
from veen_hub.witness.state import WitnessState


class StateMetrics(Collector):
    """The gauges of the witness's state, computed at each scrape."""

    def __init__(self, state: WitnessState, now: Callable[[], int]) -> None:
        self._state = state
        self._now = now

    def collect(self) -> Iterator[Metric]:
        age = GaugeMetricFamily(
            "veen_witness_cosignature_age_seconds",
            "Age of the newest cosignature of a log",
            labels=["origin"],
        )
        size = GaugeMetricFamily(
            "veen_witness_tree_size", "Size of the newest cosigned checkpoint of a log", labels=["origin"]
        )
        for origin, cosigned in self._state.heads.items():
            age.add_metric([origin], self._now() - cosigned.cosigned_at)
            size.add_metric([origin], cosigned.signed.head.size)
        found = GaugeMetricFamily(
            "veen_witness_contradictions",
            "Contradictions that are kept, by log and claim",
            labels=["origin", "claim"],
        )
        for origin, by_id in self._state.contradictions.items():
            claims = [each.found.claim for each in by_id.values()]
            for claim in sorted(set(claims)):
                found.add_metric([origin, claim], claims.count(claim))
        dropped = CounterMetricFamily(
            "veen_witness_contradictions_dropped", "Contradictions beyond the bounds", self._state.dropped
        )
        yield from (age, size, found, dropped)


class WitnessMetrics:
    """The metrics of one witness, in a registry of their own."""

    def __init__(self, state: WitnessState, now: Callable[[], int]) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "veen_witness_requests_total",
            "add-checkpoint requests, by status",
            ("status",),
            registry=registry,
        )
        self.batch = Histogram(
            "veen_witness_batch_requests",
            "Requests that one sync made durable",
            buckets=(1, 4, 16, 64, 256),
            registry=registry,
        )
        registry.register(StateMetrics(state, now))
        registry.register(DroppedLogLines())

    def expose(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry)
