"""The hub log of a running hub: its cadence, its memories and its witnesses (P1-P3).

In every ``hub_log.interval_sec`` in which a label has grown, and earlier after ``hub_log.max_entries``
entries, the sequencer makes a hub checkpoint, which is then shown to witnesses and readers:

1. The heads file, if there is one, still belongs to this process.
2. The hub checkpoint is signed and becomes durable, in a batch of the sequencer.
3. The heads file records it.
4. ``Witnessing`` sends it to the witnesses and publishes it with their cosignatures.

No submit waits for any of these steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterable
from typing import Final

from veen_core import hub_log as hub_logs
from veen_core.errors import ConfigError, VeenError
from veen_core.ids import UnixTime
from veen_core.tlog.note import NoteKey
from veen_core.tlog.tree_head import SignedHead, TreeHead
from veen_hub.ops.anchors import AnchorPublisher, RecallingAnchor
from veen_hub.ops.config import HubConfig
from veen_hub.ops.hub_log.heads_file import HeadsFile
from veen_hub.ops.hub_log.memories import ContradictedError, Memories, Poll, SilentMemoryError
from veen_hub.ops.hub_log.memory_sources import LedgerMemory, UrlMemory
from veen_hub.ops.hub_log.witness_link import WitnessLink
from veen_hub.ops.hub_log.witnessing import Witnessing
from veen_hub.ops.logs import LOGGER, log
from veen_hub.ops.metrics import Metrics
from veen_hub.pipeline.log_access import LogAccess
from veen_hub.pipeline.signing_gate import SigningGate
from veen_storage import Batch, Store

LEDGER_PAUSE_SEC: Final = 60.0
"""Shortest pause between two comparisons with the anchor ledger, which grows by the minute."""

NOTICE_INTERVALS: Final = 2
"""Intervals within which a running process notices that another process has claimed its heads file."""


class HubLogService:
    """Makes hub checkpoints and shows them; used from the event loop, except ``committed``."""

    def __init__(
        self,
        config: HubConfig,
        store: Store,
        access: LogAccess,
        gate: SigningGate,
        *,
        metrics: Metrics,
        anchor: AnchorPublisher | None,
        hub_ts: Callable[[], UnixTime],
    ) -> None:
        self._settings = config.hub_log
        self._store = store
        self._access = access
        self._gate = gate
        self._metrics = metrics
        self._hub_ts = hub_ts
        self.origin = config.hub_log.origin or hub_logs.origin_of(store.identity.hub_id)
        links = [WitnessLink(witness, store.hub_log, access) for witness in config.hub_log.witnesses]
        self._heads_file = self._make_heads_file()
        others = self._make_others(anchor)
        asked = [*links, *([self._heads_file] if self._heads_file is not None else []), *others]
        self.memories = Memories(gate, [one.name for one in asked], config.hub_log.memories.required)
        self._polls = [Poll(one, self.memories, min_pause_sec=pause) for one, pause in others.items()]
        self._witnessing = Witnessing(
            links, store, access, self.memories, metrics, recosign_sec=config.hub_log.recosign_sec
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due = asyncio.Event()
        """Set when a hub checkpoint is due before the interval ends."""
        self._entries = 0
        """Entries since the newest hub checkpoint; owned by the sequencer's thread."""
        self._made_at = UnixTime(0)
        """When the newest hub checkpoint was made, or the hub started."""
        self._shown: SignedHead | None = None
        """The hub checkpoint that was handed to ``Witnessing`` last."""
        self._logged: str | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def _make_heads_file(self) -> HeadsFile | None:
        path = self._settings.memories.heads_file
        if path is None:
            return None
        return HeadsFile(
            path, self.origin, self._store.hub_log, notice_sec=NOTICE_INTERVALS * self._settings.interval_sec
        )

    def _make_others(self, anchor: AnchorPublisher | None) -> dict[UrlMemory | LedgerMemory, float]:
        """Make the memories that are polled, each with its shortest pause between comparisons, in seconds."""
        settings, store, access = self._settings.memories, self._store, self._access
        try:
            context = ssl.create_default_context(cafile=settings.ca) if settings.ca is not None else None
        except OSError as exc:  # an SSLError too: not a certificate
            raise ConfigError(f"hub_log.memories.ca: {settings.ca}: {exc.strerror or exc}") from None
        made: dict[UrlMemory | LedgerMemory, float] = {}
        for number, url in enumerate(settings.urls, start=1):
            memory = UrlMemory(
                f"copy {number} of the hub log",
                url,
                context,
                store=store,
                access=access,
                identity=store.identity,
                origin=self.origin,
            )
            made[memory] = self._settings.interval_sec
        if settings.anchors and isinstance(anchor, RecallingAnchor):
            made[LedgerMemory(anchor, store, access, store.identity.hub_id)] = LEDGER_PAUSE_SEC
        return made

    # --- running

    async def start(self) -> None:
        """Ask the memories, and start the cadence."""
        self._loop = asyncio.get_running_loop()
        self._made_at = self._hub_ts()
        self._witnessing.start()
        work = [*(poll.run() for poll in self._polls), self._run()]
        if self._heads_file is not None:
            work.append(self._ask_heads_file(self._heads_file))
        self._tasks = [asyncio.create_task(one) for one in work]

    async def _ask_heads_file(self, heads_file: HeadsFile) -> None:
        """Ask until the file answers, then show at once what it has recorded."""
        await Poll(heads_file, self.memories, min_pause_sec=None).run()
        self._due.set()

    async def drain(self) -> None:
        """Make and show a last hub checkpoint, so that the hub log covers every label."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._loop is not None:
            await self._tick()
        await self._witnessing.drain()
        if self._heads_file is not None:
            with contextlib.suppress(SilentMemoryError, ContradictedError):
                await self._heads_file.release()

    # --- cadence

    def committed(self, entries: int) -> None:
        """Count the entries of a durable batch, in the sequencer's thread."""
        before = self._entries
        self._entries += entries
        if before < self._settings.max_entries <= self._entries and self._loop is not None:
            self._loop.call_soon_threadsafe(self._due.set)

    async def _run(self) -> None:
        while True:
            await self._tick()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.interval_sec):
                    await self._due.wait()
            self._due.clear()

    async def _tick(self) -> None:
        """Make a hub checkpoint if something changed, and show the newest; failures are tried again."""
        try:
            await self._extend()
            await self._show()
            self._logged = None
        except SilentMemoryError as exc:  # only the heads file raises it here
            assert self._heads_file is not None
            self.memories.silent(self._heads_file.name, exc)
        except ContradictedError as exc:
            assert self._heads_file is not None
            self.memories.contradicted(self._heads_file.name, exc)
        except VeenError as exc:
            self._log_once(str(exc))
        except Exception:  # noqa: BLE001 - logged; a bug does not end the cadence
            LOGGER.exception("hub_checkpoint_failed")

    def _log_once(self, why: str) -> None:
        """Log a failure once, however often it is repeated."""
        if why != self._logged:
            log(logging.WARNING, "hub_checkpoint_failed", error=why)
        self._logged = why

    async def _extend(self) -> None:
        if self._heads_file is not None:
            if not self._heads_file.is_open:
                return
            await self._heads_file.check()  # also if no label has grown
        if self._gate.closed is not None:
            return
        if await self._make_checkpoint() is not None:
            self._metrics.hub_checkpoints.inc()
            self._made_at = self._hub_ts()

    async def _make_checkpoint(self) -> SignedHead | None:
        """Make the next hub checkpoint durable; None if no label has grown."""
        return await self._access.act(self._make) if self._store.hub_log.moved else None

    def _make(self, batch: Batch) -> SignedHead | None:
        """In the sequencer: extend the hub log by the labels that have grown, and sign it."""
        self._entries = 0
        return batch.hub_checkpoint(self.origin)

    async def _show(self) -> None:
        """Record the newest durable hub checkpoint, then hand it to the witnesses and readers."""
        newest = self._newest()
        if self.memories.contradiction_found or (newest is not None and newest == self._shown):
            return
        if newest is None or not await self._record(newest.head):
            self._ask_with_older()
            return
        self._announce(newest)
        for poll in self._polls:
            poll.wake()

    def _newest(self) -> SignedHead | None:
        """Return the newest durable hub checkpoint, signed by every key that is active now.

        A key that became active after the last hub checkpoint signs it too: a witness or reader that knows
        only the new key must be able to verify a hub log that does not grow.
        """
        newest, shown, now = self._store.hub_log.checkpoint, self._shown, self._hub_ts()
        if newest is None:
            return None
        keys = [hub_logs.note_key(key, newest.head.origin) for key in self._store.identity.active_at(now)]
        for signed in (shown, newest):
            if signed is not None and signed.head == newest.head and _is_signed_by(signed, keys):
                return signed
        return self._store.sign_with_active_keys(newest, now)

    def _announce(self, signed: SignedHead) -> None:
        self._shown = signed
        self._witnessing.announce(signed)

    async def _record(self, head: TreeHead) -> bool:
        """Write a head to the heads file, if there is one; return False while the file is silent."""
        heads_file = self._heads_file
        if heads_file is None:
            return True
        if not heads_file.is_open:
            return False
        if not heads_file.is_recorded(head):
            await heads_file.record(head)
        self.memories.agrees(heads_file.name)
        return True

    def _ask_with_older(self) -> None:
        """Ask the witnesses what they remember, although there is no new hub checkpoint to show them.

        While the heads file is silent, a checkpoint that is newer than the published one is not shown.
        """
        if self._shown is not None or not self._settings.witnesses:
            return
        heads_file, hub_log = self._heads_file, self._store.hub_log
        if hub_log.size and heads_file is not None and not self.memories.is_silent(heads_file.name):
            return  # the heads file is about to answer
        published, now = hub_log.published, self._hub_ts()
        if published is None:
            self._announce(self._store.sign_empty_hub_log(self.origin, now))
        else:
            self._announce(self._store.sign_with_active_keys(published, now))

    # --- metrics

    def refresh_gauges(self) -> None:
        """Update the gauges that are read rather than counted, before a scrape."""
        now, metrics, hub_log = self._hub_ts(), self._metrics, self._store.hub_log
        metrics.signing.set(0 if self._gate.closed is not None else 1)
        metrics.hub_log_size.set(hub_log.size)
        metrics.hub_log_moved.set(hub_log.moved)
        metrics.hub_checkpoint_age.set(max(0, now - self._made_at))
        self._witnessing.refresh_gauges(now)


def _is_signed_by(signed: SignedHead, keys: Iterable[NoteKey]) -> bool:
    """Return whether a hub checkpoint has a signature line of each key; none of them is verified."""
    return all(any(map(key.is_named_by, signed.note.signatures)) for key in keys)
