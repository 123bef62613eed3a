"""Landing: sends copies of origin entries to one target stream, in order (RESOLUTIONS P4, P7).

Copies are sent in the client's batches: a batch has the copies that wait when the batch before it is durable.
A copy whose original MSG travels as an attachment is sent alone, between two batches. The client's outbox
makes each send exactly once as long as its state exists; ``resume`` covers the loss of that state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

from veen_bridge.transfer.copies import Copy, CopyMaker
from veen_bridge.transfer.origin import OriginEntry
from veen_core.cap import CapToken
from veen_core.errors import StateError
from veen_core.receipt import Receipt
from veen_hub.client import Outgoing, Stream


class Sent(NamedTuple):
    """A copy that is durable at the target."""

    copy: Copy
    receipt: Receipt


class Landing:
    """The target stream of one transfer. The bridge must hold the stream's reader key, to read back (P8)."""

    def __init__(self, stream: Stream, maker: CopyMaker, *, cap: CapToken | None = None) -> None:
        self.stream = stream
        self._maker = maker
        self._cap = cap

    def check_readable(self) -> None:
        """Raise unless the bridge can open what it sends: without that it could not resume (P8)."""
        if not self.stream.opens_what_it_sends:
            raise StateError(
                f"stream {self.stream.name}: the bridge seals to a key that it does not hold, so it cannot "
                "tell which entries the target already has (RESOLUTIONS P8)",
                action="give the bridge the reader key of the target stream, secret included",
            )

    async def send(self, origins: AsyncIterable[OriginEntry]) -> AsyncGenerator[Sent, None]:
        """Send the copies of origin entries; yields each with its receipt, in order."""
        feed = _Feed(self._copies(origins))
        while not feed.ended:
            sending = self.stream.send_many(feed.batchable(), cap=self._cap)
            async with aclosing(sending):
                async for receipt in sending:
                    yield Sent(feed.under_way.popleft(), receipt)
            if (large := feed.take_large()) is not None:
                yield Sent(large, await self._send_large(large))

    async def _copies(self, origins: AsyncIterable[OriginEntry]) -> AsyncIterator[Copy]:
        connection = self.stream.hub.connection
        async for origin in origins:
            yield self._maker.copy(origin, target_label=self.stream.label(), now=connection.time.now())

    async def _send_large(self, copy: Copy) -> Receipt:
        assert copy.attachment is not None
        return await self.stream.send(
            copy.body,
            schema=copy.schema,
            attachments=[copy.attachment],
            parent=copy.origin.msg_id,
            cap=self._cap,
        )


class _Feed:
    """Splits the copies into runs for ``send_many``; a copy with an attachment ends a run."""

    def __init__(self, copies: AsyncIterator[Copy]) -> None:
        self._copies = copies
        self._large: Copy | None = None
        self.under_way: deque[Copy] = deque()
        """Copies that were handed out and have no receipt yet, in order."""
        self.ended = False

    async def batchable(self) -> AsyncIterator[Outgoing]:
        """Yield bodies until a copy has an attachment, or the source ends."""
        async for copy in self._copies:
            if copy.attachment is not None:
                self._large = copy
                return
            self.under_way.append(copy)
            yield Outgoing(
                body=copy.body, schema=copy.schema, parent=copy.origin.msg_id, expires_at=copy.expires_at
            )
        self.ended = True

    def take_large(self) -> Copy | None:
        large, self._large = self._large, None
        return large
