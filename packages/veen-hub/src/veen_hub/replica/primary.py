"""The replica's connection to its primary: status, snapshot, journal, attachments, receipts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from veen_core.ids import Coid, HubId, Label, StreamSeq
from veen_core.receipt import Receipt
from veen_core.status import Status
from veen_hub.client.errors import Misbehaved
from veen_hub.client.wire.endpoints import Endpoints
from veen_hub.client.wire.framing import Framer
from veen_hub.client.wire.http_transport import HttpTransport
from veen_hub.client.wire.transport import Timeouts, Tls
from veen_hub.ops.config import HubConfig
from veen_hub.replica.items import ALIVE_SEC, MAX_ITEM_BYTES, ReplicaItem, decode_item

SILENCE_SEC = 4 * ALIVE_SEC
"""A primary that sends nothing for this long is reconnected."""


class Primary:
    """The primary of a replica, by its address. Create it inside a running event loop, and ``close`` it."""

    def __init__(self, config: HubConfig) -> None:
        assert config.replica_of is not None
        tls = None
        if config.replica_ca is not None or config.replica_cert is not None:
            tls = Tls(ca=config.replica_ca, cert=config.replica_cert, key=config.replica_key)
        self.url = config.replica_of
        self._transport = HttpTransport(self.url, tls=tls, timeouts=Timeouts(connect=5.0, request=10.0))
        self._api = Endpoints(self._transport)

    async def close(self) -> None:
        await self._transport.close()

    async def status(self) -> Status:
        return await self._api.status()

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt | None:
        return await self._api.receipt_or_none(label, stream_seq)

    async def newest_receipt(self, label: Label) -> Receipt | None:
        return await self._api.newest_receipt(label)

    async def snapshot(self) -> AsyncIterator[list[bytes]]:
        """Yield the encoded items of a snapshot."""
        framer = Framer(MAX_ITEM_BYTES)
        async with self._transport.open("GET", "/v1/replica/snapshot", idle=60.0) as parts:
            async for part in parts:
                if items := framer.feed(part):
                    yield items

    async def journal(self, after: int, size: int, root: bytes) -> AsyncIterator[list[ReplicaItem]]:
        """Yield items as they arrive; ``size`` and ``root`` are those of the replica's hub log."""
        framer = Framer(MAX_ITEM_BYTES)
        path = f"/v1/replica/journal?after={after}"
        if size:
            path += f"&size={size}&root={root.hex()}"
        async with self._transport.open("GET", path, idle=SILENCE_SEC) as parts:
            async for part in parts:
                if items := framer.feed(part):
                    yield [decode_item(item) for item in items]

    @asynccontextmanager
    async def attachment(self, coid: Coid, max_bytes: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """Start to download an attachment; the caller checks the content."""

        async def parts() -> AsyncIterator[bytes]:
            size = 0
            async for part in response:
                size += len(part)
                if size > max_bytes:
                    raise Misbehaved(f"attachment {coid.hex()} is longer than {max_bytes} bytes")
                yield part

        async with self._transport.open("GET", f"/v1/attachment/{coid.hex()}", idle=30.0) as response:
            yield parts()


def check_pinned(config: HubConfig, found: HubId) -> None:
    """Raise if the hub at ``replica_of`` is not the one that the configuration pins."""
    if config.replica_pinned is not None and found.hex() != config.replica_pinned.lower():
        raise Misbehaved(
            f"replica_of: the hub there is {found.hex()}, but replica_pinned is {config.replica_pinned}"
        )
