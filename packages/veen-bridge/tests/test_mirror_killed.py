"""A mirror that is killed at any moment, with and without its disk, loses and doubles nothing (P8).

``VEEN_CRASH_ROUNDS`` is the number of kills.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from .import_ledger import imported_positions
from .kill_points import crash_rounds
from .mirror_fixtures import (
    SOURCE_READER,
    TARGET_READER,
    HubProcess,
    hub_id,
    read_all,
    run,
    serving,
    talking,
)
from .test_mirror_process import arguments, reader_folder

ROUNDS = crash_rounds(50)
ROUNDS_PER_LOST_DISK = 4


class Victims:
    """Mirrors that one process forks, which has imported everything."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process, self._log = process, log

    @property
    def listened(self) -> int:
        """How many of them have come as far as listening."""
        return self._log.read_bytes().count(b"veen-bridge listening on ")

    async def start(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"start\n")
        return int(await self._process.stdout.readline())

    def check_alive(self, child: int) -> None:
        assert os.path.exists(f"/proc/{child}"), f"it ended by itself: {self._log.read_text()[-2_000:]}"

    async def kill(self, child: int) -> None:
        self.check_alive(child)
        os.kill(child, signal.SIGKILL)
        while os.path.exists(f"/proc/{child}"):
            await asyncio.sleep(0.005)


@asynccontextmanager
async def victims(flags: list[str], log: Path) -> AsyncIterator[Victims]:
    command = (sys.executable, str(Path(__file__).with_name("mirror_victim.py")), *flags)
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
        )
    try:
        yield Victims(process, log)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def write(source: HubProcess, stopping: asyncio.Event) -> int:
    """Send until ``stopping``; return the number of messages."""
    sent = 0
    async with talking(source) as here:
        to = here.stream("orders", readers=(SOURCE_READER,))
        while not stopping.is_set():
            async for _ in to.send_many(f"order {sent + n}" for n in range(5)):
                sent += 1
            await asyncio.sleep(0.02)
    return sent


async def kill_often(mirrors: Victims, state: Path) -> None:
    chance = random.Random(17)
    for round_ in range(1, ROUNDS + 1):
        before, child = mirrors.listened, await mirrors.start()
        if round_ % 3:  # while it mirrors; else while it starts
            while mirrors.listened == before:
                mirrors.check_alive(child)
                await asyncio.sleep(0.005)
        await asyncio.sleep(chance.uniform(0.02, 0.4))  # the moment of the kill is what is random here
        await mirrors.kill(child)
        if round_ % ROUNDS_PER_LOST_DISK == 0:
            shutil.rmtree(state, ignore_errors=True)


async def mirror_and_kill(source: HubProcess, target: HubProcess, flags: list[str], state: Path) -> int:
    """Kill mirrors while messages are sent, then let one finish; return the number of messages."""
    stopping = asyncio.Event()
    writing = asyncio.create_task(write(source, stopping))
    async with victims(flags, state.with_name("mirrors.log")) as mirrors, talking(target) as there:
        await kill_often(mirrors, state)
        stopping.set()
        sent = await writing
        copied = len(await read_all(there, "orders"))
        assert copied >= ROUNDS // 5, "mirrors were killed before they had copied enough"
        child = await mirrors.start()
        await read_all(there, "orders", sent)
        os.kill(child, signal.SIGTERM)
        return sent


def test_killed_at_any_moment_with_and_without_its_disk_the_mirror_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "source") as source, serving(tmp_path / "target") as target:
        flags = arguments(tmp_path, source, target, "--streams=orders", "--log-level=error")
        work = mirror_and_kill(source, target, flags, tmp_path / "state")
        sent = run(work, seconds=60 + 4 * ROUNDS)
        keys = reader_folder(tmp_path / "ledger", TARGET_READER)
        positions = imported_positions(target.url, run(hub_id(target)), keys, "orders")
    assert positions == list(range(1, sent + 1))
