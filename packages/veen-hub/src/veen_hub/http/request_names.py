"""The id of an aiohttp request."""

from __future__ import annotations

from aiohttp import web

from veen_hub.api.request_ids import new_request_id

REQUEST_ID = web.RequestKey("veen-request-id", str)


def name_request(request: web.BaseRequest) -> str:
    """Give a request its id, for the answer and the log."""
    request[REQUEST_ID] = name = new_request_id()
    return name
