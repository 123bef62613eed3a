"""Bodies in and out: CBOR first, JSON for debugging, sequences where the API says so (§10.3, B17).

Bounds come first: ``Content-Length`` before a byte is read, the same bound while reading, and no
compressed bodies at all, so that nothing unpacks to more than was announced (SH0.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from aiohttp import web

from veen_core.errors import AdmissionError, ApiError, DecodeError
from veen_core.rejection import SIZE_PREFILTER, Code
from veen_core.wire import Wire

CBOR: Final = "application/cbor"
CBOR_SEQ: Final = "application/cbor-seq"
JSON: Final = "application/json"
MAX_REQUEST: Final = 64 * 1_024
"""No request but a submit, a token and an attachment is anywhere near this."""

W = TypeVar("W", bound=Wire)


def too_large(message: str) -> ApiError:
    """Of a request that is no admission (H1)."""
    return ApiError(Code.LIMIT, message)


def over_the_cap(message: str) -> AdmissionError:
    """Of a message, a token or an attachment: the prefilter's first row (§8.2)."""
    return AdmissionError(SIZE_PREFILTER, message)


TooLarge = Callable[[str], AdmissionError | ApiError]


def check_length(request: web.Request, most: int, refusal: TooLarge) -> None:
    """What can be known before a byte is read."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ApiError(Code.BAD_REQUEST, "compressed bodies are not accepted: send it as it is")
    if request.content_length is not None and request.content_length > most:
        raise refusal(f"Content-Length {request.content_length} exceeds {most}")


async def read_body(
    request: web.Request,
    most: int,
    timeout: int,
    refusal: TooLarge = too_large,
    grown: Callable[[int], None] = lambda _size: None,
) -> bytes:
    """The whole body, or the reason why not; never more than ``most`` bytes in memory.

    ``grown`` is told how much there is of it, and may refuse.
    """
    check_length(request, most, refusal)
    if request.content.is_eof():  # all here, as small bodies are: no timer is needed (9 of 90 µs)
        body = request.content.read_nowait()
        grown(len(body))
        return _bounded(body, most, refusal)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout):
            async for part in request.content.iter_any():
                size += len(part)
                if size > most:
                    raise refusal(f"more than {most} bytes")
                grown(size)
                parts.append(part)
    except TimeoutError:
        raise ApiError(Code.BAD_REQUEST, f"the body did not arrive within {timeout} s") from None
    return b"".join(parts)


def _bounded(body: bytes, most: int, refusal: TooLarge) -> bytes:
    if len(body) > most:
        raise refusal(f"more than {most} bytes")
    return body


async def read_as(request: web.Request, kind: type[W], timeout: int, most: int = MAX_REQUEST) -> W:
    """The body as one envelope, by its Content-Type."""
    body = await read_body(request, most, timeout)
    try:
        match request.content_type:
            case "application/cbor":
                return kind.decode(body)
            case "application/json":
                return kind.from_json(body)
    except DecodeError as exc:
        raise ApiError(Code.BAD_REQUEST, str(exc)) from None
    raise ApiError(Code.BAD_REQUEST, f"Content-Type {request.content_type}: send {CBOR} or {JSON}")


def wants_json(request: web.Request) -> bool:
    """JSON only to who asks for it and not for CBOR, or sent it without saying."""
    accept = request.headers.get("Accept", "")
    if CBOR in accept:
        return False
    return JSON in accept or (request.content_type == JSON and accept in ("", "*/*"))


def reply(request: web.Request, envelope: Wire, status: int = 200) -> web.Response:
    if wants_json(request):
        return web.Response(text=envelope.to_json(), content_type=JSON, status=status)
    return web.Response(body=envelope.encode(), content_type=CBOR, status=status)
