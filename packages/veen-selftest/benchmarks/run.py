"""Figures of whole products on a real hub, one JSON line each.

    python packages/veen-selftest/benchmarks/run.py            20,000 events, 8,000 calls
    python packages/veen-selftest/benchmarks/run.py --quick    5,000 events, 2,000 calls

``--only NAME`` measures the figures whose names begin so. ``rpc_calls`` has ``rpc.p50`` and ``rpc.rate``.

``query.ingest``: how fast a query view takes in the events of a hub.

The follower's events per second, from a hub process on the same cores until all rows are durable, divided by
the rate of the cryptography alone on one core: for each event one HPKE open and two verifications (MSG.sig
and RECEIPT.hub_sig). Both are measured in turns, and the fastest round of each counts. ``--profile`` prints
where the follower's process spends its time instead.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import rpc_calls
import uvloop

from veen_core.cap import mint
from veen_core.entry import Entry
from veen_core.hashing import H
from veen_core.hub_identity import verify_receipt
from veen_core.ids import StreamSeq
from veen_core.keys import DhKey, SigningKey, SigningSeed
from veen_core.msg import verify_signature
from veen_core.stream import stream_id
from veen_hub.client import Hub, Identity, connect
from veen_overlays.live.query_view import EntryOpener, QueryView, StreamFeed, ViewFollower
from veen_overlays.recorder.records import RecordEvent, UnixMilliseconds
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.own_hub import PROGRAM, OwnHub
from veen_selftest.runner.hub_setup import PLAIN

STREAM: Final = "record/app/http"
TARGET: Final = 0.6
ROUNDS: Final = 3
TOKEN_SECONDS: Final = 3_600


def event(n: int, identity: Identity) -> RecordEvent:
    return RecordEvent(
        subject_id=f"user:{n % 1000}",
        principal_id=identity.client_id,
        event_type=("http.request", "login", "logout")[n % 3],
        event_time=UnixMilliseconds(1_700_000_000_000 + n),
        origin=f"api-{n % 5}",
        payload={"path": f"/items/{n % 977}", "status": 200, "milliseconds": n % 83},
    )


async def fill(hub: HttpHub, admin: SigningKey, identity: Identity, count: int) -> None:
    """Write recorder events."""
    token = mint(admin, identity.client_id, [stream_id(STREAM)], TOKEN_SECONDS)
    async with connect(hub.url, identity, trust=hub.known.identity.hub_id) as client:
        await client.authorize(token)
        async for _ in client.stream(STREAM).send_many(event(n, identity) for n in range(count)):
            pass


async def ingest(hub: HttpHub, identity: Identity, folder: Path, keys: Sequence[DhKey]) -> float:
    """Bring a new view up to date; return the seconds."""
    async with connect(hub.url, identity, trust=hub.known.identity.hub_id) as client:
        with QueryView.open(folder) as view:
            follower = ViewFollower(view, [feed(client, keys)])
            start = time.perf_counter()
            await follower.open()
            await follower.catch_up()
            await follower.settle()
            return time.perf_counter() - start


def feed(client: Hub, keys: Sequence[DhKey]) -> StreamFeed:
    return StreamFeed(
        stream=STREAM,
        hub_id=client.identity.hub_id,
        reader=client.log_reader(),
        labels=client.stream(STREAM).label(),
        opener=EntryOpener(keys=keys, origins={}),
    )


async def entries_of(hub: HttpHub, identity: Identity, count: int) -> Sequence[Entry]:
    async with connect(hub.url, identity, trust=hub.known.identity.hub_id) as client:
        return await client.log_reader().page(client.stream(STREAM).label(), StreamSeq(1), count)


def cryptography(hub: HttpHub, entries: Sequence[Entry], key: DhKey) -> float:
    """Open and verify entries on one core; return the seconds per entry."""
    identity = hub.known.identity
    start = time.process_time()
    for entry in entries:
        verify_signature(entry.msg, entry.msg_bytes)
        verify_receipt(identity, entry.receipt)
        entry.msg.open(key)
    return (time.process_time() - start) / len(entries)


def measure(count: int, *, profile: bool) -> float:
    """Return the figure."""
    admin, identity = SigningKey(SigningSeed(H(b"ingest"))), Identity.generate()
    keys = identity.dh_keys
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        own = OwnHub(PROGRAM, root / "hub", PLAIN, admin)
        try:
            hub = own.start()
            uvloop.run(fill(hub, admin, identity, count))
            sample = uvloop.run(entries_of(hub, identity, min(count, 2_000)))
            if profile:
                return profiled(hub, identity, root / "profile", keys)
            best_ingest = best_cryptography = float("inf")
            for turn in range(ROUNDS):
                seconds = uvloop.run(ingest(hub, identity, root / f"view {turn}", keys))
                best_ingest = min(best_ingest, seconds / count)
                best_cryptography = min(best_cryptography, cryptography(hub, sample, keys[0]))
            print(  # noqa: T201
                f"{1 / best_ingest:,.0f} events/s; cryptography alone {1 / best_cryptography:,.0f}/s",
                file=sys.stderr,
            )
            return best_cryptography / best_ingest
        finally:
            own.kill()


def profiled(hub: HttpHub, identity: Identity, folder: Path, keys: Sequence[DhKey]) -> float:
    """Print where the event loop's thread and the worker thread spend their time."""
    threads: list[cProfile.Profile] = []
    real = asyncio.to_thread

    async def to_thread(call: object, *args: object, **options: object) -> object:
        def run() -> object:
            worker = cProfile.Profile()
            threads.append(worker)
            return worker.runcall(call, *args, **options)  # type: ignore[arg-type]

        return await real(run)

    asyncio.to_thread = to_thread  # type: ignore[assignment]
    loop = cProfile.Profile()
    loop.enable()
    seconds = asyncio.run(ingest(hub, identity, folder, keys))
    loop.disable()
    for title, profiles in (("event loop", [loop]), ("worker", threads)):
        print(title, f"{seconds:.2f} s in all", file=sys.stderr)  # noqa: T201
        found = pstats.Stats(profiles[0], stream=sys.stderr)
        for each in profiles[1:]:
            found.add(each)
        found.sort_stats("tottime").print_stats(14)
    return 0.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="5,000 events")
    parser.add_argument("--profile", action="store_true", help="print a profile, not the figure")
    parser.add_argument("--only", default="", metavar="NAME", help="figures whose names begin so")
    options = parser.parse_args()
    ok = True
    if "query.ingest".startswith(options.only):
        value = measure(5_000 if options.quick else 20_000, profile=options.profile)
        ok = options.profile or say("query.ingest", value, TARGET, value >= TARGET)
    if options.only.startswith("rpc") or not options.only:
        p50, rate = rpc_calls.measure(quick=options.quick, profile=options.profile)
        if not options.profile:
            ok &= say("rpc.p50", p50, rpc_calls.MAX_P50, p50 <= rpc_calls.MAX_P50)
            ok &= say("rpc.rate", rate, rpc_calls.MIN_RATE, rate >= rpc_calls.MIN_RATE)
    return 0 if ok else 1


def say(name: str, value: float, target: float, ok: bool) -> bool:
    """Print a figure."""
    print(json.dumps({"name": name, "value": round(value, 3), "target": target, "ok": ok}))  # noqa: T201
    return ok


if __name__ == "__main__":
    sys.exit(main())
