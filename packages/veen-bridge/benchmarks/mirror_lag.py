"""The lag of a live mirror: from the source's receipt to the copy at a reader of the target.

``bridge.mirror_lag_ms``  99th percentile, in milliseconds, at 500 messages per second, mode wrap

Both hubs and the mirror are processes of their own on the same cores as writer and reader.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

from veen_core.ids import HubId, StreamSeq
from veen_hub.client import Identity, connect

RATE = 500
STREAM = "bench/mirror"
MAX_WAIT_SEC = 60.0
"""Longest time that the mirror may need beyond the time of sending; a mirror that ended never copies."""
PROGRAM = (sys.executable, "-m", "veen_bridge.commands.mirror")


def mirror_lags(
    source: tuple[str, HubId], target: tuple[str, HubId], identity: Path, seconds: int
) -> list[float]:
    """Return the lag of each message, in milliseconds."""
    flags = [
        f"--source-url={source[0]}",
        f"--source-trust={source[1].hex()}",
        f"--target-url={target[0]}",
        f"--target-trust={target[1].hex()}",
        f"--streams={STREAM}",
        f"--client={identity}",
        "--log-level=error",
    ]
    process = subprocess.Popen([*PROGRAM, *flags], stdout=subprocess.PIPE)  # noqa: S603 - of this project
    try:
        return asyncio.run(asyncio.wait_for(_lags(source, target, RATE * seconds), seconds + MAX_WAIT_SEC))
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


async def _lags(source: tuple[str, HubId], target: tuple[str, HubId], count: int) -> list[float]:
    warm = RATE
    acknowledged: dict[int, float] = {}
    copied: list[float] = []
    async with (
        connect(source[0], Identity.generate(), trust=source[1]) as here,
        connect(target[0], trust=target[1]) as there,
    ):
        stream, label = here.stream(STREAM), there.stream(STREAM).label()

        async def read() -> None:
            async with aclosing(there.log_reader().follow(label, StreamSeq(1))) as entries:
                async for _ in entries:
                    copied.append(time.perf_counter())
                    if len(copied) == warm + count:
                        return

        async def send() -> None:
            receipt = await stream.send("x" * 100)
            acknowledged[receipt.stream_seq] = time.perf_counter()

        reading = asyncio.create_task(read())
        await send()
        while not copied:  # the mirror has started
            await asyncio.sleep(0.05)
        start, sending = time.perf_counter(), []
        for n in range(1, warm + count):
            sending.append(asyncio.create_task(send()))
            await asyncio.sleep(max(0.0, start + n / RATE - time.perf_counter()))
        await asyncio.gather(*sending)
        await reading
    return [1_000 * (copied[seq - 1] - acknowledged[seq]) for seq in range(warm + 1, warm + count + 1)]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
