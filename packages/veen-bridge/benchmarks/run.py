"""Benchmarks of veen-bridge: ratios measured within one run, one JSON line per figure.

    python packages/veen-bridge/benchmarks/run.py            10^6 entries, about an hour
    python packages/veen-bridge/benchmarks/run.py --quick    20,000 entries, a minute or two

``bridge.export``, ``bridge.verify``, ``bridge.size``, ``bridge.import`` and ``bridge.rss_mb``: see
``bundle_figures``
``bridge.mirror_lag_ms``: ``mirror_lag``
``bridge.reconcile_growth``: ``reconcile_growth``
``replica.lag_ms``: ``replica``, among the benchmarks of veen-hub

``--only NAME`` measures one figure, and can be repeated. The hubs are processes of their own on the same
cores.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Final

from bundle_figures import NAMES as BUNDLE_NAMES
from bundle_figures import bundle_figures
from mirror_lag import mirror_lags, percentile
from reconcile_growth import growth
from zones import Zone

TARGETS: Final = {
    "bridge.export": (0.6, True),
    "bridge.verify": (0.6, True),
    "bridge.size": (1.05, False),
    "bridge.import": (0.8, True),
    "bridge.rss_mb": (300.0, False),
    "bridge.mirror_lag_ms": (50.0, False),
    "bridge.reconcile_growth": (2.0, False),
    "replica.lag_ms": (50.0, False),
}
"""Target of each figure, and whether the target is a minimum."""
REPLICA: Final = Path(__file__).parents[2] / "veen-hub" / "benchmarks" / "replica.py"


def report(name: str, value: float) -> bool:
    target, is_least = TARGETS[name]
    ok = value >= target if is_least else value <= target
    print(json.dumps({"name": name, "value": round(value, 3), "target": target, "ok": ok}), flush=True)  # noqa: T201
    return ok


def measure_mirror(root: Path, seconds: int) -> float:
    """Mirror between two hubs; return the 99th percentile of the lag in milliseconds."""
    zones: list[Zone] = []
    try:
        zones += [Zone(root / "source")]
        zones += [Zone(root / "target")]
        source, target = ((zone.url, zone.hub_id) for zone in zones)
        lags = mirror_lags(source, target, zones[1].write_identity("mirror"), seconds)
    finally:
        for zone in zones:
            zone.stop()
    return percentile(lags, 0.99)


def replica_benchmark() -> ModuleType:
    """Load the benchmark of replicas, which belongs to the hub."""
    spec = importlib.util.spec_from_file_location("replica_benchmark", REPLICA)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure_replica(seconds: float) -> bool:
    replica = replica_benchmark()
    replica.SECONDS = seconds
    return bool(replica.measure(lambda name, value, _limit, _met: report(name, value)))


def run(wanted: set[str], folder: Path, *, quick: bool, entries: int | None) -> list[bool]:
    """Measure and print the wanted figures; return whether each met its target."""
    results: list[bool] = []
    if "bridge.mirror_lag_ms" in wanted:
        results.append(report("bridge.mirror_lag_ms", measure_mirror(folder / "mirror", 5 if quick else 20)))
    if "replica.lag_ms" in wanted:
        results.append(measure_replica(5.0 if quick else 20.0))
    if wanted & set(BUNDLE_NAMES):
        count = entries or (20_000 if quick else 1_000_000)
        found = bundle_figures(folder / "bundle", count, wanted)
        results += [report(name, value) for name, value in found.items()]
    if "bridge.reconcile_growth" in wanted:
        small, large = (1_000, 20_000) if quick else (10_000, 1_000_000)
        value = asyncio.run(growth(folder / "growth", small, large))
        results.append(report("bridge.reconcile_growth", value))
    return results


def main() -> int:
    """Run the benchmarks; exit with 1 if a figure misses its target."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--entries", type=int, help="events of the bundle, instead of 10^6")
    arguments.add_argument(
        "--only", action="append", choices=TARGETS, help="measure only this figure; repeat"
    )
    given = arguments.parse_args()
    wanted = set(given.only or TARGETS)
    with tempfile.TemporaryDirectory(prefix="veen-bridge-bench-") as folder:
        results = run(wanted, Path(folder), quick=given.quick, entries=given.entries)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
