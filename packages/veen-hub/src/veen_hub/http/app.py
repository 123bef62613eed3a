"""The routes (§10.1) and the server: listeners for the API, the probes, and a console if one is set."""

from __future__ import annotations

import functools
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.console.hub_listener import make_console
from veen_hub.http import attachments, hub_log, probes, reading, replication, tooling
from veen_hub.http.bounded_connection import check_head_size
from veen_hub.http.bounded_listener import Endpoint
from veen_hub.http.errors import envelopes
from veen_hub.http.keys import HUB, READERS_ARE_CHECKED, hub_of
from veen_hub.http.listener import Listener
from veen_hub.http.submit import submit
from veen_hub.http.tls import server_context
from veen_hub.hub import Hub

SHUTDOWN_SEC: Final = 5
"""How long a request in progress may take to end when the hub stops."""


@web.middleware
async def only_short_heads(request: web.Request, handler: Handler) -> web.StreamResponse:
    check_head_size(request.raw_headers)
    return await handler(request)


def reads_log(handler: Handler) -> Handler:
    """Mark a handler that reads the log: it may require a client certificate (COMP0.3)."""

    @functools.wraps(handler)
    async def checked(request: web.Request) -> web.StreamResponse:
        tls = hub_of(request).config.tls
        is_checked = request.app.get(READERS_ARE_CHECKED, False)
        if tls is not None and tls.client_certificate == "reading" and not is_checked:
            connection = request.get_extra_info("ssl_object")
            if connection is None or not connection.getpeercert():
                raise ApiError(Code.UNAUTHORIZED, "reading this hub requires a client certificate")
        return await handler(request)

    return checked


def read_routes() -> list[web.RouteDef]:
    """Return the calls that read the hub; a console's listener has them and no others (ADR 0030)."""
    return [
        web.post("/v1/stream", reads_log(reading.page)),
        web.get("/v1/stream/{label}", reads_log(reading.follow), allow_head=False),  # it never ends
        web.post("/v1/receipt", reads_log(reading.receipt)),
        web.post("/v1/proof", reads_log(reading.proof)),
        web.post("/v1/consistency", reads_log(reading.consistency)),
        web.post("/v1/checkpoint", reads_log(reading.checkpoint)),
        web.get("/v1/checkpoint", reads_log(reading.checkpoints)),
        web.get("/v1/attachment/{coid}", reads_log(attachments.get)),
        web.post("/v1/hublog/proof", reads_log(hub_log.proof)),
        web.post("/v1/hublog/consistency", reads_log(hub_log.consistency)),
        web.get("/log/checkpoint", reads_log(hub_log.checkpoint)),
        web.get("/log/tile/{path:.+}", reads_log(hub_log.tile)),
        web.get("/v1/status", probes.status),
        web.get("/tooling/cap/{auth_ref}", reads_log(tooling.cap_status)),
        web.get("/healthz", probes.healthz),
    ]


def probe_routes() -> list[web.RouteDef]:
    """Return the calls of the probes' listener that its other listeners do not have."""
    return [web.get("/readyz", probes.readyz), web.get("/metrics", probes.metrics)]


def make_api(hub: Hub) -> web.Application:
    app = _make_app(hub)
    app.add_routes(
        [
            *read_routes(),
            web.post("/v1/submit", submit),
            web.put("/v1/attachment/{coid}", attachments.put),
            web.get("/v1/replica/snapshot", reads_log(replication.snapshot), allow_head=False),
            web.get("/v1/replica/journal", reads_log(replication.journal), allow_head=False),
            web.post("/tooling/authorize", tooling.authorize),
            web.post("/tooling/equivocation", tooling.equivocation),
            web.post("/tooling/checkpoint", tooling.checkpoint),
            web.post("/tooling/anchor", tooling.anchor),
            web.post("/tooling/retention", tooling.retention),
            web.post("/tooling/handover", tooling.handover),
        ]
    )
    return app


