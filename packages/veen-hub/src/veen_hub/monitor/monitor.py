"""All hubs that one process monitors: rounds at an interval, or one for a scheduled job."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from veen_core.errors import VeenError
from veen_hub.client.wire.transport import Tls
from veen_hub.monitor.findings import FindingChange, Key
from veen_hub.monitor.hub_monitor import HubMonitor, MonitorSettings
from veen_hub.monitor.hub_source import HubOverHttp
from veen_hub.monitor.memory import HubMemory, MemoryTable, MonitorTable, open_table
from veen_hub.monitor.sightings import SeenFiles
from veen_hub.monitor.witness_source import HttpWitnesses
from veen_storage import DirectoryLock, Layout

REPEAT_SEC: Final = 1.0
"""Pause before a single round is repeated, because a hub must still publish something."""


class MonitorState:
    """The memory of a monitor: a folder that one process uses at a time, or nothing that lasts."""

    def __init__(self, folder: Path | None) -> None:
        self._lock: DirectoryLock | None = None
        self.table: MonitorTable = MemoryTable()
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = DirectoryLock(Layout(folder))
        try:
            self.table = open_table(folder)
        except BaseException:
            self._lock.release()
            raise

    def knows(self, url: str) -> bool:
        """Return whether a hub was pinned for this address before."""
        return HubMemory(self.table, url).record is not None

    def close(self) -> None:
        self.table.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Monitor:
    """Monitors hubs. Create it inside a running event loop, and close it."""

    def __init__(
        self,
        urls: Sequence[str],
        state: MonitorState,
        settings: MonitorSettings,
        *,
        seen: SeenFiles | None = None,
        tls: Tls | None = None,
        report: Callable[[HubMonitor, FindingChange], None],
    ) -> None:
        self._seen = seen or SeenFiles(())
        self._witnesses = HttpWitnesses(tls)
        self.hubs = [
            HubMonitor(
                HubOverHttp(url, tls if url.startswith("https:") else None),
                self._witnesses,
                HubMemory(state.table, url),
                settings,
                report,
            )
            for url in urls
        ]
        self.unclaimed: set[str] = set()
        """Files with receipts that none of the hubs has signed."""

    async def close(self) -> None:
        for hub in self.hubs:
            await hub.source.close()
        await self._witnesses.close()

    async def round(self, until: float | None = None) -> None:
        """Make one round at every hub at once; raise the first error of this machine."""
        seen = await asyncio.to_thread(self._seen.read)
        sightings = [sighting for hub in self.hubs if (sighting := hub.sighting()) is not None]
        rounds = (
            hub.round(seen, [each for each in sightings if each.name != hub.url], until) for hub in self.hubs
        )
        failures = [each for each in await asyncio.gather(*rounds, return_exceptions=True) if each]
        if all(hub.is_identified for hub in self.hubs):
            self.unclaimed = {
                each.name
                for each in seen.receipts
                if not any(hub.receipts.is_own(each.receipt) for hub in self.hubs)
            }
        for failure in failures:
            raise failure

    async def run_once(self) -> None:
        """Make one round; repeat it while a hub must still publish something within the grace period."""
        await self.round()
        while any(hub.is_waiting for hub in self.hubs):
            await asyncio.sleep(REPEAT_SEC)
            await self.round()

    async def run(
        self, interval: float, stopping: asyncio.Event, report: Callable[[str | None], None]
    ) -> None:
        """Make rounds until ``stopping`` is set; ``report`` gets the error of each round, or None."""
        while not stopping.is_set():
            started = time.monotonic()
            try:
                await self._unless(stopping, self.round(started + interval))
            except BrokenPipeError:
                raise  # the reader of the findings is gone
            except (OSError, VeenError) as exc:
                report(str(exc))
            else:
                report(None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, started + interval - time.monotonic())):
                    await stopping.wait()

    @staticmethod
    async def _unless(stopping: asyncio.Event, work: Coroutine[None, None, None]) -> None:
        """Do the work, and cancel it when ``stopping`` is set: each commit is whole by itself."""
        doing, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait((doing, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            doing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await doing

    def open_keys(self) -> Iterator[Key]:
        """Yield the key of every finding that has not ended."""
        for hub in self.hubs:
            for each in hub.findings:
                yield each.finding.key
