"""What all parts of a sharded hub share: a clock with a floor, and a hub log that only the join extends.

The hub log of the whole hub commits to every entry that is older than its newest head (RESOLUTIONS P1). So
all parts extend their own hub logs at one hub_ts, and none of them issues an earlier one afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from veen_core.ids import UnixTime
from veen_core.protocols import Clock
from veen_core.tlog.tiles import encode_bundle
from veen_hub.ops.hub_log.memories import Memories
from veen_hub.pipeline.log_access import LogAccess
from veen_hub.pipeline.signing_gate import SigningGate
from veen_storage import Batch, Store, StoredHubLog
from veen_storage.shards.joined_hub_log import heads_from

NOT_OPENED: Final = "the coordinator has not opened this part yet"


class FloorClock:
    """A clock that never reads less than its floor; the sequencer and the event loop may raise it."""

    def __init__(self, clock: Clock, floor: UnixTime) -> None:
        self._clock = clock
        self._floor = floor

    @property
    def floor(self) -> UnixTime:
        return self._floor

    def now(self) -> UnixTime:
        return max(self._clock.now(), self._floor)

    def raise_to(self, floor: UnixTime) -> None:
        self._floor = max(self._floor, floor)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlace:
    """The end of a part's own hub log: every entry before ``hub_ts`` is in it, and every later one is not."""

    hub_ts: UnixTime
    size: int
    root: bytes
    batch: int
    """The last batch of the part's journal that is covered; no later one is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHistories:
    """A shard's record of the coordinator's histories; each history must continue its record."""

    control_seq: int
    """Last entry of the shard's copy of the control label; 0 if it has none."""
    control_root: bytes
    hub_log_size: int
    """Size of the newest hub checkpoint that the shard has recorded; 0 before the first."""
    hub_log_root: bytes


class PartHubLog:
    """A part's own hub log. It has the methods of ``HubLogService`` that a hub calls."""

    def __init__(
        self,
        origin: str,
        store: Store,
        reader: StoredHubLog,
        access: LogAccess,
        *,
        gate: SigningGate,
        clock: FloorClock,
        last_batch: Callable[[], int],
    ) -> None:
        self.origin = origin
        self.memories = Memories(gate, (), 1)
        self._store = store
        self._reader = reader
        self._access = access
        self._clock = clock
        self._last_batch = last_batch

    async def close(self, floor: UnixTime) -> PartPlace:
        """Cover every entry, while the signing gate is closed: no other one follows (P9)."""
        self._clock.raise_to(floor)

        def act(_batch: Batch) -> tuple[UnixTime, int]:
            last = self._store.batch(self._clock.now())  # the gate refuses the sequencer's own batch
            last.hub_checkpoint(self.origin)
            number = self._last_batch() + (last.length > 0)
            self._store.commit(last)
            self._clock.raise_to(last.hub_ts)
            return last.hub_ts, number

        return await self._place(*await self._access.act(act, reads=True))

    async def extend(self, floor: UnixTime) -> PartPlace:
        """Cover every entry so far, at ``floor`` or later; entries that follow have at least this hub_ts."""
        self._clock.raise_to(floor)

        def act(batch: Batch) -> tuple[UnixTime, int]:
            batch.hub_checkpoint(self.origin)
            self._clock.raise_to(batch.hub_ts)
            return batch.hub_ts, self._last_batch() + (batch.length > 0)  # an empty batch has no number

        return await self._place(*await self._access.act(act, ends_batch=True))

    async def _place(self, hub_ts: UnixTime, number: int) -> PartPlace:
        size, root = await self._access.read(self._end)
        return PartPlace(hub_ts=hub_ts, size=size, root=root, batch=number)

    def _end(self) -> tuple[int, bytes]:
        size = self._reader.size
        return size, self._reader.root_at(size)

    async def root_at(self, size: int) -> bytes | None:
        """Return the root of the first ``size`` entries; None if there are fewer."""

        def read() -> bytes | None:
            return self._reader.root_at(size) if size <= self._reader.size else None

        return await self._access.read(read)

    async def heads(self, start: int, end: int) -> bytes:
        """Return the entries ``start`` to ``end - 1``, as an entry bundle of any length."""

        def read() -> bytes:
            return encode_bundle(head.encode() for head in heads_from(self._reader, start, end))

        return await self._access.read(read)

    async def start(self) -> None:
        """Do nothing: only the join extends this hub log."""

    async def drain(self) -> None:
        """Do nothing: the join has covered the last entries."""

    def committed(self, entries: int) -> None:
        """Do nothing: the join has an interval of its own."""

    def refresh_gauges(self) -> None:
        """Do nothing: the coordinator reports the hub log."""