def make_probes(hub: Hub) -> web.Application:
    app = _make_app(hub)
    app.add_routes([web.get("/healthz", probes.healthz), *probe_routes()])
    return app


def _make_app(hub: Hub) -> web.Application:
    # Bodies are bounded where they are read.
    app = web.Application(middlewares=[envelopes, only_short_heads], client_max_size=2**62)
    app[HUB] = hub
    return app


class Server:
    """A hub with its listeners: ``start`` listens, ``stop`` drains and closes."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._api_runner = web.AppRunner(make_api(hub), shutdown_timeout=SHUTDOWN_SEC)
        self._probes_runner = web.AppRunner(make_probes(hub), shutdown_timeout=SHUTDOWN_SEC)
        self._api: Listener | None = None
        self._probes: Listener | None = None
        self._console_runner: web.AppRunner | None = None
        self._console: Listener | None = None

    async def start(self) -> str:
        """Listen, and return the API's URL; after a failure the hub is stopped and its directory closed."""
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> str:
        tls = self.hub.config.tls
        context = server_context(tls) if tls is not None else None
        await self.hub.start()
        await self._api_runner.setup()
        await self._probes_runner.setup()
        listen = self.hub.config.listen
        endpoint = Endpoint(
            key="listen",
            host=listen.host,
            port=listen.port,
            max_connections=listen.max_connections,
            backlog=listen.backlog,
        )
        self._api = Listener(self._api_runner, self.hub, endpoint, context, takes_submits=True)
        await self._api.start()
        await self._start_probes()
        await self._start_console()
        if self.hub.replica is None:
            self.hub.realm_follower.start(self._api.name)
            self.hub.advertiser.start(self._api.name)
        return self._api.name

    async def _start_probes(self) -> None:
        api, probes = self.hub.config.listen, self.hub.config.probes
        port = probes.port
        if port is None:
            port = api.port + 1 if api.port else 0
        endpoint = Endpoint(
            key="probes",
            host=probes.host,
            port=port,
            max_connections=probes.max_connections,
            backlog=probes.max_connections,
        )
        self._probes = Listener(self._probes_runner, self.hub, endpoint)
        await self._probes.start()

    async def _start_console(self) -> None:
        settings = self.hub.config.console
        if settings is None:
            return
        app = make_console(self.hub, settings, [*read_routes(), *probe_routes()])
        self._console_runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SEC)
        await self._console_runner.setup()
        port = settings.port
        if port is None:
            port = self.hub.config.listen.port + 2 if self.hub.config.listen.port else 0
        endpoint = Endpoint(
            key="console",
            host=settings.host,
            port=port,
            max_connections=settings.max_connections,
            backlog=settings.max_connections,
        )
        tls = self.hub.config.tls if settings.is_beyond_loopback else None
        context = server_context(tls) if tls is not None else None
        self._console = Listener(self._console_runner, self.hub, endpoint, context)
        await self._console.start()

    @property
    def console_url(self) -> str | None:
        """The URL of the console, if hub.yaml has one."""
        return self._console.name if self._console is not None else None

    @property
    def probes_url(self) -> str:
        """The URL of ``/readyz`` and ``/metrics``."""
        return self._probes.name if self._probes is not None else ""

    @property
    def connections(self) -> int:
        """Open connections to the API."""
        return self._api.connections if self._api is not None else 0

    async def stop(self) -> None:
        """Stop accepting connections, answer the requests in progress, and close the hub (SIGTERM)."""
        await self.hub.advertiser.stop()  # before anything stops: the directory may be on this hub
        self.hub.stopping.set()
        for site in [*self._api_runner.sites, *(self._console_runner.sites if self._console_runner else ())]:
            await site.stop()
        await self.hub.realm_follower.stop()
        await self.hub.drain()
        await self._api_runner.cleanup()
        await self._probes_runner.cleanup()
        if self._console_runner is not None:
            await self._console_runner.cleanup()
        await self.hub.stop()
