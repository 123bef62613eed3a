"""The logs of one zone as a reconciliation reads them: folded views of its audit log and its streams.

A zone is a live hub, or the export of one. Both give the same views; reading changes nothing at the hub.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from veen_bridge.roles.config import BridgeConfig
from veen_bridge.roles.folding import folded
from veen_bridge.roles.session import RoleKeys
from veen_core.ids import Label, StreamId
from veen_core.keys import DhKey
from veen_core.receipt import Receipt
from veen_core.stream import stream_id
from veen_hub.client import Hub, connect
from veen_hub.client.roles import tls_of
from veen_overlays import MemoryStore, Overlay, Summary, SummaryStore
from veen_overlays.fold.event import Message
from veen_overlays.live import EpochView, Materializer, ReadPrefix, open_entry

S = TypeVar("S")


class StreamView(Protocol[S]):
    """A folded stream."""

    async def summary(self) -> Summary[S]:
        """The summary of the whole stream."""

    async def first_use(self, key: bytes) -> int | None:
        """The position of the first event that used a key of the overlay, or None."""

    async def message(self, position: int) -> Message:
        """The opened message at a position."""

    def messages(self) -> AsyncIterator[Message]:
        """All messages of the stream, opened, in order."""


class Zone(Protocol):
    """The logs of one zone."""

    async def view(self, overlay: Overlay[S], stream: StreamId) -> StreamView[S]:
        """A stream folded to its end; the same call returns the same view."""

    async def last_position(self, label: Label) -> int | None:
        """The last position of a label; None if the zone cannot tell."""


@dataclass(slots=True)
class LiveView:
    """A stream of a hub, folded through a materializer."""

    hub: Hub
    stream: StreamId
    keys: Sequence[DhKey]
    inner: Materializer[Any] | EpochView[Any]

    async def summary(self) -> Summary[Any]:
        return (await self.inner.state()).summary

    async def first_use(self, key: bytes) -> int | None:
        return await self.inner.first_use(key)

    async def message(self, position: int) -> Message:
        return await self.inner.message(position)

    async def messages(self) -> AsyncIterator[Message]:
        if isinstance(self.inner, EpochView):
            async for position, entry in self.inner.entries():
                yield open_entry(entry, entry.receipt, self.keys, keep_wrappers=True)._replace(seq=position)
            return
        async for entry in ReadPrefix(self.inner.label).entries(self.hub.log_reader(), self.inner.size):
            yield open_entry(entry, entry.receipt, self.keys, keep_wrappers=True)


@dataclass(slots=True)
class LiveZone:
    """A zone that is read from its hub."""

    hub: Hub
    keys: Sequence[DhKey]
    store: SummaryStore = field(default_factory=MemoryStore)
    _views: dict[tuple[str, StreamId], LiveView] = field(default_factory=dict)

    async def view(self, overlay: Overlay[S], stream: StreamId) -> StreamView[S]:
        key = overlay.name, stream
        if key not in self._views:
            inner = await folded(overlay, self.hub, self.hub.stream(stream.hex()), self.keys, self.store)
            self._views[key] = LiveView(self.hub, stream, self.keys, inner)
        return self._views[key]

    async def last_position(self, label: Label) -> int | None:
        head: Receipt | None = await self.hub.log_reader().head(label)
        return 0 if head is None else head.stream_seq


@asynccontextmanager
async def open_live_zone(
    config: BridgeConfig, keys: RoleKeys, store: SummaryStore | None
) -> AsyncIterator[LiveZone]:
    """Connect to a role's hub for reading; no token is used, and no state is written at the hub."""
    access = config.access
    async with connect(
        access.hub, keys.identity, trust=access.trust, witnesses=access.witnesses, tls=tls_of(access)
    ) as hub:
        yield LiveZone(hub, keys.opening, MemoryStore() if store is None else store)


def audit_stream(config: BridgeConfig) -> StreamId:
    """The audit stream of a role."""
    return stream_id(config.audit_stream)
