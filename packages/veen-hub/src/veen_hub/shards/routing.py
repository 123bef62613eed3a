"""Which part answers a request, and the routes of a shard's public listener.

| request | answered by |
|---|---|
| about one label: a page, a live stream, a receipt, a proof, a checkpoint | the owner of the label |
| a submit | here, where each message is passed on to the owner of its label |
| ``/healthz`` | here |
| everything else | the coordinator |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from veen_core.api import (
    CheckpointRequest,
    ConsistencyRequest,
    ProofRequest,
    ReceiptRequest,
    StreamRequest,
)
from veen_core.errors import DecodeError
from veen_core.ids import Label
from veen_core.wire import Wire
from veen_hub.api.attachments import header
from veen_hub.api.content import JSON, MAX_REQUEST_BYTES, content_type_of, read_body
from veen_hub.api.reply import AnyReply
from veen_hub.api.request import ApiRequest
from veen_hub.api.routes import API_ROUTES, Route
from veen_hub.api.submit import check_address
from veen_hub.api.whole_body import WholeBody
from veen_hub.shards.forwarding import PartClient
from veen_storage.shards.sharded_layout import CONTROL, owner_of

BODY_WITH_LABEL: Final[Mapping[tuple[str, str], type[Wire]]] = {
    ("POST", "/v1/stream"): StreamRequest,
    ("POST", "/v1/receipt"): ReceiptRequest,
    ("POST", "/v1/proof"): ProofRequest,
    ("POST", "/v1/consistency"): ConsistencyRequest,
    ("POST", "/v1/checkpoint"): CheckpointRequest,
}
PATH_WITH_LABEL: Final = frozenset({("GET", "/v1/stream/{label}")})
ANSWERED_HERE: Final = frozenset({("POST", "/v1/submit"), ("GET", "/healthz")})
LIST_CHECKPOINTS: Final = ("GET", "/v1/checkpoint")
ATTACHMENT_PUT: Final = ("PUT", "/v1/attachment/{coid}")


def label_routes() -> list[Route]:
    """Return the routes that a shard answers for other parts: those about its own labels."""
    wanted = {*BODY_WITH_LABEL, *PATH_WITH_LABEL, LIST_CHECKPOINTS}
    return [route for route in API_ROUTES if (route.method, route.pattern) in wanted]


class Router:
    """Passes requests of one shard's public listener on; ``parts`` are all other parts, by number."""

    def __init__(
        self, number: int, count: int, control_label: Label, parts: Mapping[int, PartClient]
    ) -> None:
        self._number = number
        self._count = count
        self._control_label = control_label
        self._parts = parts

    def routes(self) -> list[Route]:
        return [self._routed(route) for route in API_ROUTES]

    def _routed(self, route: Route) -> Route:
        key = (route.method, route.pattern)
        if key in ANSWERED_HERE:
            return route
        if key in BODY_WITH_LABEL:
            return dataclasses.replace(route, handler=lambda request: self._by_body(route, request))
        if key in PATH_WITH_LABEL:
            return dataclasses.replace(route, handler=lambda request: self._by_path(route, request))
        return dataclasses.replace(route, handler=lambda request: self._to_coordinator(route, request))

    def owner_of(self, label: Label) -> int:
        return CONTROL if label == self._control_label else owner_of(label, self._count)

    async def _by_body(self, route: Route, request: ApiRequest) -> AnyReply:
        timeout = request.hub.config.listen.request_timeout_sec
        body = await read_body(request, MAX_REQUEST_BYTES, timeout)
        kind = BODY_WITH_LABEL[route.method, route.pattern]
        try:
            decode = kind.from_json if content_type_of(request.headers) == JSON else kind.decode
            owner = self.owner_of(decode(body).label)  # type: ignore[attr-defined]  # each of them has one
        except DecodeError:
            owner = self._number  # refused here, with the reason
        if owner == self._number:
            return await route.handler(dataclasses.replace(request, content=WholeBody(body)))
        return await self._parts[owner].forward(route, request, body)

    async def _by_path(self, route: Route, request: ApiRequest) -> AnyReply:
        try:
            owner = self.owner_of(Label.from_hex(request.variables["label"]))
        except DecodeError:
            owner = self._number
        if owner == self._number:
            return await route.handler(request)
        return await self._parts[owner].forward(route, request)

    async def _to_coordinator(self, route: Route, request: ApiRequest) -> AnyReply:
        if (route.method, route.pattern) == ATTACHMENT_PUT:
            check_address(request.hub.config.network, request.remote)
            header(request, "VEEN-Label", Label)
        return await self._parts[CONTROL].forward(route, request)
