"""Replies of the API as HTTP/1.1: aiohttp's responses, or bytes."""

from __future__ import annotations

import time
from functools import lru_cache
from http import HTTPStatus

from aiohttp import web
from aiohttp.http import SERVER_SOFTWARE

from veen_hub.api.reply import Reply


def to_response(reply: Reply) -> web.Response:
    """Make aiohttp's response."""
    headers = {"Content-Type": reply.content_type, **reply.headers}
    return web.Response(status=reply.status, body=reply.body, headers=headers)


def to_bytes(reply: Reply) -> bytes:
    """Encode an answer for HTTP/1.1."""
    head = _head(reply.status, reply.content_type, int(time.time()))
    more = "".join([f"{name}: {value}\r\n" for name, value in reply.headers.items()])
    return f"{head}{more}Content-Length: {len(reply.body)}\r\n\r\n".encode() + reply.body


@lru_cache(maxsize=8)
def _head(status: int, content_type: str, now: int) -> str:
    """Return the head that all answers of one kind share within one second."""
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now))
    return (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {content_type}\r\n"
        f"Date: {date}\r\nServer: {SERVER_SOFTWARE}\r\n"
    )
