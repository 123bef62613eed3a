"""The mirror's own port: ``/healthz``, ``/readyz`` and ``/metrics`` (spec-4 10.1, 10.2)."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from veen_bridge.mirror.metrics import MirrorMetrics
from veen_core.errors import ConfigError

METRICS: web.AppKey[MirrorMetrics] = web.AppKey("metrics", MirrorMetrics)
MAX_REQUEST_BYTES: Final = 1_024
"""Largest request body; the probes and metrics need none."""


class ProbesListener:
    """The listener of one mirror process."""

    def __init__(self, metrics: MirrorMetrics, host: str, port: int) -> None:
        app = web.Application(client_max_size=MAX_REQUEST_BYTES)
        app[METRICS] = metrics
        app.add_routes(
            [
                web.get("/healthz", healthz),
                web.get("/readyz", readyz),
                web.get("/metrics", expose),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        self._host, self._port = host, port

    async def start(self) -> str:
        """Listen, and return the address."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        try:
            await site.start()
        except OSError as exc:
            await self._runner.cleanup()
            raise ConfigError(
                f"--listen: {self._host}:{self._port} cannot be used: {exc.strerror}",
                action="choose another address or port; port 0 takes a free one",
            ) from None
        host, port = self._runner.addresses[0][:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()


async def healthz(_request: web.Request) -> web.Response:
    return web.json_response({"ok": True})


async def readyz(request: web.Request) -> web.Response:
    """Answer 200 while every stream is mirrored, else 503 with the streams that are not."""
    waiting = {each.stream: each.reason for each in request.app[METRICS].not_ready}
    return web.json_response({"ok": not waiting, "waiting": waiting}, status=503 if waiting else 200)


async def expose(request: web.Request) -> web.Response:
    return web.Response(
        body=request.app[METRICS].expose(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )
