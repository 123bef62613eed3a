"""A request as every transport hands it over (§10, DR0)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from veen_hub.api.content import announced_length
from veen_hub.api.reply import Body, Headers
from veen_hub.hub import Hub
from veen_hub.pipeline.feed import LiveWriter


class Peer(Protocol):
    """The client at the other end, as far as its transport knows it."""

    source: bytes
    """The writer whose message the hub accepted last over this connection; its share of the queue is used."""

    @property
    def remote(self) -> str | None:
        """IP address of the client; None if the transport does not show it."""

    @property
    def lost(self) -> asyncio.Event:
        """Set when no answer can reach the client any more."""

    @property
    def dropped(self) -> bool:
        """Whether the hub has ended the connection because the client read too slowly."""

    @property
    def live_writer(self) -> LiveWriter | None:
        """Sends a live stream's items without its task, once the answer has begun; None if that cannot be."""

    def is_checked_reader(self) -> bool:
        """Return whether the client has shown what ``tls.client_certificate: reading`` asks of readers."""


@dataclass(slots=True, kw_only=True)
class ApiRequest:
    """One request to one endpoint."""

    hub: Hub
    method: str
    path: str
    """The path after its escapes were decoded, without the query."""
    request_id: str
    headers: Headers
    content: Body
    peer: Peer
    query: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    """The parts of the path that the route names, such as ``label``."""

    @property
    def remote(self) -> str | None:
        return self.peer.remote

    @property
    def content_length(self) -> int | None:
        """The announced length of the body, if the request announces one."""
        return announced_length(self.headers)
