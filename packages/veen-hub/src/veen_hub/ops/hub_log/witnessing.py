"""Witness rounds: the newest hub checkpoint is cosigned by all witnesses at once, then published (P2).

A round sends the hub checkpoint to every witness in reach, waits until each has answered or failed, and
publishes the hub checkpoint with the cosignatures it got. A witness that fails leaves the rounds: it is
asked again by itself, with growing pauses, and comes back with its first answer. So a witness that is down
delays one round, by at most ``witness_link.ANSWER_SEC``. If the hub log does not grow, cosignatures are
renewed every ``hub_log.recosign_sec``.

Every answer is a comparison with a memory (P3): a contradiction closes the signing gate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Sequence
from typing import Final

from veen_core.errors import VeenError
from veen_core.ids import UnixTime
from veen_core.tlog.note import NoteSignature, cosigned_at
from veen_core.tlog.tree_head import SignedHead
from veen_hub.ops.hub_log.memories import (
    FIRST_PAUSE_SEC,
    MAX_PAUSE_SEC,
    ContradictedError,
    Memories,
    SilentMemoryError,
)
from veen_hub.ops.hub_log.witness_link import WitnessLink
from veen_hub.ops.logs import LOGGER, log
from veen_hub.ops.metrics import Metrics
from veen_hub.pipeline.log_access import LogAccess
from veen_storage import Store

PUBLISH_RETRY_SEC: Final = 1.0
"""Pause after a checkpoint could not be written."""


class _Member:
    """A witness and how it has answered lately."""

    def __init__(self, link: WitnessLink) -> None:
        self.link = link
        self.in_rounds = True
        self.newest: tuple[str, NoteSignature] | None = None
        """The newest cosignature, and the text that it signs."""
        self.retrying: asyncio.Task[None] | None = None


class Witnessing:
    """Runs the witness rounds of one hub; used from the event loop only."""

    def __init__(
        self,
        links: Sequence[WitnessLink],
        store: Store,
        access: LogAccess,
        memories: Memories,
        metrics: Metrics,
        *,
        recosign_sec: float,
    ) -> None:
        self._members = [_Member(link) for link in links]
        self._store = store
        self._access = access
        self._memories = memories
        self._metrics = metrics
        self._recosign_sec = recosign_sec
        self._current: SignedHead | None = None
        """The checkpoint of the next round."""
        self._done: SignedHead | None = None
        """The checkpoint of the last round that has ended, and was published."""
        self._changed = asyncio.Event()
        self._publishing = asyncio.Lock()
        self._writing: asyncio.Future[None] | None = None
        self._running: asyncio.Task[None] | None = None
        for member in self._members:
            metrics.witness_failures.labels(member.link.key.name)  # appears at 0

    def start(self) -> None:
        """Wait for the first checkpoint; the published one tells what the witnesses know."""
        published = self._store.hub_log.published
        for member in self._members:
            self._restore(member, published)
        self._running = asyncio.create_task(self._run())

    @staticmethod
    def _restore(member: _Member, published: SignedHead | None) -> None:
        """Take a witness's old size and cosignature from the published checkpoint."""
        key = member.link.key
        for line in filter(key.is_named_by, published.note.signatures if published is not None else ()):
            assert published is not None
            if key.is_valid(published.note.text, line.signature):
                member.newest = published.note.text, line
                member.link.old_size = published.head.size

    def announce(self, signed: SignedHead) -> None:
        """Let the next round be about this checkpoint."""
        self._current = signed
        self._changed.set()

    async def drain(self) -> None:
        """Run a last round about the newest checkpoint, if it was not published yet, and end."""
        await self._stop_tasks()
        if self._current is not self._done:
            await self._round()
        await self._stop_tasks()
        await self._written()
        for member in self._members:
            await member.link.close()

    async def _stop_tasks(self) -> None:
        tasks = [task for task in (self._running, *(m.retrying for m in self._members)) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_sec()):
                    await self._changed.wait()
            await self._round()

    def _pause_sec(self) -> float | None:
        """Return when a round is due even if the hub log does not grow; None: never."""
        if self._current is not self._done:
            return PUBLISH_RETRY_SEC
        return self._recosign_sec if self._members else None

    async def _round(self) -> None:
        self._changed.clear()
        signed = self._current
        if signed is None or self._memories.contradiction_found:
            return
        started = time.perf_counter()
        asked = [member for member in self._members if member.in_rounds]
        await asyncio.gather(*(self._ask(member, signed) for member in asked))
        for member in asked:
            if not member.in_rounds:
                member.retrying = asyncio.create_task(self._retry(member))
        if await self._publish(signed):
            self._done = signed
        if self._members:
            self._metrics.witness_rounds.inc()
            self._metrics.witness_round_ms.observe((time.perf_counter() - started) * 1_000)

    async def _ask(self, member: _Member, signed: SignedHead) -> bool:
        """Ask one witness and return whether it cosigned; only then it stays in the rounds."""
        link = member.link
        try:
            cosignature = await link.cosign(signed)
        except SilentMemoryError as exc:
            self._failed(member, exc)
        except ContradictedError as exc:
            self._failed(member, None)
            self._memories.contradicted(link.name, exc)
        except Exception as exc:  # noqa: BLE001 - logged; a bug must not count as an answer
            LOGGER.exception("witness_failed", extra={"fields": {"witness": link.key.name}})
            self._failed(member, SilentMemoryError(f"internal error: {type(exc).__name__}"))
        else:
            member.in_rounds = True
            member.newest = signed.note.text, cosignature
            self._memories.agrees(link.name)
        return member.in_rounds

    def _failed(self, member: _Member, why: SilentMemoryError | None) -> None:
        member.in_rounds = False
        self._metrics.witness_failures.labels(member.link.key.name).inc()
        if why is not None:
            self._memories.silent(member.link.name, why)

    async def _retry(self, member: _Member) -> None:
        """Ask a witness that failed until it answers, each time about the newest checkpoint."""
        pause = FIRST_PAUSE_SEC
        while not self._memories.contradiction_found:
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads requests
            pause = min(2 * pause, MAX_PAUSE_SEC)
            if (signed := self._current) is not None and await self._ask(member, signed):
                await self._publish(signed)
                return

    async def _publish(self, signed: SignedHead) -> bool:
        """Publish a checkpoint with the cosignatures it has; return False if it could not be written.

        Of one tree, cosignatures are added and renewed, and never removed. A checkpoint that a memory has
        contradicted is not published: it may belong to a second history, which has not left the hub so far.
        """
        if self._memories.contradiction_found:
            return False
        async with self._publishing:
            await self._written()
            before = self._store.hub_log.published
            if not signed.head.size or (before is not None and before.head.size > signed.head.size):
                return True
            base = signed.note
            if before is not None and before.head == signed.head:
                base = base.with_signatures(before.note.signatures)
            newest = [member.newest for member in self._members if member.newest is not None]
            note = base.with_signatures(line for text, line in newest if text == base.text)
            if before is not None and note == before.note:
                return True
            made = SignedHead(signed.head, note)
            self._writing = asyncio.ensure_future(self._access.read(lambda: self._store.publish(made)))
            try:
                await asyncio.shield(self._writing)
            except (VeenError, OSError) as exc:
                log(logging.ERROR, "publish_failed", size=signed.head.size, error=str(exc))
                return False
            except Exception:  # noqa: BLE001 - logged; a bug does not end the rounds
                LOGGER.exception("publish_failed", extra={"fields": {"size": signed.head.size}})
                return False
            return True

    async def _written(self) -> None:
        """Wait for a write whose task was cancelled."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def refresh_gauges(self, now: UnixTime) -> None:
        """Update the age of every witness's newest cosignature."""
        for member in self._members:
            age = now - cosigned_at(member.newest[1].signature) if member.newest is not None else math.inf
            self._metrics.cosignature_age.labels(member.link.key.name).set(max(0, age))
