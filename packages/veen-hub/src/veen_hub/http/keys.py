"""What handlers find in the application and in a request, by typed keys."""

from __future__ import annotations

from aiohttp import web

from veen_hub.hub import Hub

HUB = web.AppKey("hub", Hub)
REQUEST_ID = web.RequestKey("veen-request-id", str)


def hub_of(request: web.Request) -> Hub:
    return request.app[HUB]
