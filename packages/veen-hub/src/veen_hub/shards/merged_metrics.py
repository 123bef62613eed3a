"""The metrics of a sharded hub: the sum over its parts, as one hub would report them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

LARGEST: Final = frozenset({"veen_disk_bytes", "veen_disk_free_bytes", "veen_revocation_view_lag_seconds"})
"""Gauges that every part reports for the whole machine or hub."""
SMALLEST: Final = frozenset({"veen_signing"})
"""Gauges that are 1 only if they are 1 everywhere."""
COORDINATOR_ONLY: Final = frozenset(
    {
        "veen_ready",
        "veen_hub_log_entries",
        "veen_hub_checkpoint_age_seconds",
        "veen_cosignature_age_seconds",
    }
)
"""Gauges that only the coordinator knows for the whole hub."""


def merge(coordinator: bytes, shards: Iterable[bytes]) -> bytes:
    """Return one set of metrics in the text format."""
    merged: dict[str, Metric] = {}
    for at, text in enumerate((coordinator, *shards)):
        for family in text_string_to_metric_families(text.decode()):
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
