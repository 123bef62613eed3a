"""Every endpoint of a hub, once: method, path, handler, and who may call it (§10.1, spec-1 §16, DR0)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.api import attachments, hub_log, probes, reading, replication, tooling
from veen_hub.api.reply import AnyReply
from veen_hub.api.request import ApiRequest
from veen_hub.api.submit import submit

Handler = Callable[[ApiRequest], Awaitable[AnyReply]]


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint. ``pattern`` has aiohttp's form: ``{name}`` is a segment, ``{name:.+}`` the rest."""

    method: str
    pattern: str
    handler: Handler
    reads_log: bool = False
    """Whether readers may need a client certificate (COMP0.3)."""
    is_endless: bool = False
    """Whether the answer has no end, so that HEAD is not allowed."""
    is_bulk: bool = False
    """Whether bodies are too large for a transport of single messages: attachments and copies of a hub."""

    @property
    def methods(self) -> tuple[str, ...]:
        return ("GET", "HEAD") if self.method == "GET" and not self.is_endless else (self.method,)


HEALTHZ: Final = Route("GET", "/healthz", probes.healthz)
READ_ROUTES: Final = (
    Route("POST", "/v1/stream", reading.page, reads_log=True),
    Route("GET", "/v1/stream/{label}", reading.follow, reads_log=True, is_endless=True),
    Route("POST", "/v1/receipt", reading.receipt, reads_log=True),
    Route("POST", "/v1/proof", reading.proof, reads_log=True),
    Route("POST", "/v1/consistency", reading.consistency, reads_log=True),
    Route("POST", "/v1/checkpoint", reading.checkpoint, reads_log=True),
    Route("GET", "/v1/checkpoint", reading.checkpoints, reads_log=True),
    Route("GET", "/v1/attachment/{coid}", attachments.get, reads_log=True, is_bulk=True),
    Route("POST", "/v1/hublog/proof", hub_log.proof, reads_log=True),
    Route("POST", "/v1/hublog/consistency", hub_log.consistency, reads_log=True),
    Route("GET", "/log/checkpoint", hub_log.checkpoint, reads_log=True),
    Route("GET", "/log/tile/{path:.+}", hub_log.tile, reads_log=True),
    Route("GET", "/v1/status", probes.status),
    Route("GET", "/tooling/cap/{auth_ref}", tooling.cap_status, reads_log=True),
    HEALTHZ,
)
"""The calls that read the hub; a console's listener has them and no others (ADR 0030)."""
API_ROUTES: Final = (
    *READ_ROUTES,
    Route("POST", "/v1/submit", submit),
    Route("PUT", "/v1/attachment/{coid}", attachments.put, is_bulk=True),
    Route("GET", "/v1/replica/snapshot", replication.snapshot, reads_log=True, is_endless=True, is_bulk=True),
    Route("GET", "/v1/replica/journal", replication.journal, reads_log=True, is_endless=True, is_bulk=True),
    Route("POST", "/tooling/authorize", tooling.authorize),
    Route("POST", "/tooling/equivocation", tooling.equivocation),
    Route("POST", "/tooling/checkpoint", tooling.checkpoint),
    Route("POST", "/tooling/anchor", tooling.anchor),
    Route("POST", "/tooling/retention", tooling.retention),
    Route("POST", "/tooling/handover", tooling.handover),
)
"""All calls of the API's transports."""
METRICS: Final = Route("GET", "/metrics", probes.metrics)
PROBE_ROUTES: Final = (Route("GET", "/readyz", probes.readyz), METRICS)
"""The calls of the probes' listener that its other listeners do not have."""


async def call(route: Route, request: ApiRequest) -> AnyReply:
    """Call an endpoint, and give its reply the id of the request."""
    tls = request.hub.config.tls
    if (
        route.reads_log
        and tls is not None
        and tls.client_certificate == "reading"
        and not request.peer.is_checked_reader()
    ):
        raise ApiError(Code.UNAUTHORIZED, "reading this hub requires a client certificate")
    reply = await route.handler(request)
    reply.headers["VEEN-Request-Id"] = request.request_id
    return reply


class RouteTable:
    """Finds the route of a request, for transports without a router of their own."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = [(re.compile(_expression(route.pattern)), route) for route in routes]

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """Return the route and the variables of its path; raises E.NOT_FOUND, E.VERSION or E.BAD_REQUEST."""
        known = False
        for expression, route in self._routes:
            if (found := expression.fullmatch(path)) is not None:
                if method in route.methods:
                    return route, found.groupdict()
                known = True
        raise ApiError(Code.BAD_REQUEST, "Method Not Allowed") if known else no_such_path(path)


def _expression(pattern: str) -> str:
    parts = re.split(r"\{(\w+)(?::([^}]+))?\}", pattern)
    expression = re.escape(parts[0])
    for name, kind, after in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        expression += f"(?P<{name}>{kind or '[^/]+'}){re.escape(after)}"
    return expression


def no_such_path(path: str) -> ApiError:
    """Make the error for an unknown path, or for another version of the API (§10.3)."""
    first = path.split("/")[1] if path.startswith("/") else ""
    if first.startswith("v") and first[1:].isdecimal() and first != "v1":
        return ApiError(Code.VERSION, f"API version {first} is unknown: this hub speaks /v1")
    return ApiError(Code.NOT_FOUND, f"there is no {path}")
