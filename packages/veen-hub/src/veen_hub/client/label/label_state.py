"""A label's place in the state store: who holds it, and when it is written (RESYNC0.4).

Whoever sends holds the label's lock for as long as the connection lives, so that no two processes use one
client_id; it writes durably before a message leaves. Whoever only reads holds nothing, and writes its
progress now and then, if nobody else holds the label and nobody has changed it meanwhile.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING, Final

from veen_core.client_state import ClientState
from veen_core.errors import StateError
from veen_core.ids import NodeHash
from veen_hub.client.label.keyring import KeyRing
from veen_hub.client.state.records import LabelRecord, decode_record
from veen_hub.client.state.store import LOCK_POLL_SECONDS, Lock

if TYPE_CHECKING:
    from veen_hub.client.label.label_log import LabelLog

PROGRESS_EVERY: Final = 5.0
"""Seconds between writes of what was only read."""

PrefixPosition = tuple[int, tuple[NodeHash, ...]]


def _position(state: ClientState) -> PrefixPosition:
    return state.last_stream_seq, state.peaks


class LabelState:
    """Reads and writes one label's record."""

    def __init__(self, log: LabelLog) -> None:
        self._log = log
        self._lock: Lock | None = None
        self._owned = False
        """Whether the lock is held and the record was read under it."""
        self._owning = asyncio.Lock()
        self._written = time.monotonic()
        self._stored: PrefixPosition = _position(log.client.state)
        """The prefix that the store had when we last looked."""
        self._dirty = False

    @property
    def _name(self) -> str:
        return self._log.label.hex()

    # --- holding

    async def own(self) -> None:
        """Become the label's only writer, or raise after a while."""
        until = time.monotonic() + self._log.connection.lock_timeout
        while not await self.try_own():
            if time.monotonic() > until:
                raise StateError(
                    f"another process is sending on label {self._name} with this state store: "
                    "let it finish, or give this client a store of its own"
                )
            await asyncio.sleep(LOCK_POLL_SECONDS)

    async def try_own(self) -> bool:
        """Become the label's only writer, if nobody else is."""
        async with self._owning:
            if not self._owned and await self._log.connection.workers.run(self._take):
                await self._reload()
                self._owned = True
            return self._owned

    def _take(self) -> bool:
        """In a thread; assigns there, so that a cancelled caller does not lose it."""
        if self._lock is None:
            self._lock = self._log.connection.store.lock(self._log.connection.hub_id, self._name)
        return self._lock is not None

    async def _reload(self) -> None:
        """Somebody may have written since we loaded: their record counts, and what we verified beyond it."""
        log, head = self._log, self._log.client.state.head
        async with log.prefix:
            content = await log.connection.workers.run(
                log.connection.store.load, log.connection.hub_id, self._name
            )
            if content is None:
                return
            record = decode_record(LabelRecord, content, self._name)
            log.client.adopt(record.state)
            log.ring = KeyRing(log.connection.identity, record.keys, log.connection.randomness)
            self._stored = _position(record.state)
        if head is not None and head.stream_seq > log.client.size:
            await log.verify(head)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock, self._owned = None, False

    # --- writing

    def _record(self) -> bytes:
        return LabelRecord(state=self._log.client.state, keys=self._log.ring.records).encode()

    async def save(self, *, durable: bool) -> None:
        """As the label's writer; ``prefix`` is held."""
        connection = self._log.connection
        await connection.workers.run(
            connection.store.save, connection.hub_id, self._name, self._record(), durable=durable
        )
        self._noted(_position(self._log.client.state))

    def _noted(self, stored: PrefixPosition) -> None:
        self._dirty, self._written, self._stored = False, time.monotonic(), stored

    async def note_progress(self) -> None:
        """The prefix grew by reading; ``prefix`` is held."""
        self._dirty = True
        if time.monotonic() - self._written >= PROGRESS_EVERY:
            await self.flush()

    async def flush(self) -> None:
        """Write what has not been written."""
        if not self._dirty:
            return
        if self._owned:
            await self.save(durable=False)
        else:
            await self._log.connection.workers.run(self._merge)

    def _merge(self) -> None:
        """In a thread, as a reader: our prefix into the stored record, unless somebody has moved it."""
        connection, ours = self._log.connection, self._log.client.state
        lock = self._lock or connection.store.lock(connection.hub_id, self._name)
        if lock is None:
            return
        try:
            content = connection.store.load(connection.hub_id, self._name)
            if content is None:
                connection.store.save(connection.hub_id, self._name, self._record(), durable=False)
            else:
                record = decode_record(LabelRecord, content, self._name)
                if _position(record.state) != self._stored:
                    return
                state = dataclasses.replace(
                    record.state,
                    last_stream_seq=ours.last_stream_seq,
                    peaks=ours.peaks,
                    head=ours.head,
                    checkpointed=ours.checkpointed,
                )
                merged = LabelRecord(state=state, keys=record.keys).encode()
                connection.store.save(connection.hub_id, self._name, merged, durable=False)
            self._noted(_position(ours))
        finally:
            if lock is not self._lock:
                lock.release()

    async def close(self) -> None:
        """Flush and let go."""
        try:
            async with self._log.prefix:
                await self.flush()
        finally:
            self.release()
