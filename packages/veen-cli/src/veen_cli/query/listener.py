"""The listeners of the service: the API with the hub's bounds on connections, and the probes."""

from __future__ import annotations

import json
from typing import Final

from aiohttp import web

from veen_cli.query.config import ServiceConfig
from veen_cli.query.metrics import ServiceMetrics
from veen_core.errors import ApiError, ConfigError
from veen_core.rejection import HTTP_STATUS
from veen_hub.api.reply import Headers, Reply
from veen_hub.http.bounded_listener import BoundedListener, ListenerEndpoint
from veen_hub.http.tls import server_context
from veen_hub.ops.config import Tls
from veen_overlays.live.query_service.principals import Authenticator
from veen_overlays.live.query_service.routes import make_app
from veen_overlays.live.query_service.service import QueryService

SHUTDOWN_SEC: Final = 5
"""How long a request in progress may take to end when the service stops."""
METRICS: web.AppKey[ServiceMetrics] = web.AppKey("metrics", ServiceMetrics)
SERVICE: web.AppKey[QueryService] = web.AppKey("probed_service", QueryService)


class JsonListener(BoundedListener):
    """A listener whose refusals are JSON, as query-api-spec 7.6 wants them."""

    __slots__ = ()

    def refuse(self, headers: Headers, error: ApiError, request_id: str) -> Reply:
        del headers
        status = HTTP_STATUS[error.code]
        code = "internal_error" if status >= 500 else "query_not_found" if status == 404 else "invalid_json"
        body = json.dumps({"error_code": code, "message": error.message}).encode()
        answer = Reply(status, body, "application/json", {"X-Request-Id": request_id})
        if error.retry_after is not None:
            answer.headers["Retry-After"] = str(error.retry_after)
        return answer


class ApiServer:
    """The API's listener and the probes' listener."""

    def __init__(self, config: ServiceConfig, service: QueryService, authenticator: Authenticator) -> None:
        self._config = config
        self._api = web.AppRunner(make_app(service, authenticator), shutdown_timeout=SHUTDOWN_SEC)
        self._probes = web.AppRunner(_probes_app(service), access_log=None)

    async def start(self) -> str:
        """Listen; return the address of the API."""
        listen, tls = self._config.listen, self._config.tls
        context = None
        if tls is not None:
            # A certificate is optional: principals may have tokens instead (query-api-spec 7.1).
            files = Tls(cert=tls.cert, key=tls.key, client_ca=tls.client_ca, client_certificate="reading")
            context = server_context(files)
        await self._api.setup()
        endpoint = ListenerEndpoint.of("listen", listen, port=listen.port)
        listener = JsonListener(self._api, endpoint, context, slow_client_sec=listen.slow_client_sec)
        await listener.start()
        return listener.name

    async def start_probes(self) -> str:
        """Listen for probes; return their address."""
        probes = self._config.probes
        await self._probes.setup()
        try:
            await web.TCPSite(self._probes, probes.host, probes.port).start()
        except OSError as exc:
            raise ConfigError(
                f"probes: cannot listen on {probes.host} port {probes.port}: {exc.strerror}",
                action="choose another port; 0 takes a free one",
            ) from None
        host, port = self._probes.addresses[0][:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def stop_accepting(self) -> None:
        """Accept no more connections; requests in progress continue."""
        for site in list(self._api.sites):
            await site.stop()

    async def stop(self) -> None:
        """Answer the requests in progress and close."""
        await self._api.cleanup()

    async def stop_probes(self) -> None:
        """Close the listener of the probes."""
        await self._probes.cleanup()


def _probes_app(service: QueryService) -> web.Application:
    app = web.Application(client_max_size=1_024)
    app[SERVICE], app[METRICS] = service, ServiceMetrics(service)
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return app


async def healthz(_request: web.Request) -> web.Response:
    """Report that the process is alive."""
    return web.json_response({"ok": True})


async def readyz(request: web.Request) -> web.Response:
    """Report that queries can be answered, or 503 and why not."""
    why = request.app[SERVICE].backend.problem()
    return web.json_response({"ok": why is None, **({"why": why} if why else {})}, status=503 if why else 200)


async def metrics(request: web.Request) -> web.Response:
    """Return the metrics."""
    return web.Response(
        body=request.app[METRICS].expose(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )
