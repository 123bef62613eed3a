"""What handlers find in the application and in a request, by typed keys."""

from __future__ import annotations

import secrets

from aiohttp import web

from veen_hub.hub import Hub

HUB = web.AppKey("hub", Hub)
REQUEST_ID = web.RequestKey("veen-request-id", str)


def name_request(request: web.BaseRequest) -> str:
    """A request id for the answer and the log."""
    request[REQUEST_ID] = name = secrets.token_hex(8)
    return name


def hub_of(request: web.Request) -> Hub:
    return request.app[HUB]
