"""The growth of reconciliation with the number of events imported before.

``bridge.reconcile_growth``  time of a reconciliation after one new bundle with 100 times as many events
                             before it, divided by the time with the smaller number (``--quick``: 20 times)
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from zones import Zones, offline, online

from veen_bridge.reconcile.comparison import reconcile
from veen_bridge.reconcile.reading import read_source, read_target
from veen_bridge.reconcile.zones import open_live_zone
from veen_bridge.roles.session import RoleKeys
from veen_overlays import MemoryStore, SummaryStore

BUNDLE = 10_000
"""Events of the bundles that are imported before."""
NEW = 500
"""Events of the new bundle."""
ROUNDS = 3


async def timed_reconcile(zones: Zones, stores: tuple[SummaryStore, SummaryStore]) -> float:
    """Reconcile both hubs with the views of the last time; return the seconds."""
    start = time.perf_counter()
    configs = online(zones.root), offline(zones.root)
    async with (
        open_live_zone(configs[0], RoleKeys.load(configs[0]), stores[0]) as source,
        open_live_zone(configs[1], RoleKeys.load(configs[1]), stores[1]) as target,
    ):
        result = reconcile(await read_source(source), await read_target(target))
    assert result.consistent, result.findings
    assert result.regions[0].to_seq == zones.sent
    return time.perf_counter() - start


async def growth(root: Path, small: int, large: int) -> float:
    """Time of a reconciliation with many events imported before, divided by that with few."""
    zones, stores = Zones(root), (MemoryStore(), MemoryStore())
    times: list[float] = []
    try:
        for wanted in (small, large):
            while zones.sent < wanted:
                await zones.grow(min(BUNDLE, wanted - zones.sent))
                await timed_reconcile(zones, stores)
            found: list[float] = []
            for _ in range(ROUNDS):
                await zones.grow(NEW)
                found.append(await timed_reconcile(zones, stores))
            times.append(median(found))
    finally:
        zones.stop()
    return times[1] / times[0]
