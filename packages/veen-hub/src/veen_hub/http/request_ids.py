"""Request ids, for the answer and the log."""

from __future__ import annotations

import itertools
import secrets

from aiohttp import web

REQUEST_ID = web.RequestKey("veen-request-id", str)

_RUN = secrets.token_hex(4)
_NUMBERS = itertools.count(1)


def name_request(request: web.BaseRequest) -> str:
    """Give a request its id, for the answer and the log."""
    request[REQUEST_ID] = name = new_request_id()
    return name


def new_request_id() -> str:
    """Return the id of this run and a counter: reading the system's randomness costs 10 µs per request."""
    return f"{_RUN}{next(_NUMBERS):08x}"


def request_id_of(request: web.Request) -> dict[str, str]:
    """Return the id as a header, for an answer that begins before its handler returns."""
    return {"VEEN-Request-Id": request[REQUEST_ID]}
