"""The metrics of a sharded hub: the sum over its parts, as one hub would report them.

A counter never goes back, although a shard that is restarted counts from 0 again: ``CounterHistory`` adds
what its earlier processes had counted at the last scrape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

LARGEST: Final = frozenset(
    {
        "veen_disk_bytes",
        "veen_disk_free_bytes",
        "veen_estimated_wait_ms",
        "veen_revocation_view_lag_seconds",
    }
)
"""Gauges of which the largest part's value is that of the hub."""
SMALLEST: Final = frozenset({"veen_signing"})
"""Gauges that are 1 only if they are 1 everywhere."""
COUNTED: Final = frozenset({"counter", "histogram"})
"""Types of metrics that never go back."""
_Series = tuple[str, str, tuple[tuple[str, str], ...]]
"""Family, name and labels of one value."""
COORDINATOR_ONLY: Final = frozenset(
    {
        "veen_ready",
        "veen_hub_log_entries",
        "veen_hub_checkpoint_age_seconds",
        "veen_cosignature_age_seconds",
    }
)
"""Gauges that only the coordinator knows for the whole hub."""


class CounterHistory:
    """The counters of each shard over all its processes."""

    def __init__(self) -> None:
        self._texts: dict[int, bytes] = {}
        self._seen: dict[int, dict[_Series, tuple[float, float]]] = {}
        """For each shard and series: the sum of earlier processes, and the last value of the newest one."""

    def families(self, number: int, text: bytes | None) -> Iterable[Metric]:
        """Return the metrics of a shard; those of its last answer, if there is none now."""
        text = self._texts.get(number, b"") if text is None else text
        self._texts[number] = text
        families = {family.name: family for family in text_string_to_metric_families(text.decode())}
        seen = self._seen.setdefault(number, {})
        missing = set(seen)
        for family in families.values():
            if family.type not in COUNTED:
                continue
            for at, sample in enumerate(family.samples):
                series = (family.name, sample.name, tuple(sorted(sample.labels.items())))
                missing.discard(series)
                earlier, last = seen.get(series, (0.0, 0.0))
                earlier += last if sample.value < last else 0.0
                seen[series] = earlier, sample.value
                family.samples[at] = sample._replace(value=earlier + sample.value)
        for series in missing:  # a new process has no series for labels that it has not met
            name, sample_name, labels = series
            seen[series] = sum(seen[series]), 0.0
            if name in families:
                families[name].add_sample(sample_name, dict(labels), seen[series][0])
        return families.values()


def merge(coordinator: bytes, shards: Mapping[int, bytes | None], history: CounterHistory) -> bytes:
    """Return one set of metrics in the text format; None stands for a shard that does not answer."""
    own = text_string_to_metric_families(coordinator.decode())
    answers = [own, *(history.families(number, text) for number, text in shards.items())]
    merged: dict[str, Metric] = {}
    for at, families in enumerate(answers):
        for family in families:
            if family.name.endswith("_created"):
                continue  # the parts were started at different times
            known = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            if at and family.name in COORDINATOR_ONLY:
                continue
            _add(known, family)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed(list(merged.values())))
    return generate_latest(registry)


def _add(known: Metric, family: Metric) -> None:
    values = {
        (sample.name, tuple(sorted(sample.labels.items()))): at for at, sample in enumerate(known.samples)
    }
    for sample in family.samples:
        at = values.get((sample.name, tuple(sorted(sample.labels.items()))))
        if at is None:
            known.add_sample(sample.name, sample.labels, sample.value)
            continue
        before = known.samples[at]
        if family.name in LARGEST:
            value = max(before.value, sample.value)
        elif family.name in SMALLEST:
            value = min(before.value, sample.value)
        else:
            value = before.value + sample.value
        known.samples[at] = before._replace(value=value)


class _Fixed(Collector):
    """Metrics that were collected elsewhere."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
