"""The routes (§10.1) and the server: listeners for the API, the probes, and a console if one is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from veen_hub.api.routes import API_ROUTES, HEALTHZ, PROBE_ROUTES, READ_ROUTES
from veen_hub.console.hub_listener import make_console
from veen_hub.file_drop.service import FileDropService
from veen_hub.http.bounded_connection import check_head_size
from veen_hub.http.bounded_listener import ListenerEndpoint
from veen_hub.http.errors import envelopes
from veen_hub.http.exchange import route_of
from veen_hub.http.keys import HUB
from veen_hub.http.listener import Listener
from veen_hub.http.tls import server_context
from veen_hub.hub import Hub

if TYPE_CHECKING:
    from veen_hub.http3.listener import H3Listener
    from veen_hub.nats.service import NatsService

SHUTDOWN_SEC: Final = 5
"""How long a request in progress may take to end when the hub stops."""


@web.middleware
async def only_short_heads(request: web.Request, handler: Handler) -> web.StreamResponse:
    check_head_size(request.raw_headers)
    return await handler(request)


def make_api(hub: Hub) -> web.Application:
    app = make_app(hub)
    app.add_routes(map(route_of, API_ROUTES))
    return app


def make_probes(hub: Hub) -> web.Application:
    app = make_app(hub)
    app.add_routes([*map(route_of, (HEALTHZ, *PROBE_ROUTES))])
    return app


def make_app(hub: Hub) -> web.Application:
    # Bodies are bounded where they are read.
    app = web.Application(middlewares=[envelopes, only_short_heads], client_max_size=2**62)
    app[HUB] = hub
    return app


class Server:
    """A hub with its listeners: ``start`` listens, ``stop`` drains and closes."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        api = make_api(hub)
        if hub.config.h3 is not None:
            api.on_response_prepare.append(self._name_h3)
        self._api_runner = web.AppRunner(api, shutdown_timeout=SHUTDOWN_SEC)
        self._probes_runner = web.AppRunner(make_probes(hub), shutdown_timeout=SHUTDOWN_SEC)
        self._api: Listener | None = None
        self._probes: Listener | None = None
        self._console_runner: web.AppRunner | None = None
        self._console: Listener | None = None
        self.h3: H3Listener | None = None
        self.nats: NatsService | None = None
        if (nats := hub.config.nats) is not None:
            # Imported here: nats-py is an optional package.
            from veen_hub.nats.service import NatsService  # noqa: PLC0415

            self.nats = NatsService(hub, nats)
        self.files: FileDropService | None = None
        if hub.config.file is not None:
            self.files = FileDropService(hub, hub.config.file)

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
        endpoint = ListenerEndpoint.of("listen", listen, port=listen.port)
        self._api = Listener(self._api_runner, self.hub, endpoint, context, takes_submits=True)
        await self._api.start()
        await self._start_h3()
        await self._start_probes()
        await self._start_console()
        if self.hub.replica is None:
            self.hub.realm_follower.start(self._api.name)
            self.hub.advertiser.start(*self._own_urls())
        if self.nats is not None:
            self.nats.start()
        if self.files is not None:
            self.files.start()
        return self._api.name

    async def _start_h3(self) -> None:
        settings, tls = self.hub.config.h3, self.hub.config.tls
        if settings is None or tls is None:
            return
        # Imported here: aioquic is an optional package.
        from veen_hub.http3.listener import H3Listener  # noqa: PLC0415

        assert self._api is not None
        host = settings.host if settings.host is not None else self.hub.config.listen.host
        port = settings.port if settings.port is not None else self._api.port
        self.h3 = H3Listener(self.hub, settings, tls, host, port)
        await self.h3.start()

    async def _name_h3(self, _request: web.Request, response: web.StreamResponse) -> None:
        """Announce HTTP/3 in every answer except those of direct submits (RFC 7838)."""
        if self.h3 is not None:
            response.headers["Alt-Svc"] = self.h3.alt_svc

    def _own_urls(self) -> tuple[str, ...]:
        """The hub's address on each transport that is on, HTTP/1.1 first."""
        assert self._api is not None
        h3 = (self.h3.url,) if self.h3 is not None else ()
        return (self._api.name, *h3, *(self.nats.urls if self.nats is not None else ()))

    async def _start_probes(self) -> None:
        api, probes = self.hub.config.listen, self.hub.config.probes
        port = probes.port
        if port is None:
            port = api.port + 1 if api.port else 0
        endpoint = ListenerEndpoint.of("probes", probes, port=port)
        self._probes = Listener(self._probes_runner, self.hub, endpoint)
        await self._probes.start()

    async def _start_console(self) -> None:
        settings = self.hub.config.console
        if settings is None:
            return
        app = make_console(self.hub, settings, [*map(route_of, (*READ_ROUTES, *PROBE_ROUTES))])
        self._console_runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SEC)
        await self._console_runner.setup()
        port = settings.port
        if port is None:
            port = self.hub.config.listen.port + 2 if self.hub.config.listen.port else 0
        endpoint = ListenerEndpoint.of("console", settings, port=port)
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
        if self.h3 is not None:
            await self.h3.stop()
        if self.nats is not None:
            await self.nats.stop()
        if self.files is not None:
            await self.files.stop()
        await self._api_runner.cleanup()
        await self._probes_runner.cleanup()
        if self._console_runner is not None:
            await self._console_runner.cleanup()
        await self.hub.stop()
