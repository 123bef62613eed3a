"""The mirror service: connects to both hubs, runs one mirror per stream, and reconnects (spec-4 §6).

A session ends with the first failure of any stream. If a hub is silent or overloaded, the service reconnects
with growing pauses, because the hub may be restarting, rotating its keys or moving. Any other failure ends
the service: a source that diverges (the evidence is on disk then), a refused token, an invalid answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from veen_bridge.mirror.metrics import MirrorMetrics
from veen_bridge.mirror.stream_mirror import MirrorOptions, StreamMirror, StreamPair
from veen_core.cap import CapToken
from veen_core.errors import ConfigError, VeenError
from veen_hub.client import (
    Diverged,
    Hub,
    Identity,
    Pin,
    RateLimited,
    Retry,
    StateStore,
    Tls,
    Unavailable,
    Unreachable,
    connect,
)
from veen_hub.client.roles import TOKEN_BOUNDS
from veen_hub.ops.logs import log

SESSION_RETRY: Final = Retry(max_attempts=20, deadline=10.0, max_outage=10.0, max_delay=1.0)
"""Within a session a hub may be away for 10 s; then the session ends, and readiness with it."""
FIRST_PAUSE_SEC: Final = 0.2
MAX_PAUSE_SEC: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubTarget:
    """A hub to connect to: its address, its pin, and the TLS settings."""

    url: str
    pin: Pin
    tls: Tls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """The settings of one mirror service."""

    source: HubTarget
    target: HubTarget
    pairs: tuple[StreamPair, ...]
    options: MirrorOptions
    identity: Identity
    """Signs at the target; the source is read without an identity."""
    store: StateStore
    caps: tuple[CapToken, ...] = ()
    """Tokens for the target; authorized at each start, which is idempotent (H5)."""


class MirrorService:
    """Mirrors until it is stopped, or until a failure that no retry can repair."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings
        self.metrics = MirrorMetrics([pair.source for pair in settings.pairs])
        self._connecting = "source"

    async def run(self, stopping: asyncio.Event) -> None:
        """Mirror until ``stopping`` is set; what was read by then is sent before this returns."""
        pause = FIRST_PAUSE_SEC
        while not stopping.is_set():
            try:
                await self._session(stopping)
            except (Unreachable, Unavailable, RateLimited) as exc:
                if not self.metrics.not_ready:
                    pause = FIRST_PAUSE_SEC
                self._note_outage(exc)
                await _wait(stopping, pause)
                pause = min(MAX_PAUSE_SEC, pause * 2)
            except VeenError as exc:
                self._note_end(exc)
                raise

    def _note_outage(self, error: VeenError) -> None:
        kind = type(error).__name__.lower()
        self.metrics.faults.labels(self._connecting, kind).inc()
        log(logging.WARNING, "session_ended", reason=kind, error=str(error), operation="mirror")
        for pair in self._settings.pairs:
            self.metrics.set_waiting(pair.source, str(error))

    def _note_end(self, error: VeenError) -> None:
        kind = type(error).__name__.lower()
        self.metrics.faults.labels(self._connecting, kind).inc()
        fields: dict[str, object] = {"reason": kind, "error": str(error), "operation": "mirror"}
        if isinstance(error, Diverged) and error.folder is not None:
            fields["evidence"] = str(error.folder)
        log(logging.ERROR, "source_diverged" if isinstance(error, Diverged) else "mirror_failed", **fields)

    async def _session(self, stopping: asyncio.Event) -> None:
        async with self._connected() as (source, target):
            for token in self._settings.caps:
                await target.authorize(token)
            mirrors = [
                StreamMirror(source, target, pair, self._settings.options, self.metrics)
                for pair in self._settings.pairs
            ]
            log(
                logging.INFO,
                "session_started",
                source=source.hub_id.hex(),
                target=target.hub_id.hex(),
                streams=len(mirrors),
                mode=self._settings.options.mode.value,
                operation="mirror",
            )
            await run_all([mirror.run(stopping) for mirror in mirrors])

    def _note_stage(self, stage: str) -> None:
        self._connecting = stage

    def _connected(self) -> AbstractAsyncContextManager[tuple[Hub, Hub]]:
        return connected(self._settings, self._note_stage)


@asynccontextmanager
async def connected(
    given: MirrorSettings, stage: Callable[[str], None] = lambda _stage: None
) -> AsyncIterator[tuple[Hub, Hub]]:
    """Connect to the source, without an identity, and to the target.

    ``stage`` is called with the hub that a failure from now on concerns: source, target or either.
    """
    stage("source")
    async with connect(
        given.source.url, trust=given.source.pin, tls=given.source.tls, state=given.store, retry=SESSION_RETRY
    ) as source:
        stage("target")
        async with connect(
            given.target.url,
            given.identity,
            trust=given.target.pin,
            tls=given.target.tls,
            state=given.store,
            retry=SESSION_RETRY,
        ) as target:
            if source.hub_id == target.hub_id:
                raise ConfigError(
                    f"source and target are the same hub {source.hub_id.hex()}",
                    action="give the addresses of two hubs",
                )
            if target.connection.status.gating:
                target.connection.bounds = TOKEN_BOUNDS
            stage("either")
            yield source, target


async def run_all(works: Sequence[Coroutine[None, None, None]]) -> None:
    """Run coroutines until all have ended, or one has failed; then cancel the others and raise its error."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait(stopping: asyncio.Event, seconds: float) -> None:
    """Wait, but no longer than until ``stopping``."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return
