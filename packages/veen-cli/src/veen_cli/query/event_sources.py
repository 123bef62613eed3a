"""The view of a hub's streams: what it reads, with which keys, and the proofs up to hub checkpoints.

Queries name a stream as its producers do. In another zone, a bridge holds the events of that stream in an
import stream (``held_in``). Such events keep the hub, position and time of their origin (RESOLUTIONS P11), so
the identity of each origin hub must be configured: receipts of other hubs do not count.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from veen_core.consistency import MmrConsistency
from veen_core.errors import ConfigError
from veen_core.hashing import H
from veen_core.hub_identity import HubIdentity, verify_identity
from veen_core.ids import Epoch, HubId, StreamSeq
from veen_core.keys import DhKey
from veen_hub.client import Hub, NotFound
from veen_overlays.bridge.records import OFFLINE_LOG
from veen_overlays.live.query_service.view_backend import ViewBackend
from veen_overlays.live.query_view import (
    DuckDbEngine,
    EntryOpener,
    OriginHub,
    OriginLogReader,
    QueryView,
    StreamFeed,
    ViewFollower,
)
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.result.evidence import HubLogLink
from veen_overlays.query.result.result_file import Execution


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriedStream:
    """A stream that queries may name."""

    name: str
    held_in: str | None = None
    """The stream of this hub that holds its events; None if it has the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgedHub:
    """A hub whose events a bridge brought here."""

    identity: HubIdentity
    epoch_sec: int = 0
    """Length of its epochs, by its profile; 0 without epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSources:
    """What a view reads, and with which keys."""

    streams: tuple[QueriedStream, ...]
    keys: tuple[DhKey, ...]
    origins: tuple[BridgedHub, ...] = ()
    resealed: bool = False
    """Whether imported events were resealed: then the bridge's audit log lists their origins (P7)."""


def view_name(hub_id: HubId, sources: EventSources, held_in: Mapping[str, str]) -> str:
    """Return the name of the view of a hub's streams; ``held_in`` has the import streams by stream.

    A view keeps what its keys opened and what its origins proved, so other keys, origins or import streams
    make another view. A view may get further streams.
    """
    parts = [
        *sorted(bytes(key.public) for key in sources.keys),
        str(sorted(held_in.items())).encode(),
        str(sources.resealed).encode(),
        *sorted(each.identity.encode() + str(each.epoch_sec).encode() for each in sources.origins),
    ]
    return f"{hub_id.hex()[:16]}-{H(b''.join(map(H, parts))).hex()[:16]}"


def read_identity(path: Path) -> HubIdentity:
    """Read the identity of a hub, as `veen hub keys --out` writes it."""
    try:
        identity = HubIdentity.decode(path.read_bytes())
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}") from None
    verify_identity(identity)
    return identity


@asynccontextmanager
async def open_view(
    hub: Hub, sources: EventSources, folder: Path, *, rebuild: bool = False
) -> AsyncIterator[ViewBackend]:
    """Open the view of a hub's streams, or make it; the caller lets it catch up."""
    view = QueryView.open(folder, rebuild=rebuild)
    try:
        follower = ViewFollower(view, [_feed(hub, stream, sources) for stream in sources.streams])
        await follower.open()
        engine = DuckDbEngine(view, follower.homes)
        try:
            yield ViewBackend(
                view,
                follower,
                engine,
                links=HubLinks(hub),
                identities=_identities(hub, sources.origins),
                executing=Execution(
                    executed_at=0,
                    hub_id=hub.hub_id.hex(),
                    profile_id=hub.connection.profile.profile_id.hex(),
                ),
            )
            await follower.settle()
        finally:
            engine.close()
    finally:
        view.close()


def _identities(hub: Hub, origins: Sequence[BridgedHub]) -> Mapping[HubId, HubIdentity]:
    return {**{each.identity.hub_id: each.identity for each in origins}, hub.hub_id: hub.identity}


def _feed(hub: Hub, stream: QueriedStream, sources: EventSources) -> StreamFeed:
    held = hub.stream(stream.held_in or stream.name)
    reader = hub.log_reader()
    opener = EntryOpener(
        keys=sources.keys,
        origins={
            each.identity.hub_id: OriginHub.for_stream(each.identity, stream.name, epoch_sec=each.epoch_sec)
            for each in sources.origins
        },
    )
    audit = None
    if sources.resealed:
        label = hub.stream(OFFLINE_LOG).label(Epoch(0))
        audit = OriginLogReader(label, reader, keys=sources.keys, opener=opener, stream=stream.name)
    return StreamFeed(
        stream=stream.name,
        hub_id=hub.hub_id,
        reader=reader,
        labels=hub.epoch_labels(held.id) or held.label(Epoch(0)),
        opener=opener,
        origin_log=audit,
    )


class HubLinks:
    """Implements ``LinkSource`` with the hub's log (RESOLUTIONS P1)."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def link(self, prefix: Prefix) -> HubLogLink | None:
        try:
            found = await self._hub.label_head(prefix.label)
        except NotFound:
            return None
        return HubLogLink(
            head=found.head,
            index=found.index,
            head_proof=found.proof,
            checkpoint=found.checkpoint,
            consistency=await self._consistency(prefix, found.head.upto_seq),
        )

    async def _consistency(self, prefix: Prefix, upto: int) -> MmrConsistency | None:
        if upto == prefix.to_seq:
            return None
        smaller, larger = sorted((upto, prefix.to_seq))
        reader = self._hub.log_reader()
        return await reader.consistency(prefix.label, StreamSeq(smaller), StreamSeq(larger))
