"""Writers and readers of overlays at the hub under test, with tokens of its admin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from veen_core.cap import CapToken, mint
from veen_core.ids import ClientId, StreamId
from veen_core.keys import DhKey
from veen_hub.client import Hub, Identity, connect
from veen_overlays.fold.overlay import Overlay
from veen_overlays.live.materializer import Materializer
from veen_overlays.summary_tree.store import MemoryStore
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.runner.check import Skip
from veen_selftest.runner.context import CheckContext

TTL_SEC: Final = 3_600
"""Lifetime of the tokens, in seconds."""


def writable_hub(context: CheckContext) -> HttpHub:
    """Return a hub that admits the check's identities; raise ``Skip`` if only its admin could let them in."""
    hub = context.hub()
    if hub.known.gating and hub.admin is None:
        raise Skip("needs tokens, which only the hub's admin can issue: give --admin-key")
    return hub


@asynccontextmanager
async def connected(hub: HttpHub, who: Identity) -> AsyncIterator[Hub]:
    """Connect an identity; a gated hub gets a token for each stream that the identity writes to."""

    async def token(client_id: ClientId, stream: StreamId) -> CapToken:
        assert hub.admin is not None
        return mint(hub.admin, client_id, [stream], TTL_SEC)

    async with connect(
        hub.url, who, trust=hub.known.identity.hub_id, tokens=token if hub.known.gating else None, tls=hub.tls
    ) as connection:
        yield connection


async def folded(reader: Hub, stream: str, overlay: Overlay[Any], keys: Sequence[DhKey]) -> Any:
    """Fold a whole stream, from verified entries, and return the state."""
    view = Materializer(
        overlay, reader.stream(stream).label(), reader.log_reader(), key=keys, store=MemoryStore()
    )
    await view.open()
    await view.catch_up()
    return (await view.state()).summary.inner
