"""The program ``veen-bridge``: probes, metrics, logs, draining, crashes, and evidence (spec-4 §6, §10)."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from veen_core.cap import mint
from veen_core.ids import MmrRoot
from veen_core.keys import DhKey
from veen_core.stream import stream_id
from veen_hub.client import Hub, Identity, connect
from veen_overlays.federation import Mirror

from .mirror_fixtures import (
    ADMIN,
    BRIDGE,
    QUICK,
    SOURCE_READER,
    TARGET_READER,
    HubProcess,
    hub_id,
    read_all,
    run,
    serving,
    talking,
    write_secrets,
)

PROGRAM = [sys.executable, "-m", "veen_bridge.commands.mirror"]


def reader_folder(root: Path, key: DhKey) -> Path:
    return write_secrets(root, Identity(signing_key=BRIDGE.signing_key, dh_keys=(key,)))


def arguments(root: Path, source: HubProcess, target: HubProcess, *more: str) -> list[str]:
    async def ids() -> tuple[str, str]:
        return await hub_id(source), await hub_id(target)

    here, there = run(ids())
    return [
        f"--source-url={source.url}",
        f"--source-trust={here}",
        f"--target-url={target.url}",
        f"--target-trust={there}",
        f"--client={write_secrets(root / 'bridge', BRIDGE)}",
        f"--target-reader={reader_folder(root / 'reader', TARGET_READER)}",
        f"--state={root / 'state'}",
        *more,
    ]


class Bridge:
    """A running ``veen-bridge``."""

    def __init__(self, root: Path, flags: list[str]) -> None:
        self.log = root / "bridge.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, *flags],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "VEEN_ROLE": "bridge", "VEEN_TENANT_ID": "acme"},
            )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        line = self.process.stdout.readline() if ready else ""
        assert line.startswith("veen-bridge listening on "), (line, self.log.read_text())
        self.url = line.removeprefix("veen-bridge listening on ").strip()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextmanager
def bridging(root: Path, flags: list[str]) -> Iterator[Bridge]:
    bridge = Bridge(root, flags)
    try:
        yield bridge
    finally:
        bridge.end(signal.SIGKILL)


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def send(source: Hub, count: int, stream: str = "orders") -> None:
    to = source.stream(stream, readers=(SOURCE_READER,))
    async for _ in to.send_many(f"order {n}" for n in range(count)):
        pass


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HubProcess, HubProcess]]:
    root = tmp_path_factory.mktemp("hubs")
    with serving(root / "source") as source, serving(root / "target") as target:
        yield source, target


def test_the_program_serves_probes_and_metrics_logs_json_and_drains_on_sigterm(
    hubs: tuple[HubProcess, HubProcess], tmp_path: Path
) -> None:
    source, target = hubs

    async def work(bridge: Bridge) -> str:
        async with talking(source) as here, talking(target) as there:
            await send(here, 100)
            await read_all(there, "orders", 100)
        assert (await get(f"{bridge.url}/healthz"))[0] == 200
        assert (await get(f"{bridge.url}/readyz"))[0] == 200
        return (await get(f"{bridge.url}/metrics"))[1]

    with bridging(tmp_path, arguments(tmp_path, source, target, "--streams=orders")) as bridge:
        metrics = run(work(bridge))
        assert bridge.end() == 0
        lines = bridge.lines()
    assert 'veen_bridge_events_total{mode="wrap",stream="orders"} 100.0' in metrics
    assert "veen_bridge_ready 1.0" in metrics
    assert 'veen_bridge_latency_seconds_count{stream="orders"} 100.0' in metrics
    assert [line["event"] for line in lines] == ["listening", "session_started", "stopped"]
    for line in lines:
        fields = line["component"], line["role"], line["tenant_id"], line["operation"], line["level"]
        assert fields == ("bridge", "bridge", "acme", "mirror", "info")


def test_applying_the_same_configuration_twice_creates_no_duplicate(
    hubs: tuple[HubProcess, HubProcess], tmp_path: Path
) -> None:
    source, target = hubs

    async def count(expected: int) -> int:
        async with talking(source) as here, talking(target) as there:
            await send(here, 10, "twice")
            await read_all(there, "twice", expected)
            return len(await read_all(there, "twice"))

    flags = arguments(tmp_path, source, target, "--streams=twice")
    for round_ in (1, 2):
        with bridging(tmp_path, flags) as bridge:
            assert run(count(10 * round_)) == 10 * round_
            bridge.end()


def test_readiness_ends_while_a_hub_is_away_and_returns_with_it(tmp_path: Path) -> None:
    async def until(url: str, status: int) -> None:
        while (await get(f"{url}/readyz"))[0] != status:
            await asyncio.sleep(0.1)

    with serving(tmp_path / "source") as source, serving(tmp_path / "target") as target:
        with bridging(tmp_path, arguments(tmp_path, source, target, "--streams=orders")) as bridge:
            run(until(bridge.url, 200))
            source.stop()
            run(until(bridge.url, 503))
            source.start()
            run(until(bridge.url, 200))
            assert bridge.end() == 0
        assert any(line["event"] == "session_ended" for line in bridge.lines())


def test_a_gated_target_takes_copies_with_a_token_for_that_stream_alone_also_with_an_empty_disk(
    tmp_path: Path,
) -> None:
    token = mint(ADMIN, BRIDGE.client_id, [stream_id("orders")], 3_600, None)
    path = tmp_path / "token.cbor"
    path.write_bytes(token.encode())

    async def copied(source: HubProcess, target: HubProcess, count: int) -> None:
        async with talking(source) as here:
            await send(here, 10)
        async with connect(target.url, trust=await hub_id(target), retry=QUICK) as there:
            assert len(await read_all(there, "orders", count)) == count

    with serving(tmp_path / "source") as source, serving(tmp_path / "target", gated=True) as target:
        flags = arguments(tmp_path, source, target, "--streams=orders", f"--cap={path}")
        for count in (10, 20):
            with bridging(tmp_path, flags) as bridge:
                run(copied(source, target, count))
                assert bridge.end() == 0
            shutil.rmtree(tmp_path / "state")


def test_a_source_that_forks_ends_the_program_which_names_the_evidence(tmp_path: Path) -> None:
    async def exchange(source: HubProcess, target: HubProcess, expected: int) -> None:
        async with talking(source) as here:
            await send(here, 5)
        if expected:
            async with talking(target) as there:
                await read_all(there, "orders", expected)

    with serving(tmp_path / "source") as source, serving(tmp_path / "target") as target:
        flags = arguments(tmp_path, source, target, "--streams=orders")
        run(exchange(source, target, 0))
        source.stop()
        old = source.snapshot()
        source.start()
        with bridging(tmp_path, flags) as bridge:
            run(exchange(source, target, 10))
            bridge.end()
        source.stop()
        source.replace_data(old)
        source.start()
        run(exchange(source, target, 0))
        bridge = Bridge(tmp_path, flags)
        assert bridge.process.wait(30) == 3
        bridge.end()
        (line,) = [line for line in bridge.lines() if line["event"] == "source_diverged"]
        assert (Path(line["evidence"]) / "equivocation.cbor").exists()
        assert line["evidence"] in line["error"]


def check(flags: list[str], *more: str) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *flags, "--check", *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_check_compares_records_with_the_sources_receipts(
    hubs: tuple[HubProcess, HubProcess], tmp_path: Path
) -> None:
    source, target = hubs

    async def mirrored() -> None:
        async with talking(source) as here, talking(target) as there:
            await send(here, 30, "checked")
            await read_all(there, "checked", 30)

    flags = arguments(tmp_path, source, target, "--streams=checked", "--mode=reference")
    with bridging(tmp_path, flags) as bridge:
        run(mirrored())
        bridge.end()
    done = subprocess.run(
        [*PROGRAM, *flags, "--check", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["streams"]["checked"]
    assert (found["checked"], found["faulty"], found["repeated"], found["missing"]) == (30, 0, 0, 0)

    async def lie() -> None:
        async with talking(target, "liar") as there:
            last = Mirror.decode((await read_all(there, "checked"))[-1].body)
            stream = there.stream("checked", readers=(TARGET_READER,))
            await stream.send(replace(last, source_receipt_root=MmrRoot(last.source_leaf_hash)))

    run(lie())
    done = check(flags)
    assert done.returncode == 3
    assert "entry 31: the source's receipt differs" in done.stdout
