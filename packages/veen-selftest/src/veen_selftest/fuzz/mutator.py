"""From a good request to one that is not: bytes, structure, path, headers, method, as the seed decides."""

from __future__ import annotations

import random
import string
from dataclasses import dataclass, replace
from typing import Any, Final

from veen_core import cbor
from veen_core.errors import DecodeError, EncodeError
from veen_selftest.hub import CBOR, CBOR_SEQ, JSON

KINDS: Final = [
    CBOR,
    CBOR_SEQ,
    JSON,
    "text/plain",
    "",
    "application/cbor; x=y",
    "multipart/form-data; boundary=b",
]
METHODS: Final = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "BREW"]
_NUMBERS: Final[list[Any]] = [0, 1, -1, 2**63, 2**64 - 1, 1.5, None, True]
_STRINGS: Final[list[Any]] = [b"", bytes(31), bytes(32), bytes(64), "text"]
STRANGE: Final[list[Any]] = [*_NUMBERS, *_STRINGS, [], {}, [[[[]]]]]
ODD_HEADERS: Final = [
    ("Content-Encoding", "gzip"),
    ("Expect", "100-continue"),
    ("Expect", "200-maybe"),
    ("Range", "bytes=0-1"),
    ("VEEN-PoW", "a0"),
    ("VEEN-Admin-Ts", "1"),
    ("VEEN-Admin-Sig", "00"),
    ("If-Modified-Since", "yesterday"),
    ("Upgrade", "websocket"),
    ("X-Long", "x" * 4_000),
]


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent."""

    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        body = (
            self.body.hex() if len(self.body) <= 400 else f"{self.body[:400].hex()}… ({len(self.body)} bytes)"
        )
        return f"{self.method} {self.path} {dict(self.headers)} {body}"


class Mutator:
    """The same seed gives the same requests."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def pick(self, choices: list[Request]) -> Request:
        """One of them, changed up to three times."""
        changes = [
            self._bytes,
            self._bytes,
            self._structure,
            self._structure,
            self._path,
            self._headers,
            self._method,
        ]
        request = self._chance.choice(choices)
        for _ in range(self._chance.choice([0, 1, 1, 1, 2, 3])):
            request = self._chance.choice(changes)(request)
        return request

    def _bytes(self, request: Request) -> Request:
        chance, body = self._chance, bytearray(request.body)
        match chance.randrange(6):
            case 0 if body:
                body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
            case 1:
                del body[chance.randrange(len(body) + 1) :]
            case 2:
                at = chance.randrange(len(body) + 1)
                body[at:at] = chance.randbytes(chance.choice([1, 2, 8, 64]))
            case 3:
                body *= 2
            case 4:
                body = bytearray(chance.randbytes(chance.choice([0, 1, 10, 300, 70_000])))
            case _:
                body += b"\x00"
        return replace(request, body=bytes(body))

    def _structure(self, request: Request) -> Request:
        """Well-formed CBOR of another shape; bytes where it is not CBOR to begin with."""
        try:
            return replace(request, body=cbor.encode(self._changed(cbor.decode(request.body))))
        except (DecodeError, EncodeError, TypeError):
            return self._bytes(request)

    def _changed(self, item: Any) -> Any:
        chance = self._chance
        if isinstance(item, dict) and item and chance.random() < 0.8:
            key = chance.choice(list(item))
            match chance.randrange(4):
                case 0:
                    return {k: v for k, v in item.items() if k != key}
                case 1:
                    return item | {chance.choice([0, 9, 99, "x", b"y"]): chance.choice(STRANGE)}
                case _:
                    return item | {key: self._changed(item[key])}
        if isinstance(item, list) and item and chance.random() < 0.8:
            at = chance.randrange(len(item))
            return [*item[:at], self._changed(item[at]), *item[at + chance.choice([0, 1, 1, 1]) :]]
        return chance.choice(STRANGE)

    def _path(self, request: Request) -> Request:
        chance, path = self._chance, request.path
        letters = string.ascii_letters + string.digits + "%/.?=&-_~"
        word = "".join(chance.choices(letters, k=chance.choice([1, 5, 70])))
        others = [
            path + word,
            path[:-1] or "/",
            path.replace("v1", f"v{chance.randrange(5)}"),
            path.upper(),
            path + "/",
            "/" + word,
            path + "?from=" + word,
            path.replace("/", "//"),
            path + "%00",
            path + "/../../etc/passwd",
        ]
        return replace(request, path=chance.choice(others))

    def _headers(self, request: Request) -> Request:
        chance, headers = self._chance, list(request.headers)
        match chance.randrange(5):
            case 0 if headers:
                headers.pop(chance.randrange(len(headers)))
            case 1:
                headers.append(("Content-Type", chance.choice(KINDS)))
            case 2:
                headers.append(("Accept", chance.choice([JSON, CBOR, "*/*", "text/html", "\xe9", ""])))
            case 3 if headers:
                name, value = headers[chance.randrange(len(headers))]
                headers.append(
                    (name, value[: chance.randrange(len(value) + 1)] + chance.choice(["", "0", "zz"]))
                )
            case _:
                headers.append(chance.choice(ODD_HEADERS))
        return replace(request, headers=tuple(headers))

    def _method(self, request: Request) -> Request:
        return replace(request, method=self._chance.choice(METHODS))
