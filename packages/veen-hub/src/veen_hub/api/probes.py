"""``/v1/status`` and ``/healthz`` on the API's port; ``/readyz`` and ``/metrics`` on the probes' port."""

from __future__ import annotations

import json

from veen_hub.api.content import json_reply, respond
from veen_hub.api.reply import Reply
from veen_hub.api.request import ApiRequest


async def status(request: ApiRequest) -> Reply:
    return respond(request, request.hub.status())


async def healthz(request: ApiRequest) -> Reply:
    """Report that the process is alive, without expensive checks (spec-4 §10.1)."""
    hub = request.hub
    about = {"ok": True, "profile_id": hub.profile.profile_id.hex(), **hub.publisher.last_entry()}
    return json_reply(json.dumps(about))


async def readyz(request: ApiRequest) -> Reply:
    """Report that the hub is ready, or 503 and why not."""
    hub = request.hub
    why = await hub.readiness.problem()
    hub.metrics.ready.set(0 if why else 1)
    if why is not None:
        return json_reply(json.dumps({"ok": False, "why": why}), 503)
    return json_reply(json.dumps({"ok": True}))


async def metrics(request: ApiRequest) -> Reply:
    hub = request.hub
    hub.refresh_gauges()
    return Reply(200, hub.metrics.expose(), "text/plain; version=0.0.4; charset=utf-8")
