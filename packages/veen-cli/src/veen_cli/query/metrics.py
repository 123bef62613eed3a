"""Metrics of the service in Prometheus' format, made from its counters when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from veen_overlays.live.query_service.service import QueryService


class ServiceMetrics(Collector):
    """The metrics of one service, in a registry of their own."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def expose(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        service, counters = self._service, self._service.counters
        requests = CounterMetricFamily(
            "veen_query_requests", "Requests by operation and HTTP status", labels=("operation", "status")
        )
        for (operation, status), count in sorted(counters.requests.items()):
            requests.add_metric((operation, str(status)), count)
        yield requests
        finished = CounterMetricFamily(
            "veen_query_finished", "Finished queries by outcome", labels=("outcome",)
        )
        for outcome, count in sorted(counters.finished.items()):
            finished.add_metric((outcome,), count)
        yield finished
        jobs = GaugeMetricFamily("veen_query_jobs", "Jobs on disk by state", labels=("state",))
        for state, count in service.jobs.counts().items():
            jobs.add_metric((state.value,), count)
        yield jobs
        waiting, running = service.executor.load
        for name, text, value in (
            ("veen_query_waiting", "Queries that wait for room", waiting),
            ("veen_query_running", "Queries that run", running),
            ("veen_query_result_bytes", "Bytes of kept results", service.files.size()),
            ("veen_query_ready", "1 while queries can be answered", int(service.backend.problem() is None)),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        for name, text, total in (
            ("veen_query_rows", "Rows of completed results", counters.rows),
            ("veen_query_run_seconds", "Time that queries ran", counters.seconds),
            ("veen_query_unauthenticated", "Requests without valid credentials", counters.unauthenticated),
            ("veen_query_record_failures", "Records that the hub did not take", counters.record_failures),
        ):
            yield CounterMetricFamily(name, text, value=total)
