"""A label's record in the state store: who owns it, and when it is written (RESYNC0.4).

A sender locks the label for as long as its connection lives, so that no two processes use one client_id. It
writes the record durably before a message leaves. A reader holds no lock: every few seconds it writes how far
it has verified, unless another process owns the label or has changed the record.
"""

from __future__ import annotations

import asyncio
import contextlib
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

PROGRESS_INTERVAL_SECONDS: Final = 5.0
"""Seconds between two writes of a reader's progress."""
RECEIPT_INTERVAL_SECONDS: Final = 0.05
"""Seconds until receipts of own messages are written, unless the next message is committed before."""

PrefixPosition = tuple[int, tuple[NodeHash, ...]]
"""Size and peaks of a verified prefix."""


def _position(state: ClientState) -> PrefixPosition:
    return state.last_stream_seq, state.peaks


class LabelState:
    """Loads and saves one label's record."""

    def __init__(self, log: LabelLog) -> None:
        self._log = log
        self._lock: Lock | None = None
        self._owned = False
        """Whether the lock is held and the record was read under it."""
        self._owning = asyncio.Lock()
        self._written = time.monotonic()
        self._stored: PrefixPosition = _position(log.client.state)
        """The prefix in the store when it was last read or written."""
        self._dirty = False
        self._dirty_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The record's name."""
        return self._log.label.hex()

    # --- owning

    @property
    def is_owned(self) -> bool:
        """Whether this process is the label's only writer."""
        return self._owned

    async def own(self) -> None:
        """Become the label's only writer; raises after ``lock_timeout`` seconds."""
        until = time.monotonic() + self._log.connection.lock_timeout
        while not await self.try_own():
            if time.monotonic() > until:
                raise StateError(
                    f"another process is sending on label {self.name} with this state folder",
                    action="let that process finish, or give this client a state folder of its own",
                )
            await asyncio.sleep(LOCK_POLL_SECONDS)

    async def try_own(self) -> bool:
        """Become the label's only writer if no other process is; returns whether this one is."""
        async with self._owning:
            if not self._owned and await self._log.connection.workers.run(self._take_lock):
                await self._reload()
                self._owned = True
            return self._owned

    def _take_lock(self) -> bool:
        """Take and store the lock, in a thread: a caller that is cancelled must not lose it."""
        if self._lock is None:
            self._lock = self._log.connection.store.lock(self._log.connection.hub_id, self.name)
        return self._lock is not None

    async def _reload(self) -> None:
        """Read the record that another process may have written; then verify up to our own head."""
        log, head = self._log, self._log.client.state.head
        connection = log.connection
        async with log.prefix:
            content = await connection.workers.run(connection.store.load, connection.hub_id, self.name)
            if content is None:
                return
            record = decode_record(LabelRecord, content, self.name)
            log.client.adopt(record.state)
            log.ring = KeyRing(connection.identity, record.keys, connection.randomness)
            self._stored = _position(record.state)
        if head is not None and head.stream_seq > log.client.size:
            await log.verify(head)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock, self._owned = None, False

    # --- writing

    def record(self) -> bytes:
        """Encode the record as it must be written now."""
        return LabelRecord(state=self._log.client.state, keys=self._log.ring.records).encode()

    async def save(self, *, durable: bool) -> None:
        """Write the record as the label's owner; the caller holds ``prefix``."""
        connection = self._log.connection
        if durable:
            await connection.commits.commit({self.name: self.record()})
        else:
            await connection.workers.run(
                connection.store.save, connection.hub_id, self.name, self.record(), durable=False
            )
        self.note_saved()

    def note_saved(self) -> None:
        """Note that the record was written as it is; the caller has held ``prefix`` since it was encoded."""
        self._mark_stored(_position(self._log.client.state))

    def _mark_stored(self, stored: PrefixPosition) -> None:
        self._dirty, self._written, self._stored = False, time.monotonic(), stored

    async def note_progress(self) -> None:
        """Write the record at most once per ``PROGRESS_INTERVAL_SECONDS``; the caller holds ``prefix``."""
        if not self._dirty:
            self._dirty, self._dirty_since = True, time.monotonic()
        if time.monotonic() - self._written >= PROGRESS_INTERVAL_SECONDS:
            await self.flush()

    def note_receipts(self) -> None:
        """Write the record soon, after own messages got their receipts.

        If the process is killed before, the messages are pending and their receipts are fetched again.
        """
        if not self._dirty:
            self._dirty, self._dirty_since = True, time.monotonic()
        if self._timer is None:
            self._wait_to_write(RECEIPT_INTERVAL_SECONDS)

    def _wait_to_write(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._write_receipts)

    def _write_receipts(self) -> None:
        """Write the record once its oldest receipt has waited for ``RECEIPT_INTERVAL_SECONDS``."""
        self._timer = None
        if not self._dirty:
            return
        if (left := self._dirty_since + RECEIPT_INTERVAL_SECONDS - time.monotonic()) > 0:
            self._wait_to_write(left)
        else:
            self._writing = asyncio.create_task(self._flush_in_background())

    async def _flush_in_background(self) -> None:
        with contextlib.suppress(StateError):  # the next operation raises it
            async with self._log.prefix:
                await self.flush()

    async def flush(self) -> None:
        """Write progress that is not written yet."""
        if not self._dirty:
            return
        if self._owned:
            await self.save(durable=False)
        else:
            await self._log.connection.workers.run(self._merge)

    def _merge(self) -> None:
        """As a reader, in a thread: put our prefix into the stored record, unless the record has changed."""
        connection, ours = self._log.connection, self._log.client.state
        lock = self._lock or connection.store.lock(connection.hub_id, self.name)
        if lock is None:
            return
        try:
            content = connection.store.load(connection.hub_id, self.name)
            if content is None:
                connection.store.save(connection.hub_id, self.name, self.record(), durable=False)
            else:
                record = decode_record(LabelRecord, content, self.name)
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
                connection.store.save(connection.hub_id, self.name, merged, durable=False)
            self._mark_stored(_position(ours))
        finally:
            if lock is not self._lock:
                lock.release()

    async def close(self) -> None:
        """Write unwritten progress and release the lock."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            async with self._log.prefix:
                await self.flush()
        finally:
            await self._log.connection.workers.run(self.release)
