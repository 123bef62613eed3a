"""A running witness: its folder, its memory and its cosigner."""

from __future__ import annotations

import asyncio
from typing import Final

from veen_core.protocols import Clock
from veen_hub.ops.clock import WallClock
from veen_hub.witness.config import WitnessConfig
from veen_hub.witness.cosigner import Answer, Cosigner, Pending
from veen_hub.witness.folder import Folder
from veen_hub.witness.memory import Memory, origin_hash
from veen_hub.witness.metrics import WitnessMetrics
from veen_hub.witness.rules import Refusal, check_request
from veen_storage import Layout
from veen_storage.disk.directory_lock import DirectoryLock

MAX_WAITING: Final = 4_096
"""Requests that wait for the disk; a further one is answered with 503."""
BUSY: Final = Answer(503, "too many requests wait for the disk; try again in a second\n")


class Witness:
    """One witness; ``start`` and ``stop`` run in its event loop."""

    def __init__(self, folder: Folder, config: WitnessConfig, *, clock: Clock | None = None) -> None:
        self.config = config
        self.clock = clock if clock is not None else WallClock()
        self.key = folder.load_key()
        self.logs = config.log_keys
        self._lock = DirectoryLock(Layout(folder.root))
        try:
            self.memory = Memory(folder.memory, self.key.verifier)
        except BaseException:
            self._lock.release()
            raise
        self.metrics = WitnessMetrics(self.memory, self.clock.now)
        self.by_hash = {
            origin_hash(origin).hex(): origin for origin in self.logs.keys() | self.memory.heads.keys()
        }
        """Origins by the SHA-256 of their name in hex, as the monitoring paths have them."""
        self.failed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cosigner = Cosigner(self.memory, self.key, self.clock, self._settle, self._fail)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._cosigner.start()

    def stop(self) -> None:
        """Answer what waits, and close the memory."""
        self._cosigner.stop()
        self.memory.close()
        self._lock.release()

    async def add_checkpoint(self, body: bytes) -> Answer:
        """Answer one request; never raises a refusal."""
        answer = await self._add_checkpoint(body)
        self.metrics.requests.labels(str(answer.status)).inc()
        return answer

    async def _add_checkpoint(self, body: bytes) -> Answer:
        try:
            signed = check_request(body, self.logs)
        except Refusal as refusal:
            return Answer(refusal.status, refusal.body, refusal.content_type)
        if self._cosigner.waiting >= MAX_WAITING:
            return BUSY
        assert self._loop is not None
        answered: asyncio.Future[Answer] = self._loop.create_future()

        def reply(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._cosigner.submit(Pending(signed, reply))
        return await answered

    def _settle(self, answers: list[tuple[Pending, Answer]]) -> None:
        """Hand a batch over to the event loop with one call."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._reply, answers)

    def _reply(self, answers: list[tuple[Pending, Answer]]) -> None:
        self.metrics.batch.observe(len(answers))
        for pending, answer in answers:
            pending.reply(answer)

    def _fail(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.failed.set)
