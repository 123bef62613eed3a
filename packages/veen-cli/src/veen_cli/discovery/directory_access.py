"""The streams of a directory, as the commands reach them: public by default (spec-5 §5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from veen_cli.overlays.overlay_stream import OverlayStream
from veen_core.ids import ClientId
from veen_overlays.discovery.records import KINDS, Kind
from veen_overlays.discovery.state import DISCOVERY, DiscoveryState
from veen_overlays.discovery.streams import STREAMS
from veen_overlays.recorder.records import sign_continuity

kind_argument = click.argument("kind", type=click.Choice(KINDS))


def directory_option(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--directory``, the stream of descriptors."""
    return click.option(
        "--directory",
        metavar="STREAM",
        help="Stream of the descriptors [default: disc.hubs.v1, disc.services.v1 or disc.overlays.v1].",
    )(work)


def stream_of(kind: Kind, directory: str | None) -> str:
    """The stream that holds the descriptors of a kind."""
    return STREAMS[kind] if directory is None else directory


async def link_publisher(source: OverlayStream, state: DiscoveryState) -> ClientId:
    """Link the client_id of the next message to the identity, unless the stream has the link (KEX0.2, P16).

    Return the client_id. With a token that names the identity, the identity's own key signs.
    """
    identity = source.access.identity
    log = await source.hub.log(source.stream.label(), source.hub.connection.origin(source.stream.id))
    token = await source.hub.tokens.choose(log, source.stream.id, None)
    client = await source.stream.client_id() if token is None else ClientId(token.subject_pk)
    own = bytes(identity.client_id)
    if bytes(client) != own and own not in state.get("links", {}).get(bytes(client), frozenset()):
        await source.send(sign_continuity(identity.signing_key, client))
    return client


async def state_of(source: OverlayStream) -> DiscoveryState:
    """The folded state at the stream's end; empty for a stream without messages."""
    return await source.state(DISCOVERY)
