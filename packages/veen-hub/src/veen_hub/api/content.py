"""Bodies in and out: CBOR, JSON for debugging, sequences where the API has them (§10.3, B17).

Bounds come first (SH0.4): ``Content-Length`` is checked before a byte is read, the same bound applies while
reading, and compressed bodies are refused, so that no body unpacks to more than was announced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from veen_core.errors import AdmissionError, ApiError, DecodeError
from veen_core.rejection import SIZE_PREFILTER, Code
from veen_core.wire import Wire
from veen_hub.api.reply import Headers, ReadableRequest, Reply

CBOR: Final = "application/cbor"
CBOR_SEQ: Final = "application/cbor-seq"
JSON: Final = "application/json"
MAX_REQUEST_BYTES: Final = 64 * 1_024
"""Largest body of a request that is not a submit or an attachment."""

MAX_LENGTH_DIGITS: Final = 18
"""Digits of a Content-Length that are looked at; Python converts no number with thousands of them."""
MIN_READ_RATE: Final = 32 * 1_024
"""Bytes per second that a client must read of its answers, and send of an attachment."""

W = TypeVar("W", bound=Wire)


def too_large(message: str) -> ApiError:
    """Return E.LIMIT: the refusal of a request that is not an admission (H1)."""
    return ApiError(Code.LIMIT, message)


def over_the_cap(message: str) -> AdmissionError:
    """Return E.SIZE of the prefilter's first row (§8.2): for a message, a token or an attachment."""
    return AdmissionError(SIZE_PREFILTER, message)


TooLarge = Callable[[str], AdmissionError | ApiError]


def content_type_of(headers: Headers) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


def announced_length(headers: Headers) -> int | None:
    """Return the Content-Length, if it is a number, cut to its first ``MAX_LENGTH_DIGITS`` digits."""
    text = headers.get("Content-Length", "")
    return int(text[:MAX_LENGTH_DIGITS]) if text.isascii() and text.isdecimal() else None


def check_length(headers: Headers, max_bytes: int, refusal: TooLarge) -> None:
    """Refuse a body whose headers announce compression or too many bytes, before it is read."""
    encoding = headers.get("Content-Encoding")
    if encoding is not None and encoding.lower() != "identity":
        raise ApiError(Code.BAD_REQUEST, "compressed bodies are not accepted: send the body uncompressed")
    length = announced_length(headers)
    if length is not None and length > max_bytes:
        raise refusal(f"Content-Length {length} exceeds {max_bytes}")


def check_body(body: bytes, max_bytes: int, refusal: TooLarge) -> bytes:
    """Return the body; refuse one of more than ``max_bytes``."""
    if len(body) > max_bytes:
        raise refusal(f"the body has more than {max_bytes} bytes")
    return body


async def read_body(
    request: ReadableRequest,
    max_bytes: int,
    timeout: int,
    refusal: TooLarge = too_large,
    grow_to: Callable[[int], None] = lambda _size: None,
) -> bytes:
    """Read the whole body, never more than ``max_bytes``.

    ``grow_to`` is called with the number of bytes read so far, and may raise a refusal.
    """
    check_length(request.headers, max_bytes, refusal)
    if request.content.is_eof():  # the body is complete, as small ones are: no timer is needed (9 of 90 µs)
        body = check_body(request.content.read_nowait(), max_bytes, refusal)
        grow_to(len(body))
        return body
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout):
            async for part in request.content.iter_any():
                size += len(part)
                if size > max_bytes:
                    raise refusal(f"the body has more than {max_bytes} bytes")
                grow_to(size)
                parts.append(part)
    except TimeoutError:
        raise ApiError(Code.BAD_REQUEST, f"the body did not arrive within {timeout} s") from None
    return b"".join(parts)


async def read_as(
    request: ReadableRequest, kind: type[W], timeout: int, max_bytes: int = MAX_REQUEST_BYTES
) -> W:
    """Read the body as one envelope, by its Content-Type."""
    body = await read_body(request, max_bytes, timeout)
    content_type = content_type_of(request.headers)
    try:
        match content_type:
            case "application/cbor":
                return kind.decode(body)
            case "application/json":
                return kind.from_json(body)
    except DecodeError as exc:
        raise ApiError(Code.BAD_REQUEST, str(exc)) from None
    raise ApiError(Code.BAD_REQUEST, f"Content-Type {content_type} is not accepted: send {CBOR} or {JSON}")


def wants_json(headers: Headers) -> bool:
    """Return whether the client accepts JSON but not CBOR, or sent JSON without a specific Accept header."""
    accept = headers.get("Accept", "")
    if CBOR in accept:
        return False
    return JSON in accept or (accept in ("", "*/*") and content_type_of(headers) == JSON)


def reply(headers: Headers, envelope: Wire, status: int = 200) -> Reply:
    """Encode an envelope in the form that the request's headers ask for."""
    if wants_json(headers):
        return Reply(status, envelope.to_json().encode(), f"{JSON}; charset=utf-8")
    return Reply(status, envelope.encode(), CBOR)


def respond(request: ReadableRequest, envelope: Wire) -> Reply:
    """Answer a request with an envelope."""
    return reply(request.headers, envelope)


def json_reply(text: str, status: int = 200) -> Reply:
    """Answer with JSON that is no envelope."""
    return Reply(status, text.encode(), f"{JSON}; charset=utf-8")
