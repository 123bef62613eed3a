"""Requests that arrive as one piece, from transports of single messages or files."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import parse_qsl

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.api import routes
from veen_hub.api.reply import Headers, Reply
from veen_hub.api.request import ApiRequest
from veen_hub.api.request_ids import new_request_id
from veen_hub.api.whole_body import WholeBody
from veen_hub.hub import Hub
from veen_hub.pipeline.feed import LiveWriter

TABLE: Final = routes.RouteTable(routes.API_ROUTES)


class HiddenPeer:
    """A client that its transport hides: no address, no certificate, no sign that it reads too slowly."""

    remote: str | None = None
    dropped = False
    live_writer: LiveWriter | None = None

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.lost = asyncio.Event()

    def is_checked_reader(self) -> bool:
        """Return True: with readers that need certificates, such a transport must be allowed explicitly."""
        return True


async def answer_whole(
    hub: Hub, transport: str, *, method: str, target: str, headers: Headers, body: bytes
) -> Reply:
    """Call the endpoint of a request; raises what the endpoint raises. ``target`` is path and query."""
    path, _, query = target.partition("?")
    route, variables = TABLE.find(method, path)
    if route.is_bulk:
        raise ApiError(
            Code.BAD_REQUEST,
            f"{path} does not travel over {transport}: use HTTP (the hub's http:// or https:// address)",
        )
    if route.is_endless:
        raise ApiError(Code.BAD_REQUEST, f"{path} is a live stream, which is no single reply")
    request = ApiRequest(
        hub=hub,
        method=method,
        path=path,
        request_id=new_request_id(),
        headers=headers,
        content=WholeBody(body),
        peer=HiddenPeer(transport.encode()),
        query=dict(parse_qsl(query)),
        variables=variables,
    )
    reply = await routes.call(route, request)
    assert isinstance(reply, Reply)  # only bulk and endless routes stream
    return reply
