"""Anchors of a sharded hub: the coordinator has the backend, and shards publish through it.

A backend may allow one process only: an anchoring hub sees one writer. Each part anchors the labels that it
owns, the coordinator the control label.
"""

from __future__ import annotations

from typing import Final

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.api.content import MAX_REQUEST_BYTES, read_body
from veen_hub.api.reply import Reply
from veen_hub.api.request import ApiRequest
from veen_hub.api.routes import Route
from veen_hub.ops.anchors import AnchoredRoot, AnchorError, AnchorPublisher
from veen_hub.shards.forwarding import PartClient

ANCHOR_PATH: Final = "/part/anchor"


class CoordinatorAnchor:
    """The backend as a shard has it."""

    def __init__(self, coordinator: PartClient) -> None:
        self._coordinator = coordinator

    async def publish(self, root: AnchoredRoot) -> bytes:
        """Publish a root; return its reference once it is durable."""
        try:
            return await self._coordinator.call("POST", ANCHOR_PATH, root.encode())
        except ApiError as exc:
            raise AnchorError(str(exc)) from exc


def anchor_route(anchor: AnchorPublisher) -> Route:
    """Return the route by which shards use the coordinator's backend."""

    async def publish(request: ApiRequest) -> Reply:
        timeout = request.hub.config.listen.request_timeout_sec
        root = AnchoredRoot.decode(await read_body(request, MAX_REQUEST_BYTES, timeout))
        try:
            return Reply(200, await anchor.publish(root), "application/octet-stream")
        except AnchorError as exc:
            raise ApiError(Code.UNAVAILABLE, str(exc), retry_after=1) from exc

    return Route("POST", ANCHOR_PATH, publish)
