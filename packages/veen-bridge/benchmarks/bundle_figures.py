"""Export, verification and import of one bundle, in a process of its own, against the limits of this machine.

``bridge.export``  entries exported per second, divided by the Ed25519 verifications per second of one core
``bridge.verify``  signatures of a bundle verified per second, divided by what all cores verify at most
``bridge.size``    bytes of the bundle, divided by the bytes of its MSGs and RECEIPTs
``bridge.import``  events imported per second in mode wrap, with the verification of the bundle, divided by
                   the rate of ``send_many`` for bodies of that size to the same hub, with a durable state
                   folder
``bridge.rss_mb``  largest resident memory of the process that exports, verifies and imports, with that of the
                   processes that it starts, in MB

An entry has two signatures: MSG.sig and RECEIPT.hub_sig.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from zones import Zones, export_all, import_all

from veen_bridge.bundles import open_bundles, verify_bundle
from veen_core.bundle import BundleTrust
from veen_core.errors import SignatureError
from veen_core.hashing import H, u64be
from veen_core.ids import HubId
from veen_core.keys import SigningKey, SigningSeed, is_valid
from veen_core.signatures import SignatureClaim, invalid_signatures
from veen_hub.client import Identity, connect

NAMES: Final = ("bridge.export", "bridge.verify", "bridge.size", "bridge.import", "bridge.rss_mb")
NEED_IMPORT: Final = {"bridge.import", "bridge.rss_mb"}
WRAPPED_BYTES: Final = 900
"""Bytes of a wrapped event of this benchmark."""
CLAIMS: Final = 4_000
WARM_UP: Final = 1_000
"""Events that are exported and imported first, which starts the hubs' helpers."""


# --- the limits


def claims(count: int) -> list[SignatureClaim]:
    key = SigningKey(SigningSeed(H(b"benchmark")))
    digests = [H(u64be(n)) for n in range(count)]
    return [
        SignatureClaim((key.public,), each, key.sign(each), lambda: SignatureError("no")) for each in digests
    ]


def one_core_rate(made: list[SignatureClaim]) -> float:
    """Return Ed25519 verifications per second of one core."""
    start = time.process_time()
    assert all(is_valid(each.keys[0], each.digest, each.signature) for each in made)
    return len(made) / (time.process_time() - start)


def all_cores_rate(made: list[SignatureClaim]) -> float:
    """Return Ed25519 verifications per second of all cores."""
    start = time.perf_counter()
    assert invalid_signatures(made) == []
    return len(made) / (time.perf_counter() - start)


async def send_rate(zones: Zones, count: int) -> float:
    """Return events per second of ``send_many`` to the target hub, with bodies as large as wrapped events.

    The client's state is durable, as a bridge's is.
    """
    writer, body = Identity.generate(), b"x" * WRAPPED_BYTES
    state, trust = zones.root / f"writer-{writer.client_id.hex()[:8]}", zones.target.hub_id.hex()
    async with connect(zones.target.url, writer, trust=trust, state=state) as hub:
        start = time.perf_counter()
        async for _ in hub.stream("bench/plain").send_many(body for _ in range(count)):
            pass
        return count / (time.perf_counter() - start)


# --- the measured process


def measure(root: Path, hub_id: HubId, *, imports: bool) -> dict[str, Any]:
    """Export, verify and import with this process; return what was measured."""
    with largest_of_helpers() as helpers:
        found = _measured(root, hub_id, imports=imports)
    return found | {"rss_mb": found["rss_mb"] + max(helpers)}


@contextlib.contextmanager
def largest_of_helpers() -> Iterator[list[float]]:
    """Sample, while the block runs, the peak memory of all processes that this process has started, in MB."""
    seen, ended = [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            tasks = Path("/proc/self/task").glob("*/children")
            seen.append(sum(map(peak_mb, " ".join(each.read_text() for each in tasks).split())))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def peak_mb(pid: str) -> float:
    """Return the largest resident memory of a process so far; 0 if it has ended."""
    try:
        lines = Path("/proc", pid, "status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _measured(root: Path, hub_id: HubId, *, imports: bool) -> dict[str, Any]:
    media = root / "media"
    made, export_seconds = asyncio.run(export_all(root, media))
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
        "import_seconds": asyncio.run(import_all(root, media)) if imports else None,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def bundle_figures(root: Path, count: int, wanted: set[str]) -> dict[str, float]:
    """Return the wanted figures of one bundle of ``count`` events."""
    made = claims(CLAIMS)
    zones, compares = Zones(root), "bridge.import" in wanted
    imports = bool(wanted & NEED_IMPORT)
    try:
        asyncio.run(zones.grow(WARM_UP))
        asyncio.run(zones.fill(count))
        sent = asyncio.run(send_rate(zones, count)) if compares else 0.0
        one, all_ = one_core_rate(made), all_cores_rate(made)
        command = [sys.executable, __file__, str(root), zones.source.hub_id.hex(), str(int(imports))]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
        one, all_ = max(one, one_core_rate(made)), max(all_, all_cores_rate(made))
        sent = max(sent, asyncio.run(send_rate(zones, count))) if compares else 0.0
    finally:
        zones.stop()
    found = json.loads(done.stdout)
    events = found["events"]
    figures = {
        "bridge.export": events / found["export_seconds"] / one,
        "bridge.verify": 2 * events / found["verify_seconds"] / all_,
        "bridge.size": found["size"],
    }
    if compares:
        figures["bridge.import"] = events / found["import_seconds"] / sent
    if imports:
        figures["bridge.rss_mb"] = found["rss_mb"]
    return {name: value for name, value in figures.items() if name in wanted}


if __name__ == "__main__":
    _root, _hub_id, _imports = sys.argv[1:]
    _found = measure(Path(_root), HubId.from_hex(_hub_id), imports=_imports == "1")
    print(json.dumps(_found))  # noqa: T201
