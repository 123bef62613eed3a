"""The follower: keeps a running replica up to date with its primary (RESOLUTIONS P9, ADR 0019).

Each batch is verified and made durable before the next one is looked at (``Store.replicate``). After any
failure of the network the follower connects again and continues after its last durable batch. A primary that
contradicts the replica stops it for good: what the replica has stays readable.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from veen_core import handover as handovers
from veen_core import hub_identity
from veen_core import hub_log as hub_logs
from veen_core.entry import Entry
from veen_core.errors import VeenError
from veen_core.handover import Handover
from veen_core.ids import Coid
from veen_hub.client.errors import Conflict, NotFound, Unreachable
from veen_hub.ops.config import HubConfig
from veen_hub.ops.logs import LOGGER, log
from veen_hub.ops.metrics import Metrics
from veen_hub.pipeline.log_access import LogAccess
from veen_hub.pipeline.threads import in_own_thread, started_pool
from veen_hub.replica.divergence import DivergedPrimaryError, Divergence
from veen_hub.replica.items import (
    Alive,
    AttachmentIds,
    Batches,
    HandoverItem,
    Hello,
    PublishedItem,
    ReplicaItem,
)
from veen_hub.replica.preparation import check_identity
from veen_hub.replica.primary import Primary
from veen_storage import (
    AbsentError,
    LostError,
    PoisonedError,
    RefusedBatchError,
    StorageError,
    Store,
    split_batches,
)

RETRY_SEC: Final = 0.2
MAX_RETRY_SEC: Final = 5.0
ATTACHMENT_RETRY_SEC: Final = 2.0
MAX_WANTED: Final = 200_000
"""Attachments that wait to be copied, about 30 MB; the primary names the others at the next connection."""
STALE_SEC: Final = 30.0
"""A replica that has not heard of its primary for this long is not ready."""


class ReplicaFollower:
    """Follows the primary of one replica; used from the event loop."""

    def __init__(
        self,
        config: HubConfig,
        store: Store,
        access: LogAccess,
        metrics: Metrics,
        *,
        on_entries: Callable[[list[Entry]], None],
        on_handover: Callable[[Handover], None],
        on_reopen: Callable[[str], None],
    ) -> None:
        """``on_reopen`` is called if the replica must open its directory again, for a new key."""
        assert config.replica_of is not None
        self._config = config
        self._store = store
        self._access = access
        self._metrics = metrics
        self._on_entries = on_entries
        self._on_handover = on_handover
        self._on_reopen = on_reopen
        self._writer = started_pool(1, "veen-replica")
        self._tasks: list[asyncio.Task[None]] = []
        self._wanted: dict[Coid, None] = {}
        self._wanted_changed = asyncio.Event()
        self._wants_more = False
        """Whether the primary has named attachments that did not fit into ``_wanted``."""
        self._heard_at: float | None = None
        self._misbehaved = False
        """Whether the primary has sent an invalid item, and since then nothing that shows progress."""
        self._last = store.last_batch
        """The primary's last batch, as far as it is known."""
        self._caught_up = False
        """Whether this replica has had all batches of its primary at least once since it started."""
        self.problem_found: str | None = None
        """Why the replica no longer follows, for good."""

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._fetch_attachments())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._writer.shutdown)

    @property
    def problem(self) -> str | None:
        """Why reads may be out of date, or None."""
        if self.problem_found is not None:
            return f"replica: {self.problem_found}"
        if self._heard_at is None or time.monotonic() - self._heard_at > STALE_SEC:
            return "replica: the primary has not been heard of"
        if not self._caught_up:
            return "replica: entries that the primary had when the replica connected are still missing"
        return None

    @property
    def behind(self) -> int:
        """Batches of the primary that are not durable here, as far as they are known."""
        return max(0, self._last - self._store.last_batch)

    @property
    def missing_attachments(self) -> int:
        return len(self._wanted)

    # --- the primary's journal

    async def _run(self) -> None:
        pause, logged = RETRY_SEC, ""
        while self.problem_found is None:
            primary, before = Primary(self._config), self._store.last_batch
            try:
                await self._follow(primary)
                why = "the primary has closed the connection"
            except DivergedPrimaryError as exc:
                await self._stop_for_good(primary, exc)
                return
            except NotFound as exc:
                self._give_up(f"{exc.hub_message}; remove the data directory and start again for a new copy")
                return
            except PoisonedError as exc:
                self._give_up(str(exc))
                return
            except Exception as exc:  # noqa: BLE001 - logged, and tried again
                why = str(exc)
                self._misbehaved = self._misbehaved or not isinstance(exc, Unreachable)
                if not isinstance(exc, VeenError):
                    LOGGER.exception("replica_failed")
            finally:
                await primary.close()
            self._metrics.replica_connected.set(0)
            if why != logged:
                log(logging.WARNING, "replica_disconnected", error=why)
                logged = why
            pause = RETRY_SEC if self._store.last_batch > before else min(MAX_RETRY_SEC, 2 * pause)
            await asyncio.sleep(pause)

    def _give_up(self, why: str) -> None:
        self.problem_found = why
        self._metrics.replica_connected.set(0)
        log(logging.CRITICAL, "replica_stopped", error=why)

    async def _stop_for_good(self, primary: Primary, error: DivergedPrimaryError) -> None:
        self._metrics.replica_diverged.set(1)
        self._give_up(f"the primary has another history: {error}")
        try:
            files = await Divergence(self._store, self._access, primary).record(error)
        except OSError as exc:  # such as a full disk
            log(logging.CRITICAL, "evidence_not_written", error=str(exc))
            files = []
        log(logging.CRITICAL, "primary_diverged", error=str(error), evidence=[str(path) for path in files])

    async def _follow(self, primary: Primary) -> None:
        self._wants_more = False
        head = await self._access.read(lambda: self._store.hub_log.checkpoint)
        size, root = (head.head.size, head.head.root) if head is not None else (0, b"")
        try:
            async for items in primary.journal(self._store.last_batch, size, root):
                for item in items:
                    await self._take(item)
                    self._note_heard(item)
                if self._wants_more and not self._wanted:
                    return  # connect again, for the list of attachments
        except Conflict as exc:
            raise DivergedPrimaryError(exc.hub_message) from exc

    def _note_heard(self, item: ReplicaItem) -> None:
        """Note a valid item; after an invalid one, only an item after which nothing is missing counts."""
        if isinstance(item, Batches) or (isinstance(item, Alive) and self.behind == 0):
            self._misbehaved = False
        if isinstance(item, Batches | Alive) and self.behind == 0:
            self._caught_up = True
        if not self._misbehaved:
            self._heard_at = time.monotonic()

    async def _take(self, item: ReplicaItem) -> None:
        match item:
            case Hello():
                await self._greet(item)
            case Batches():
                self._last = item.last
                loop = asyncio.get_running_loop()
                entries = await loop.run_in_executor(self._writer, self._replicate, item.data)
                self._on_entries(entries)
            case PublishedItem():
                await self._publish(item)
            case AttachmentIds():
                await self._want(item.coids)
            case HandoverItem():
                await self._hand_over(item.record)
            case Alive():
                self._last = item.last

    async def _greet(self, hello: Hello) -> None:
        held = self._store.identity
        if hello.identity != held:
            check_identity(hello.identity, hello.signature, held.hub_id)
            try:
                hub_identity.verify_successor(held, hello.identity, hello.signature)
            except VeenError as exc:
                raise DivergedPrimaryError(
                    f"its identity record does not continue the known one: {exc}"
                ) from exc
            self._on_reopen("the primary has a new key")
            await asyncio.Event().wait()  # the hub ends, and opens its directory with the new record
        self._metrics.replica_connected.set(1)
        log(logging.INFO, "replica_connected", primary=self._config.replica_of, batch=self._store.last_batch)

    def _replicate(self, data: bytes) -> list[Entry]:
        """In the writer's thread: verify the batches and make each durable."""
        entries: list[Entry] = []
        for batch in split_batches(data):
            try:
                entries += self._store.replicate(batch).entries
            except RefusedBatchError as exc:
                raise DivergedPrimaryError(str(exc), exc.receipt, data) from exc
            self._metrics.replica_batches.inc()
        return entries

    async def _publish(self, item: PublishedItem) -> None:
        try:
            hub_logs.verify_hub_checkpoint(self._store.identity, item.signed, origin=self._origin)
            await self._access.read(lambda: self._store.publish(item.signed))
        except StorageError as exc:
            raise DivergedPrimaryError(f"the primary has published: {exc}") from exc

    @property
    def _origin(self) -> str | None:
        """The origin of the primary's hub log, as its batches name it; the replica's settings may differ."""
        held = self._store.hub_log.checkpoint
        return held.head.origin if held is not None else self._config.hub_log.origin

    async def _hand_over(self, record: Handover) -> None:
        signed = handovers.verify_handover(record, self._store.identity, origin=self._origin)
        head = self._store.hub_log.checkpoint
        if head is None or head.head != signed.head or self._store.hub_log.moved:
            raise DivergedPrimaryError("the primary's handover names another hub checkpoint than its last")
        await self._access.read(lambda: self._store.record_handover(record))
        self._on_handover(record)

    # --- attachments

    async def _want(self, coids: tuple[Coid, ...]) -> None:
        missing = await self._access.read(lambda: [coid for coid in coids if not self._has(coid)])
        room = MAX_WANTED - len(self._wanted)
        self._wants_more = self._wants_more or len(missing) > room
        self._wanted |= dict.fromkeys(missing[: max(0, room)])
        if missing:
            self._wanted_changed.set()

    def _has(self, coid: Coid) -> bool:
        try:
            self._store.attachments.size(coid)
        except (AbsentError, LostError):
            return False
        return True

    async def _fetch_attachments(self) -> None:
        while True:
            await self._wanted_changed.wait()
            self._wanted_changed.clear()
            failed = False
            primary = Primary(self._config)
            try:
                for coid in list(self._wanted):
                    try:
                        await self._fetch(primary, coid)
                        del self._wanted[coid]
                    except (VeenError, Unreachable, OSError) as exc:
                        failed = True
                        log(logging.WARNING, "attachment_not_copied", coid=coid.hex(), error=str(exc))
            finally:
                await primary.close()
            if failed:
                await asyncio.sleep(ATTACHMENT_RETRY_SEC)
                self._wanted_changed.set()

    async def _fetch(self, primary: Primary, coid: Coid) -> None:
        """Store an attachment; its content is checked against the content id before it is durable (H17)."""
        parts: queue.Queue[bytes | None] = queue.Queue(maxsize=4)
        put = partial(self._store.attachments.put, coid, iter(parts.get, None))
        writing = in_own_thread(put, "veen-attachment")

        async def hand_over(part: bytes | None) -> None:
            while not writing.done():
                try:
                    parts.put_nowait(part)
                    return
                except queue.Full:
                    await asyncio.sleep(0.001)

        try:
            async with primary.attachment(coid, self._store.registry.limits.max_attachment_bytes) as content:
                async for part in content:
                    await hand_over(part)
        finally:
            await hand_over(None)  # an incomplete content does not match the hash
            await asyncio.wait([writing])
            failure = writing.exception()
        if failure is not None:
            raise failure
