"""Sending to a stream whose label changes with every epoch (§12).

Neither a label nor its record names the stream or the epoch. The client therefore stores the epochs in which
it sends, per stream: before a message leaves, and until every message under the epoch's label is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from veen_core import stream
from veen_core.ids import Epoch, Label, StreamId
from veen_hub.client.sending.outbox import Outbox
from veen_hub.client.sending.settling import Delivery
from veen_hub.client.state.records import EpochsRecord, decode_record
from veen_hub.client.state.store import update
from veen_hub.client.wire.connection import HubConnection

if TYPE_CHECKING:
    from veen_hub.client.hub import Hub

EPOCHS_FOLDER: Final = "epochs"


def current_window(connection: HubConnection) -> range:
    """Return the epochs whose labels take messages now."""
    return stream.epoch_window(
        connection.time.now(), connection.profile.epoch_sec, connection.limits.max_epoch_skew_sec
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochLabels:
    """The labels of a stream, for a reader of all its epochs."""

    label_of: Callable[[Epoch], Label]
    window: Callable[[], range]
    """The epochs whose labels take messages now, by the client's estimate of the hub's time."""
    confirmed: Callable[[], Awaitable[range]]
    """Asks the hub for its time, and returns the epochs whose labels take messages. Earlier epochs are closed
    for good: the hub's time never goes back (H3)."""
    since: Epoch
    """The hub's first epoch."""
    forget: Callable[[Label], Awaitable[None]]
    """Releases a label that is no longer needed."""


class EpochOutboxes:
    """The outboxes of one stream, one per epoch; without epochs there is one."""

    def __init__(self, hub: Hub, stream_id: StreamId) -> None:
        self._hub = hub
        self._connection = hub.connection
        self._stream_id = stream_id
        self._sweeping = asyncio.Lock()
        self._open: tuple[Epoch, ...] | None = None
        self._noted: set[Epoch] = set()
        self._only: Outbox | None = None
        """The outbox of a stream without epochs, once its label is owned."""

    async def outbox(self) -> Outbox:
        """Return the outbox of the current epoch, after settling earlier labels and storing the epoch."""
        if self._only is not None:
            return self._only
        await self._sweep()
        epoch = self._connection.epoch
        outbox = await self._outbox_of(epoch)
        await outbox.log.state.own()
        if self._connection.profile.epoch_sec and epoch not in self._noted:
            await self._change(lambda epochs: epochs | {epoch})
            self._noted.add(epoch)
        elif not self._connection.profile.epoch_sec:
            self._only = outbox
        return outbox

    async def settle(self) -> Delivery:
        """Settle the pending messages of all labels."""
        swept = await self._sweep()
        here = await (await self._outbox_of(self._connection.epoch)).settle()
        return Delivery(swept.receipts + here.receipts, swept.failure or here.failure, here.unanswered)

    async def all_outboxes(self) -> list[Outbox]:
        """Return the outboxes of all labels that may have an unanswered message, oldest first."""
        past = await self._past() if self._connection.profile.epoch_sec else []
        return [await self._outbox_of(epoch) for epoch in (*past, self._connection.epoch)]

    async def _outbox_of(self, epoch: Epoch) -> Outbox:
        label = self._connection.label(self._stream_id, epoch)
        return await self._hub.outbox(label, self._connection.origin(self._stream_id))

    # --- earlier epochs

    async def _sweep(self) -> Delivery:
        """Settle the pending messages of earlier labels, except labels that another process owns."""
        found = Delivery()
        if not self._connection.profile.epoch_sec:
            return found
        async with self._sweeping:
            for epoch in await self._past():
                passed = epoch < current_window(self._connection).start
                outbox = await self._outbox_of(epoch)
                log = outbox.log
                if not (passed or log.client.state.pending) or not await log.state.try_own():
                    continue
                delivery = await outbox.settle(window_passed=passed)
                found.receipts += delivery.receipts
                found.failure = found.failure or delivery.failure
                if passed and not log.client.state.pending:
                    await self._change(lambda epochs, done=epoch: epochs - {done})  # type: ignore[misc]
                    await self._hub.leave(log.label)
        return found

    async def _past(self) -> list[Epoch]:
        """Return the earlier epochs, oldest first; the process that adds an epoch meanwhile settles it."""
        if self._open is None:
            connection = self._connection
            self._open = _decode(
                await connection.workers.run(connection.store.load, connection.hub_id, self._name)
            )
        return [epoch for epoch in self._open if epoch < self._connection.epoch]

    @property
    def _name(self) -> str:
        """The record's name; its folder separates it from the labels' records."""
        return f"{EPOCHS_FOLDER}/{self._stream_id.hex()}"

    async def _change(self, change: Callable[[set[Epoch]], set[Epoch]]) -> None:
        def changed(content: bytes | None) -> bytes:
            self._open = tuple(sorted(change(set(_decode(content)))))
            return EpochsRecord(epochs=self._open).encode()

        connection = self._connection
        await connection.workers.run(
            update,
            connection.store,
            connection.hub_id,
            self._name,
            changed,
            lock_timeout=connection.lock_timeout,
        )


def _decode(content: bytes | None) -> tuple[Epoch, ...]:
    return decode_record(EpochsRecord, content, EPOCHS_FOLDER).epochs if content is not None else ()
