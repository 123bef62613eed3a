"""Replies of the API as HTTP/1.1: aiohttp's responses, or bytes."""

from __future__ import annotations

import time
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.http import SERVER_SOFTWARE
from multidict import CIMultiDict

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.api.content import CBOR, JSON, wants_json
from veen_hub.api.errors import refuse
from veen_hub.api.reply import Headers, Reply
from veen_hub.api.request_ids import new_request_id

_SOME_ID: Final = b"0123456789abcdef"
"""As long as every request id."""


def to_response(reply: Reply) -> web.Response:
    """Make aiohttp's response."""
    headers = {"Content-Type": reply.content_type, **reply.headers}
    return web.Response(status=reply.status, body=reply.body, headers=headers)


def to_bytes(reply: Reply) -> bytes:
    """Encode an answer for HTTP/1.1."""
    head = _head(reply.status, reply.content_type, int(time.time()))
    more = "".join([f"{name}: {value}\r\n" for name, value in reply.headers.items()])
    return f"{head}{more}Content-Length: {len(reply.body)}\r\n\r\n".encode() + reply.body


def refusal_bytes(headers: Headers, error: ApiError) -> bytes:
    """Encode a refusal for HTTP/1.1 as ``refuse`` and ``to_bytes`` do, in a sixth of their time.

    An overloaded hub refuses many times as many requests as it takes; all but the request id is kept.
    """
    json = wants_json(headers)
    same = _refusal(error.code, error.message, error.retry_after, json, int(time.time()))
    return same.replace(_SOME_ID, new_request_id().encode())


@lru_cache(maxsize=16)
def _refusal(code: Code, message: str, retry_after: int | None, json: bool, _now: int) -> bytes:
    headers = CIMultiDict({"Accept": JSON if json else CBOR})
    return to_bytes(refuse(headers, ApiError(code, message, retry_after=retry_after), _SOME_ID.decode()))


@lru_cache(maxsize=8)
def _head(status: int, content_type: str, now: int) -> str:
    """Return the head that all answers of one kind share within one second."""
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now))
    return (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {content_type}\r\n"
        f"Date: {date}\r\nServer: {SERVER_SOFTWARE}\r\n"
    )
