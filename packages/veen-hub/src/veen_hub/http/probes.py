"""``/v1/status`` and ``/healthz`` on the API's port; ``/readyz`` and ``/metrics`` on the probes' port."""

from __future__ import annotations

from aiohttp import web

from veen_hub.http.content import respond
from veen_hub.http.keys import hub_of


async def status(request: web.Request) -> web.Response:
    return respond(request, hub_of(request).status())


async def healthz(request: web.Request) -> web.Response:
    """Report that the process is alive, without expensive checks (spec-4 §10.1)."""
    hub = hub_of(request)
    return web.json_response(
        {"ok": True, "profile_id": hub.profile.profile_id.hex(), **hub.publisher.last_entry()}
    )


async def readyz(request: web.Request) -> web.Response:
    """Report that the hub is ready, or 503 and why not."""
    hub = hub_of(request)
    why = await hub.readiness.problem()
    hub.metrics.ready.set(0 if why else 1)
    if why is not None:
        return web.json_response({"ok": False, "why": why}, status=503)
    return web.json_response({"ok": True})


async def metrics(request: web.Request) -> web.Response:
    hub = hub_of(request)
    hub.refresh_gauges()
    return web.Response(
        body=hub.metrics.expose(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    )
