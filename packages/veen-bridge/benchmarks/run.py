"""Benchmarks of veen-bridge: ratios measured within one run, one JSON line per figure.

    python packages/veen-bridge/benchmarks/run.py            10^6 entries, about ten minutes
    python packages/veen-bridge/benchmarks/run.py --quick    20,000 entries, under a minute

``bridge.export``  entries exported per second, divided by the Ed25519 verifications per second of one core
``bridge.verify``  signatures of a bundle verified per second, divided by what all cores verify at most
``bridge.size``    bytes of the bundle, divided by the bytes of its MSGs and RECEIPTs
``bridge.mirror_lag_ms``  see ``mirror_lag``; ``--only-mirror`` measures nothing else
``bridge.rss_mb``  largest resident memory of the process that exports and verifies, in MB

The hub is a process of its own on the same cores. An entry has two signatures: MSG.sig and RECEIPT.hub_sig.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mirror_lag import mirror_lags, percentile

from veen_bridge.bundles import open_bundles, verify_bundle
from veen_bridge.exporting.export import Counter, ExportedBundle, Exporter
from veen_bridge.exporting.planning import ExportWishes
from veen_bridge.roles.config import load_config
from veen_bridge.roles.session import RoleKeys, open_session
from veen_core.bundle import BundleTrust
from veen_core.errors import SignatureError
from veen_core.hashing import H, u64be
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, UnixTime
from veen_core.keys import DhSecret, SigningKey, SigningSeed, is_valid
from veen_core.keystore import Secrets
from veen_core.signatures import Claim, invalid_signatures
from veen_hub.client import Identity, connect

STREAM = "export/bench"
PROGRAM = (sys.executable, "-m", "veen_hub.main")
LISTENING = "veen-hub listening on "
TARGETS = {
    "bridge.export": (0.6, True),
    "bridge.verify": (0.6, True),
    "bridge.size": (1.05, False),
    "bridge.mirror_lag_ms": (50.0, False),
    "bridge.rss_mb": (300.0, False),
}
"""Target of each figure, and whether it is a least value."""


# --- the limits


def claims(count: int) -> list[Claim]:
    key = SigningKey(SigningSeed(H(b"benchmark")))
    digests = [H(u64be(n)) for n in range(count)]
    return [Claim((key.public,), each, key.sign(each), lambda: SignatureError("no")) for each in digests]


def one_core_rate(made: list[Claim]) -> float:
    """Return Ed25519 verifications per second of one core."""
    start = time.process_time()
    assert all(is_valid(each.keys[0], each.digest, each.signature) for each in made)
    return len(made) / (time.process_time() - start)


def all_cores_rate(made: list[Claim]) -> float:
    """Return Ed25519 verifications per second of all cores."""
    start = time.perf_counter()
    assert invalid_signatures(made) == []
    return len(made) / (time.perf_counter() - start)


# --- the zone


class Silent:
    """A progress bar that shows nothing."""

    def advance(self, by: int = 1) -> None:
        del by


@contextmanager
def unwatched(_what: str, _total: int) -> Iterator[Counter]:
    yield Silent()


class Zone:
    """A hub process with one stream, and the configuration of its bridge."""

    def __init__(self, root: Path) -> None:
        self.root, data = root, root / "data"
        flags = [f"--data-dir={data}"]
        admin = Identity.generate().client_id.hex()
        init = [*PROGRAM, "--init", f"--admin={admin}", *flags]
        subprocess.run(init, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - a program of this project
        self.hub_id: HubId = HubIdentity.decode((data / "hub-identity.cbor").read_bytes()).hub_id
        options = ["--open", "--port=0", "--probes-port=0", "--log-level=error", *flags]
        self._process = subprocess.Popen([*PROGRAM, *options], stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.url = line.removeprefix(LISTENING).partition(",")[0].strip()
        self._write_bridge()

    def _write_bridge(self) -> None:
        folder = self.root / "bridge"
        folder.mkdir()
        keys = Secrets(id_sign=SigningSeed(H(b"a")), id_dh=DhSecret(H(b"b")), created_at=UnixTime(1))
        (folder / "secrets.cbor").touch(0o600)
        (folder / "secrets.cbor").write_bytes(keys.encode())
        settings = {
            "role": "bridge_online",
            "hub": self.url,
            "trust": self.hub_id.hex(),
            "client": "bridge",
            "streams": [STREAM],
        }
        (self.root / "bridge.yaml").write_text(json.dumps(settings))

    def fill(self, count: int) -> None:
        async def work() -> None:
            writer = Identity.generate()
            async with connect(self.url, writer, trust=self.hub_id.hex()) as hub:
                async for _ in hub.stream(STREAM).send_many(f"order {n}" for n in range(count)):
                    pass
                await hub.label_head(hub.stream(STREAM).label(), count)

        asyncio.run(work())

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


# --- the measured process


def export(root: Path) -> tuple[ExportedBundle, float]:
    async def work() -> tuple[ExportedBundle, float]:
        config = load_config(root / "bridge.yaml")
        async with open_session(config, RoleKeys.load(config)) as session:
            wishes = ExportWishes(attachments=False)
            start = time.perf_counter()
            (made,) = [
                each async for each in Exporter(session, root / "out", wishes, unwatched).export([STREAM])
            ]
            return made, time.perf_counter() - start

    return asyncio.run(work())


def measure(root: Path, hub_id: HubId) -> dict[str, Any]:
    """Export and verify in this process; return what was measured."""
    made, export_seconds = export(root)
    start = time.perf_counter()
    (files,) = open_bundles(made.files).bundles
    verify_bundle(files, BundleTrust(pinned=hub_id))
    verify_seconds = time.perf_counter() - start
    counts = made.header.counts
    return {
        "events": counts.events,
        "export_seconds": export_seconds,
        "verify_seconds": verify_seconds,
        "size": sum(path.stat().st_size for path in made.files) / counts.event_bytes,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def report(name: str, value: float) -> bool:
    target, is_least = TARGETS[name]
    ok = value >= target if is_least else value <= target
    print(json.dumps({"name": name, "value": round(value, 3), "target": target, "ok": ok}), flush=True)  # noqa: T201
    return ok


def measure_mirror(seconds: int) -> bool:
    """Mirror between two hubs and report the lag."""
    with tempfile.TemporaryDirectory(prefix="veen-bridge-bench-") as folder:
        zones = []
        try:
            for name in ("source", "target"):
                (Path(folder) / name).mkdir()
                zones.append(Zone(Path(folder) / name))
            source, target = ((zone.url, zone.hub_id) for zone in zones)
            lags = mirror_lags(source, target, zones[1].root / "bridge", seconds)
        finally:
            for zone in zones:
                zone.stop()
    median = {"name": "bridge.mirror_lag_ms.p50", "value": round(percentile(lags, 0.5), 3)}
    print(json.dumps(median), flush=True)  # noqa: T201
    return report("bridge.mirror_lag_ms", percentile(lags, 0.99))


def main() -> int:
    """Run the benchmark, or, in the measured process, print what was measured."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--entries", type=int, help="number of entries instead of 10^6")
    arguments.add_argument("--measure", nargs=2, metavar=("ROOT", "HUB_ID"), help=argparse.SUPPRESS)
    arguments.add_argument("--only-mirror", action="store_true", help="measure the mirror's lag alone")
    given = arguments.parse_args()
    if given.measure:
        root, hub_id = given.measure
        print(json.dumps(measure(Path(root), HubId.from_hex(hub_id))))  # noqa: T201
        return 0
    mirrored = measure_mirror(5 if given.quick else 20)
    if given.only_mirror:
        return 0 if mirrored else 1
    count = given.entries or (20_000 if given.quick else 1_000_000)
    made = claims(4_000)
    with tempfile.TemporaryDirectory(prefix="veen-bridge-bench-") as folder:
        zone = Zone(Path(folder))
        try:
            zone.fill(count)
            one, all_ = one_core_rate(made), all_cores_rate(made)
            command = [sys.executable, __file__, "--measure", folder, zone.hub_id.hex()]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)  # noqa: S603
            one, all_ = max(one, one_core_rate(made)), max(all_, all_cores_rate(made))
        finally:
            zone.stop()
    found = json.loads(done.stdout)
    results = [
        mirrored,
        report("bridge.export", found["events"] / found["export_seconds"] / one),
        report("bridge.verify", 2 * found["events"] / found["verify_seconds"] / all_),
        report("bridge.size", found["size"]),
        report("bridge.rss_mb", found["rss_mb"]),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
