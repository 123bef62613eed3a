"""``rpc.p50`` and ``rpc.rate``: calls of a local server, against the sends of the same client.

- ``rpc.p50`` is the median time of a call, divided by that of a lone ``stream.send``. A call is two sends,
  one after the other, and two messages that a follower reads.
- ``rpc.rate`` is calls per second with 64 in flight on one stream, divided by the sends per second of
  ``client.send_64``: 64 streams, one message each at a time.

Hub, server and client are processes of their own. All use the client that ships, with its state on disk.
Calls and sends are measured in turns, and the best round of each counts. Both processes freeze the garbage
collector's view of the imports, as ``veen rpc serve`` and ``veen rpc call`` do.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import uvloop

from veen_core.cap import mint
from veen_core.hashing import H
from veen_core.ids import HubId
from veen_core.keys import SigningKey, SigningSeed
from veen_core.stream import stream_id
from veen_hub.client import Hub, Identity, connect
from veen_hub.load import ShippedClient
from veen_overlays.live.rpc import RpcClient, RpcServer, Service, access, connect_rpc
from veen_selftest.hubs.own_hub import PROGRAM, OwnHub
from veen_selftest.runner.hub_setup import PLAIN

STREAM: Final = "calls"
IN_FLIGHT: Final = 64
ROUNDS: Final = 3
TOKEN_SECONDS: Final = 3_600
MAX_P50: Final = 3.0
MIN_RATE: Final = 0.35
ADMIN: Final = SigningKey(SigningSeed(H(b"rpc admin")))


def identity(name: str) -> Identity:
    """An identity that both processes derive from its name."""
    counter = iter(range(9))
    return Identity.generate(lambda _size: bytes(H(f"rpc {name} {next(counter)}".encode())))


@asynccontextmanager
async def connected(url: str, trust: HubId, name: str, folder: Path) -> AsyncIterator[Hub]:
    me = identity(name)
    streams = (STREAM, "alone", *(f"lane {n}" for n in range(IN_FLIGHT)))
    token = mint(ADMIN, me.client_id, map(stream_id, streams), TOKEN_SECONDS)
    async with connect(url, me, trust=trust, state=folder / name) as hub:
        await hub.authorize(token)
        yield hub


async def serve(url: str, trust: HubId, folder: Path) -> None:
    service = Service()

    @service.method("add")
    async def add(a: int, b: int) -> int:
        return a + b

    async with connected(url, trust, "server", folder) as hub:
        stream = hub.stream(STREAM, readers=identity("reader").dh_keys)
        server = RpcServer(service, access(stream, hub.log_reader()), identity("server").signing_key)
        running = asyncio.create_task(server.run())
        await asyncio.wait(
            (running, asyncio.create_task(server.announced.wait())), return_when=asyncio.FIRST_COMPLETED
        )
        print("ready", flush=True)  # noqa: T201
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        server.stop()
        await running


async def one_by_one(client: RpcClient, count: int) -> list[float]:
    seconds = []
    for n in range(count):
        started = time.perf_counter()
        assert await client.call("add", {"a": n, "b": 1}) == n + 1
        seconds.append(time.perf_counter() - started)
    return seconds


async def lone_sends(hub: Hub, count: int) -> list[float]:
    seconds, stream = [], hub.stream("alone")
    for _ in range(count):
        started = time.perf_counter()
        await stream.send("a message")
        seconds.append(time.perf_counter() - started)
    return seconds


async def calls_in_flight(client: RpcClient, each: int) -> float:
    """Return calls per second."""
    started = time.perf_counter()
    await asyncio.gather(*(one_by_one(client, each) for _ in range(IN_FLIGHT)))
    return IN_FLIGHT * each / (time.perf_counter() - started)


async def figures(url: str, trust: HubId, folder: Path, *, quick: bool, profile: bool) -> tuple[float, float]:
    calls, each = (100, 10) if quick else (300, 40)
    async with connected(url, trust, "client", folder) as hub:
        stream = hub.stream(STREAM, readers=identity("reader").dh_keys)
        async with connect_rpc(access(stream, hub.log_reader())) as client:
            lanes, sender = [f"lane {n}" for n in range(IN_FLIGHT)], ShippedClient(hub)
            await sender.many_streams(lanes, 1)
            await one_by_one(client, 20)
            await lone_sends(hub, 20)
            if profile:
                with cProfile.Profile() as found:
                    print(await calls_in_flight(client, 40), "calls/s", file=sys.stderr)  # noqa: T201
                pstats.Stats(found, stream=sys.stderr).sort_stats("tottime").print_stats(30)
                return 0.0, 0.0
            alone, called, sent, calling = [], [], [], []
            for _ in range(ROUNDS):
                calling.append(statistics.median(await one_by_one(client, calls)))
                alone.append(statistics.median(await lone_sends(hub, calls)))
                sent.append(IN_FLIGHT * each / await sender.many_streams(lanes, each))
                called.append(await calls_in_flight(client, each))
            print(  # noqa: T201
                f"call {min(calling) * 1e3:.1f} ms, send {min(alone) * 1e3:.1f} ms; "
                f"{max(called):.0f} calls/s, {max(sent):.0f} sends/s",
                file=sys.stderr,
            )
            return min(calling) / min(alone), max(called) / max(sent)


def measure(*, quick: bool, profile: bool = False) -> tuple[float, float]:
    """Return ``rpc.p50`` and ``rpc.rate``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = OwnHub(PROGRAM, folder / "hub", PLAIN, ADMIN)
        server: subprocess.Popen[str] | None = None
        try:
            hub = own.start()
            trust = hub.known.identity.hub_id
            server = subprocess.Popen(  # noqa: S603 - this very file
                [sys.executable, __file__, "--serve", hub.url, trust.hex(), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=dict(os.environ),
            )
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            return uvloop.run(figures(hub.url, trust, folder, quick=quick, profile=profile))
        finally:
            if server is not None:
                server.communicate(timeout=30)
            own.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure calls, or profile the client or the server.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--serve", nargs=3, metavar=("URL", "HUB_ID", "FOLDER"))
    options = parser.parse_args()
    gc.freeze()
    if options.serve is None:
        print(measure(quick=options.quick, profile=options.profile))  # noqa: T201
        return
    url, trust, folder = options.serve
    if "VEEN_PROFILE_SERVER" in os.environ:
        with cProfile.Profile() as found:
            uvloop.run(serve(url, HubId.from_hex(trust), Path(folder)))
        pstats.Stats(found, stream=sys.stderr).sort_stats("tottime").print_stats(25)
    else:
        uvloop.run(serve(url, HubId.from_hex(trust), Path(folder)))


if __name__ == "__main__":
    main()
