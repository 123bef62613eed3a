"""What handlers find in the application: one typed key (aiohttp's ``AppKey``)."""

from __future__ import annotations

from aiohttp import web

from veen_hub.hub import Hub

HUB = web.AppKey("hub", Hub)
REQUEST_ID = "veen-request-id"


def hub_of(request: web.Request) -> Hub:
    return request.app[HUB]
