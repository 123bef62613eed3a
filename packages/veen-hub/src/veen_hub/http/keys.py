"""The typed key under which an application has its hub."""

from __future__ import annotations

from aiohttp import web

from veen_hub.hub import Hub

HUB = web.AppKey("hub", Hub)


def hub_of(request: web.Request) -> Hub:
    return request.app[HUB]
