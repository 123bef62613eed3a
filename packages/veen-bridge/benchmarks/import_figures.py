"""Benchmarks of import and reconciliation: ratios measured within one run, one JSON line per figure.

    python packages/veen-bridge/benchmarks/import_figures.py            10^6 events, about an hour
    python packages/veen-bridge/benchmarks/import_figures.py --quick    20,000 events, a minute or two

``bridge.import``            events imported per second in mode wrap, with the verification of the bundle,
                             divided by the rate of ``send_many`` for bodies of that size to the same hub
``bridge.reconcile_growth``  time of a reconciliation after one new bundle with 100 times as many events
                             before it, divided by the time with the smaller number (``--quick``: 20 times)

The hubs are processes of their own on the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from run import STREAM, Zone, unwatched

from veen_bridge.exporting.export import Exporter
from veen_bridge.exporting.planning import ExportWishes
from veen_bridge.importing.run import ImportRun
from veen_bridge.reconcile.comparison import reconcile
from veen_bridge.reconcile.reading import read_source, read_target
from veen_bridge.reconcile.zones import open_live_zone
from veen_bridge.roles.config import BridgeConfig, load_config
from veen_bridge.roles.session import RoleKeys, open_session
from veen_core.hashing import H
from veen_core.ids import UnixTime
from veen_core.keys import DhSecret, SigningSeed
from veen_core.keystore import Secrets
from veen_hub.client import Identity, connect
from veen_overlays import MemoryStore

TARGETS = {"bridge.import": (0.8, True), "bridge.reconcile_growth": (2.0, False)}
"""Target of each figure, and whether it is a least value."""
WRAPPED_BYTES = 900
"""Bytes of a wrapped event of this benchmark."""


class Zones:
    """A source zone and a target zone, with a bridge between them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "z1").mkdir(parents=True)
        (root / "z2").mkdir()
        self.source, self.target = Zone(root / "z1"), Zone(root / "z2")
        folder = root / "z2" / "offline"
        folder.mkdir()
        keys = Secrets(id_sign=SigningSeed(H(b"c")), id_dh=DhSecret(H(b"d")), created_at=UnixTime(1))
        (folder / "secrets.cbor").touch(0o600)
        (folder / "secrets.cbor").write_bytes(keys.encode())
        settings = {
            "role": "bridge_offline",
            "hub": self.target.url,
            "trust": self.target.hub_id.hex(),
            "client": "offline",
            "streams": [STREAM.replace("export/", "import/")],
            "sources": [{"hub_id": self.source.hub_id.hex()}],
        }
        (root / "z2" / "offline.yaml").write_text(json.dumps(settings))
        self._sent = 0
        self._stores = MemoryStore(), MemoryStore()

    @property
    def online(self) -> BridgeConfig:
        return load_config(self.root / "z1" / "bridge.yaml")

    @property
    def offline(self) -> BridgeConfig:
        return load_config(self.root / "z2" / "offline.yaml")

    def stop(self) -> None:
        self.source.stop()
        self.target.stop()

    async def grow(self, count: int) -> float:
        """Send events, export them into one bundle and import it; return the seconds of the import."""
        writer = Identity.generate()
        async with connect(self.source.url, writer, trust=self.source.hub_id.hex()) as hub:
            async for _ in hub.stream(STREAM).send_many(f"order {n}" for n in range(count)):
                pass
            self._sent += count
            await hub.label_head(hub.stream(STREAM).label(), self._sent)
        media = self.root / f"media-{self._sent}"
        async with open_session(self.online, RoleKeys.load(self.online)) as session:
            wishes = ExportWishes(attachments=False)
            exporter = Exporter(session, media, wishes, unwatched)
            assert [each.header.counts.events async for each in exporter.export([STREAM])] == [count]
        async with open_session(self.offline, RoleKeys.load(self.offline)) as session:
            start = time.perf_counter()
            (outcome,) = await ImportRun(session=session).run([media])
            assert outcome.imported is not None, outcome.failure
            return time.perf_counter() - start

    async def reconcile(self) -> float:
        """Reconcile both hubs with the views of the last time; return the seconds."""
        start = time.perf_counter()
        keys = RoleKeys.load(self.online), RoleKeys.load(self.offline)
        async with (
            open_live_zone(self.online, keys[0], self._stores[0]) as source,
            open_live_zone(self.offline, keys[1], self._stores[1]) as target,
        ):
            result = reconcile(await read_source(source), await read_target(target))
        assert result.consistent, result.findings
        assert result.regions[0].to_seq == self._sent
        return time.perf_counter() - start

    async def send_rate(self, count: int) -> float:
        """Events per second of ``send_many`` to the target hub, with bodies as large as wrapped events.

        The client's state is durable, as a bridge's is.
        """
        writer, body = Identity.generate(), b"x" * WRAPPED_BYTES
        state, trust = self.root / f"writer-{writer.client_id.hex()[:8]}", self.target.hub_id.hex()
        async with connect(self.target.url, writer, trust=trust, state=state) as hub:
            start = time.perf_counter()
            async for _ in hub.stream("bench/plain").send_many(body for _ in range(count)):
                pass
            return count / (time.perf_counter() - start)


async def import_figure(root: Path, count: int) -> float:
    zones = Zones(root)
    try:
        await zones.grow(1_000)  # starts the hubs' helpers
        before = await zones.send_rate(count)
        seconds = await zones.grow(count)
        after = await zones.send_rate(count)
    finally:
        zones.stop()
    return count / seconds / max(before, after)


async def growth_figure(root: Path, small: int, large: int) -> float:
    """Time of a reconciliation with many events imported before, divided by that with few."""
    zones = Zones(root)
    times: list[float] = []
    try:
        for wanted in (small, large):
            while zones._sent < wanted:
                await zones.grow(min(10_000, wanted - zones._sent))
                await zones.reconcile()
            best = float("inf")
            for _ in range(3):
                await zones.grow(500)
                best = min(best, await zones.reconcile())
            times.append(best)
    finally:
        zones.stop()
    return times[1] / times[0]


def report(name: str, value: float) -> bool:
    target, is_least = TARGETS[name]
    ok = value >= target if is_least else value <= target
    print(json.dumps({"name": name, "value": round(value, 3), "target": target, "ok": ok}), flush=True)  # noqa: T201
    return ok


def main() -> int:
    """Run the benchmarks; exit with 1 if a figure misses its target."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--only", choices=sorted(TARGETS))
    given = arguments.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="veen-bridge-bench-") as folder:
        if given.only in (None, "bridge.import"):
            count = 5_000 if given.quick else 50_000
            results.append(report("bridge.import", asyncio.run(import_figure(Path(folder, "a"), count))))
        if given.only in (None, "bridge.reconcile_growth"):
            small, large = (1_000, 20_000) if given.quick else (10_000, 1_000_000)
            value = asyncio.run(growth_figure(Path(folder, "b"), small, large))
            results.append(report("bridge.reconcile_growth", value))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
