"""The routes (§10.1, DESIGN) and the server that answers them."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from veen_hub.http import attachments, probes, reading, tooling
from veen_hub.http.connections import check_head
from veen_hub.http.errors import envelopes
from veen_hub.http.keys import HUB
from veen_hub.http.listener import Listener, Spare, too_many
from veen_hub.http.submit import submit
from veen_hub.http.tls import server_context
from veen_hub.hub import Hub
from veen_hub.ops.realm_follower import Following

PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})


@web.middleware
async def only_short_heads(request: web.Request, handler: Handler) -> web.StreamResponse:
    check_head(request)
    return await handler(request)


@web.middleware
async def only_probes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """On a connection too many: whoever is woken because of it asks these."""
    if isinstance(request.protocol, Spare) and request.path not in PROBES:
        raise too_many()
    return await handler(request)


def make_app(hub: Hub) -> web.Application:
    app = web.Application(
        middlewares=[envelopes, only_short_heads, only_probes],
        client_max_size=2**62,  # bodies are bounded where they are read
    )
    app[HUB] = hub
    app.add_routes(
        [
            web.post("/v1/submit", submit),
            web.post("/v1/stream", reading.page),
            web.get("/v1/stream/{label}", reading.follow, allow_head=False),  # it has no end
            web.post("/v1/receipt", reading.receipt),
            web.post("/v1/proof", reading.proof),
            web.post("/v1/consistency", reading.consistency),
            web.post("/v1/checkpoint", reading.checkpoint),
            web.get("/v1/checkpoint", reading.checkpoints),
            web.put("/v1/attachment/{coid}", attachments.put),
            web.get("/v1/attachment/{coid}", attachments.get),
            web.get("/v1/status", probes.status),
            web.post("/tooling/authorize", tooling.authorize),
            web.get("/tooling/cap/{auth_ref}", tooling.cap_status),
            web.post("/tooling/equivocation", tooling.equivocation),
            web.post("/tooling/checkpoint", tooling.checkpoint),
            web.post("/tooling/anchor", tooling.anchor),
            web.post("/tooling/retention", tooling.retention),
            web.get("/healthz", probes.healthz),
            web.get("/readyz", probes.readyz),
            web.get("/metrics", probes.metrics),
        ]
    )
    return app


SHUTDOWN_SEC = 5
"""How long a request that is under way may take to end when the hub stops."""


class Server:
    """A hub on a socket: start it, stop it; stopping drains."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._runner = web.AppRunner(make_app(hub), shutdown_timeout=SHUTDOWN_SEC)
        self._listener: Listener | None = None
        self._following = Following(hub)

    async def start(self) -> str:
        """Listen; returns the URL. If that fails, the hub is stopped and its directory let go."""
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> str:
        tls = self.hub.config.tls
        context = server_context(tls) if tls is not None else None
        await self.hub.start()
        await self._runner.setup()
        self._listener = Listener(self._runner, self.hub, context)
        await self._listener.start()
        self._following.start(self._listener.name)
        return self._listener.name

    @property
    def connections(self) -> int:
        """How many are open."""
        return self._listener.connections if self._listener is not None else 0

    async def stop(self) -> None:
        """Stop accepting, answer what is under way, settle, close (SIGTERM)."""
        self.hub.stopping.set()
        for site in list(self._runner.sites):
            await site.stop()
        await self._following.stop()
        await self.hub.drain()
        await self._runner.cleanup()
        await self.hub.stop()
