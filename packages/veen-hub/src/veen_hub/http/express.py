"""The short way: a whole ``POST /v1/submit`` of one message that arrived in one piece (§10.4.1).

aiohttp's way costs as much as verifying and signing the message. Taken here is only what can be read in one
way: HTTP/1.1, a few short headers in their plainest form and each once, as many bytes as were announced and
none after them. Everything else goes aiohttp's way, and so does what the prefilter may refuse; what is taken
gets the same answer as there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from aiohttp.http import SERVER_SOFTWARE

from veen_core.api import unwrap_submit
from veen_core.errors import AdmissionError, ApiError, DecodeError, VeenError
from veen_core.rejection import HTTP_STATUS
from veen_hub.http.content import CBOR
from veen_hub.http.errors import as_api_error
from veen_hub.http.keys import new_request_id
from veen_hub.http.submit import encode, most_of_one, note, note_refusal
from veen_hub.hub import Hub
from veen_hub.pipeline.intake import Pending

_END: Final = b"\r\n\r\n"
MAX_HEAD: Final = 2_048
"""A plain head is shorter; a longer one is aiohttp's to judge. So what is remembered of heads is little."""
_REQUEST: Final = b"POST /v1/submit HTTP/1.1\r\n"
_PLAIN: Final = {  # headers that change nothing, or only what stands here
    b"Host": re.compile(rb"[!-~]+"),
    b"User-Agent": re.compile(rb"[ -~]+"),
    b"Accept": re.compile(rb"\*/\*|application/cbor"),
    b"Accept-Encoding": re.compile(rb"[ -~]+"),  # no answer is compressed
    b"Connection": re.compile(rb"keep-alive"),
    b"Content-Type": re.compile(rb"application/cbor"),
    b"Content-Length": re.compile(rb"[1-9][0-9]{0,7}"),
}
_REQUEST_LINE: Final = re.compile(rb"(?!CONNECT)[A-Z]+ /[!-~]* HTTP/1\.1")  # what follows that one is no body
_HEADER: Final = re.compile(rb"([A-Za-z-]+): ([ -~]*)")
_UNSURE: Final = {b"transfer-encoding", b"upgrade", b"expect"}
_NEEDED: Final = {b"Host", b"Content-Type", b"Content-Length"}


def body_of(data: bytes) -> bytes | None:
    """Of a request that is all of ``data`` and as plain as can be; else None."""
    if not data.startswith(_REQUEST) or (end := data.find(_END, 0, MAX_HEAD)) < 0:
        return None
    body = data[end + len(_END) :]
    return body if len(body) == _announced(data[len(_REQUEST) : end]) else None


@lru_cache(maxsize=1_024)  # a client's headers are the same again and again, but for the length
def _announced(headers: bytes) -> int | None:
    """Content-Length, if every header is plain and none is there twice."""
    found: dict[bytes, bytes] = {}
    for line in headers.split(b"\r\n"):
        name, _, value = line.partition(b": ")
        if name in found or name not in _PLAIN or not _PLAIN[name].fullmatch(value):
            return None
        found[name] = value
    return int(found[b"Content-Length"]) if found.keys() >= _NEEDED else None


def is_whole(data: bytes) -> bool:
    """Whether this is surely one request and all of it, whichever: then a parser waits for the next."""
    end = data.find(_END, 0, MAX_HEAD)
    return end >= 0 and len(data) - end - len(_END) == _length(data[:end])


@lru_cache(maxsize=1_024)
def _length(head: bytes) -> int | None:
    request, *lines = head.split(b"\r\n")
    found = [_HEADER.fullmatch(line) for line in lines]
    if not _REQUEST_LINE.fullmatch(request) or not all(found):
        return None
    headers = [(match[1].lower(), match[2]) for match in found if match]
    if any(name in _UNSURE for name, _value in headers):
        return None
    lengths = [value for name, value in headers if name == b"content-length"]
    return int(lengths[0]) if len(lengths) == 1 and lengths[0].isdigit() else 0 if not lengths else None


class Express:
    """One submit on its way; ``enter`` it, ``answer`` when it is done, and ``note`` it after that."""

    __slots__ = ("_hub", "_pending", "_request_id", "_seconds", "_started", "_wire")

    def __init__(self, hub: Hub, wire: bytes, request_id: str) -> None:
        self._hub = hub
        self._wire = wire
        self._request_id = request_id
        self._started = time.perf_counter()
        self._seconds = 0.0
        self._pending: Pending | None = None

    @classmethod
    def of(cls, hub: Hub, data: bytes) -> Express | None:
        """If it may go this way: nothing of the prefilter is asked for but the size, which is right."""
        network = hub.config.network
        if network.allow or network.deny or hub.pow_difficulty():
            return None
        if (body := body_of(data)) is None or len(body) > most_of_one(hub):
            return None
        try:
            return cls(hub, unwrap_submit(body), new_request_id())
        except DecodeError:
            return None

    def enter(self, then: Callable[[], None]) -> None:
        """Into the pipeline; raises if there is no room."""
        self._pending = self._hub.enter([self._wire], then)

    def answer(self) -> bytes:
        """What it came to, as bytes for the connection."""
        pending = self._pending
        assert pending is not None
        (outcome,) = pending.settled
        self._seconds = time.perf_counter() - self._started
        if isinstance(outcome, VeenError):
            return refusal(as_api_error(outcome), self._request_id)
        return _response(HTTPStatus.OK, encode(outcome, self._request_id), self._request_id)

    def note(self) -> None:
        """Metrics and log, when nobody waits for them any more."""
        assert self._pending is not None
        outcomes = self._pending.settled
        note(self._hub, self._request_id, [self._wire], outcomes, self._pending, total=self._seconds)

    def refuse(self, error: ApiError) -> bytes:
        """What ``enter`` raised."""
        note_refusal(self._hub, self._request_id, error, bytes_in=len(self._wire))
        return refusal(error, self._request_id)


def refusal(error: AdmissionError | ApiError, request_id: str, *, last: bool = False) -> bytes:
    """An error as bytes for the connection, which ends with the ``last``."""
    code = error.rejection.code if isinstance(error, AdmissionError) else error.code
    more = f"Retry-After: {error.retry_after}\r\n" if error.retry_after is not None else ""
    if last:
        more += "Connection: close\r\n"
    return _response(HTTPStatus(HTTP_STATUS[code]), encode(error, request_id), request_id, more)


def _response(status: HTTPStatus, body: bytes, request_id: str, more: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status} {status.phrase}\r\nContent-Type: {CBOR}\r\nContent-Length: {len(body)}\r\n"
        f"VEEN-Request-Id: {request_id}\r\n{more}Date: {_date(int(time.time()))}\r\n"
        f"Server: {SERVER_SOFTWARE}\r\n\r\n"
    )
    return head.encode() + body


@lru_cache(maxsize=1)
def _date(now: int) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now))
