"""Metrics of a monitor in Prometheus' format, and the listener that serves them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from veen_hub.monitor.findings import FindingChange, Key
from veen_hub.monitor.hub_monitor import HubMonitor
from veen_hub.monitor.monitor import Monitor

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _HubGauges(Collector):
    """The gauges of all monitored hubs, computed at each scrape."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def collect(self) -> Iterator[Metric]:
        hubs = self._monitor.hubs
        findings = GaugeMetricFamily(
            "veen_monitor_findings", "Findings that have not ended, by key", labels=["hub", "key"]
        )
        age = GaugeMetricFamily(
            "veen_monitor_cosignature_age_seconds",
            "Age of a witness's cosignature on the hub checkpoint that the hub shows",
            labels=["hub", "witness"],
        )
        for hub in hubs:
            for key in Key:
                unlisted = hub.findings.count_unlisted(key)
                findings.add_metric([hub.url, key], hub.findings.count(key) + unlisted)
            for name, at in hub.progress.cosigned.items():
                age.add_metric([hub.url, name], hub.settings.now() - at)
        yield from (findings, age)
        for name, text, values in _ROWS:
            gauge = GaugeMetricFamily(f"veen_monitor_{name}", text, labels=["hub"])
            for hub in hubs:
                if (value := values(hub)) is not None:
                    gauge.add_metric([hub.url], value)
            yield gauge


def _checkpoint_age(hub: HubMonitor) -> float | None:
    newest = hub.memory.record.newest_ts if hub.memory.record is not None else 0
    return hub.settings.now() - newest if newest else None


def _labels(hub: HubMonitor) -> float | None:
    return hub.memory.record.labels if hub.memory.record is not None else None


_ROWS: Final = (
    (
        "checkpoint_age_seconds",
        "Time since the newest entry of the hub log was made; it grows while no message arrives",
        _checkpoint_age,
    ),
    (
        "hub_log_entries",
        "Entries of the largest hub checkpoint that the hub has shown",
        lambda hub: hub.memory.held.head.size if hub.memory.held is not None else None,
    ),
    ("hub_log_entries_checked", "Entries of the hub log that are checked", lambda hub: hub.memory.checked),
    ("labels", "Labels in the checked entries of the hub log", _labels),
    (
        "uncovered_receipts",
        "Receipts of clients that the hub log does not cover yet",
        lambda hub: hub.receipts.waiting,
    ),
    (
        "last_round_timestamp_seconds",
        "When the last round ended in which the hub answered everything",
        lambda hub: hub.progress.completed_at,
    ),
)


class MonitorMetrics:
    """The metrics of one monitor, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._found = Counter(
            "veen_monitor_findings_total", "Findings that began, by key", ("hub", "key"), registry=registry
        )
        self._rounds_failed = Counter(
            "veen_monitor_failed_rounds_total",
            "Rounds that failed on the monitor's own machine",
            registry=registry,
        )

    def watch(self, monitor: Monitor) -> None:
        """Export the state of a monitor from now on."""
        self.registry.register(_HubGauges(monitor))
        for hub in monitor.hubs:
            for key in Key:
                self._found.labels(hub.url, key)  # appears at 0

    def count(self, hub: HubMonitor, change: FindingChange) -> None:
        if change.began:
            self._found.labels(hub.url, change.found.finding.key).inc()

    def count_failure(self) -> None:
        self._rounds_failed.inc()

    def expose(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry)


class MetricsListener:
    """Serves ``/metrics`` at an address."""

    def __init__(self, metrics: MonitorMetrics, host: str, port: int) -> None:
        self._metrics, self._host, self._port = metrics, host, port
        app = web.Application()
        app.router.add_get("/metrics", self._serve)
        self._runner = web.AppRunner(app, access_log=None)

    async def _serve(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.expose(), headers={"Content-Type": CONTENT_TYPE})

    async def start(self) -> str:
        """Listen, and return the address of the metrics."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    async def stop(self) -> None:
        await self._runner.cleanup()
