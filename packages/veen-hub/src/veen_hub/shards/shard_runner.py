"""One shard's process as the coordinator sees it: started, fenced, and restarted when it ends.

Each start: the fence is raised, the process opens the part and takes the tokens it lacks, the coordinator
checks that the part has everything the hub log says, and opens it. A process that was killed, or has
failed, is started again, with growing pauses. One that says that its directory is damaged, or its settings
are wrong, ends the hub.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pickle
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

from veen_core.errors import ApiError, VeenError
from veen_core.ids import UnixTime
from veen_hub.ops.config import HubConfig
from veen_hub.ops.logs import LOGGER, log
from veen_hub.shards.forwarding import PartClient
from veen_hub.shards.shard_process import ShardSettings
from veen_storage import Files
from veen_storage.shards.fence import raise_fence
from veen_storage.shards.sharded_layout import ShardedLayout

FIRST_PAUSE_SEC: Final = 0.1
MAX_PAUSE_SEC: Final = 5.0
HEALTHY_SEC: Final = 10.0
"""A process that has run so long is restarted without a pause."""
READY_SEC: Final = 60.0
"""Longest time for opening a part; its journal is bounded."""
STOP_SEC: Final = 15.0
"""Longest time for settling or ending; a shard that is killed has lost nothing that was acknowledged."""
GATE_SEC: Final = 0.2
"""How often the state of the signing gate is compared with that of the shard."""
GATE_REPEAT_SEC: Final = 5.0
"""Time between two reports of an unchanged gate, which show that the shard still answers."""
SILENT_SEC: Final = 20.0
"""Longest time without an answer: a shard that may still sign when the hub must not is killed."""
FINAL_CODES: Final = frozenset({1, 2, 3})
"""Exit codes after which the same process would fail again (``main.EXIT_CODES``)."""


class ShardRunner:
    """Runs one shard until it is stopped; used from the event loop."""

    def __init__(
        self,
        number: int,
        layout: ShardedLayout,
        config: HubConfig,
        client: PartClient,
        gate_state: Callable[[], bytes],
        *,
        port: int,
        floor: Callable[[], UnixTime],
        check: Callable[[int], Awaitable[None]],
        on_down: Callable[[int], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """``check`` raises unless the part has what the hub log says; ``on_failure`` ends the hub."""
        self.number = number
        self.client = client
        self.pid = 0
        self.load = 0.0
        """How full the shard's queue was when it was asked last."""
        # The proof of work that the hub asks for follows the queues (SH1+ 5.2).
        self._repeat_sec = GATE_SEC if config.pow.max_difficulty else GATE_REPEAT_SEC
        self._layout = layout
        self._config = config
        self._gate_state = gate_state
        self._port = port
        self._floor = floor
        self._check = check
        self._on_down = on_down
        self._on_failure = on_failure
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.up = asyncio.Event()
        """Set while the shard serves its labels."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SEC
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                code = await self._run_once()
            except Exception as exc:  # noqa: BLE001 - a bug here ends the hub, not one shard for ever
                await self._kill()
                if not isinstance(exc, VeenError | OSError):
                    LOGGER.exception("shard_runner_failed")
                if not isinstance(exc, ApiError):
                    self._on_failure(f"{self.client.name}: {exc}")
                    return
                log(logging.WARNING, "shard_not_opened", part=self.client.name, error=str(exc))
                code = -1
            finally:
                self.up.clear()
                self.load = 0.0
                self._on_down(self.number)
            if self._stopping.is_set():
                return
            log(logging.ERROR, "shard_ended", part=self.client.name, code=code, pid=self.pid)
            if code in FINAL_CODES:
                self._on_failure(f"{self.client.name} ended with code {code}: see the log")
                return
            pause = (
                FIRST_PAUSE_SEC if time.monotonic() - started > HEALTHY_SEC else min(2 * pause, MAX_PAUSE_SEC)
            )
            await asyncio.sleep(pause)

    async def _run_once(self) -> int:
        """Start the process and open its part; return its exit code once it has ended."""
        process = await self._start_process()
        ended = asyncio.create_task(process.wait())
        opening = asyncio.create_task(self._open(process))
        await asyncio.wait({ended, opening}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            return ended.result()
        await opening  # raises what went wrong
        if self._stopping.is_set():
            return await ended
        self.up.set()
        log(logging.INFO, "shard_serves", part=self.client.name, pid=process.pid)
        following = asyncio.create_task(self._follow_gate())
        try:
            return await ended
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _start_process(self) -> asyncio.subprocess.Process:
        fence = await asyncio.to_thread(raise_fence, self._layout.fence(self.number), Files())
        settings = ShardSettings(
            config=self._config,
            root=self._layout.root,
            number=self.number,
            fence=fence,
            floor=self._floor(),
            port=self._port,
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "veen_hub.shards.shard_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the coordinator to handle
        )
        self._process, self.pid = process, process.pid
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(settings))
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        return process

    async def _open(self, process: asyncio.subprocess.Process) -> None:
        """Wait for the process, check its part, and let it serve."""
        assert process.stdout is not None
        async with asyncio.timeout(READY_SEC):
            if not await process.stdout.readline():
                await process.wait()
                return
        await self._check(self.number)
        if not self._stopping.is_set():
            await self._send_gate()
            await self.client.call("POST", "/part/serve")

    # --- the signing gate (RESOLUTIONS P3)

    async def _follow_gate(self) -> None:
        """Keep the shard's gate as the coordinator's is; kill a shard that does not answer."""
        sent: bytes | None = None
        sent_at = 0.0
        while True:
            state, now = self._gate_state(), time.monotonic()
            if state != sent or now - sent_at >= self._repeat_sec:
                try:
                    await self._send_gate()
                except ApiError as exc:
                    if not self._stopping.is_set():
                        log(logging.ERROR, "shard_killed", part=self.client.name, error=str(exc))
                        await self._kill()
                    return
                sent, sent_at = state, now
            await asyncio.sleep(GATE_SEC)

    async def _send_gate(self) -> None:
        answer = await self.client.call("POST", "/part/gate", self._gate_state(), timeout_sec=SILENT_SEC)
        self.load = float(json.loads(answer)["load"])

    # --- stopping

    async def drain(self) -> None:
        """Let the shard settle what it has accepted; one that does not answer is killed."""
        self._stopping.set()
        if self.up.is_set():
            try:
                await self.client.call("POST", "/part/drain", timeout_sec=STOP_SEC)
            except ApiError:
                log(logging.WARNING, "shard_killed", part=self.client.name)
                await self._kill()

    async def stop(self) -> None:
        """End the process; one that does not answer, or does not end in time, is killed."""
        self._stopping.set()
        process = self._process
        if process is not None and process.returncode is None:
            try:
                await self.client.call("POST", "/part/stop", timeout_sec=STOP_SEC)
                async with asyncio.timeout(STOP_SEC):
                    await process.wait()
            except (ApiError, TimeoutError):
                log(logging.WARNING, "shard_killed", part=self.client.name)
        await self._kill()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _kill(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
