"""A running witness: its folder, its state and its cosigner."""

from __future__ import annotations

import asyncio

from veen_core.protocols import Clock
from veen_hub.ops.clock import WallClock
from veen_hub.witness.config import WitnessConfig
from veen_hub.witness.cosigner import BUSY, CosignAnswer, Cosigner
from veen_hub.witness.folder import WitnessFolder
from veen_hub.witness.metrics import WitnessMetrics
from veen_hub.witness.rules import WitnessRefusal, check_request
from veen_hub.witness.state import WitnessState, origin_hash
from veen_storage import DirectoryLock, Layout


class Witness:
    """One witness, used in one event loop."""

    def __init__(self, folder: WitnessFolder, config: WitnessConfig, *, clock: Clock | None = None) -> None:
        self.config = config
        self.clock = clock if clock is not None else WallClock()
        self.key = folder.load_key()
        self.logs = config.log_keys
        self._lock = DirectoryLock(Layout(folder.root))
        try:
            self.state = WitnessState(folder.state, self.key.verifier)
        except BaseException:
            self._lock.release()
            raise
        self.metrics = WitnessMetrics(self.state, self.clock.now)
        self.by_hash = {
            origin_hash(origin).hex(): origin for origin in self.logs.keys() | self.state.heads.keys()
        }
        """Origins by the SHA-256 of their name in hex, as the monitoring paths have them."""
        self.failed = asyncio.Event()
        """Set when the state could not be written: the witness must stop."""
        self._cosigner = Cosigner(self.state, self.key, self.clock, self.metrics.batch.observe, self.failed)

    async def stop(self) -> None:
        """Make durable what waits, and close the state."""
        await self._cosigner.stop()
        self.state.close()
        self._lock.release()

    async def add_checkpoint(self, body: bytes) -> CosignAnswer:
        """Answer one request, at the latest after ``request_timeout_sec``."""
        try:
            async with asyncio.timeout(self.config.listen.request_timeout_sec):
                answer = await self._cosigner.handle(check_request(body, self.logs))
        except WitnessRefusal as refusal:
            answer = CosignAnswer(refusal.status, refusal.body, refusal.content_type)
        except TimeoutError:  # it may still be cosigned; the log then learns the size from a 409
            answer = BUSY
        self.metrics.requests.labels(str(answer.status)).inc()
        return answer
