"""Random changes to valid requests, determined by the seed.

Tables of small functions change bytes, the structure of CBOR, path, headers and method. A request gets up to
three changes.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from veen_core import cbor
from veen_core.errors import DecodeError, EncodeError
from veen_selftest.hubs.http_hub import CBOR, CBOR_SEQ, JSON


@dataclass(frozen=True, slots=True)
class FuzzRequest:
    """An HTTP request."""

    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        shown = self.body[:400].hex()
        more = f"… ({len(self.body)} bytes)" if len(self.body) > 400 else ""
        return f"{self.method} {self.path} {dict(self.headers)} {shown}{more}"


# --- bytes


def _cut(rng: Random, body: bytes) -> int:
    return rng.randint(0, len(body))


def _flip(rng: Random, body: bytes) -> bytes:
    if not body:
        return b"\x00"
    bit = rng.randrange(8 * len(body))
    return (int.from_bytes(body, "big") ^ (1 << bit)).to_bytes(len(body), "big")


def _truncate(rng: Random, body: bytes) -> bytes:
    return body[: _cut(rng, body)]


def _insert(rng: Random, body: bytes) -> bytes:
    at = _cut(rng, body)
    return body[:at] + rng.randbytes(rng.choice([1, 2, 8, 64])) + body[at:]


def _swap(rng: Random, body: bytes) -> bytes:
    at = _cut(rng, body)
    return body[at:] + body[:at]


def _replace_all(rng: Random, _body: bytes) -> bytes:
    return rng.randbytes(rng.choice([0, 1, 10, 300, 70_000]))


BYTES: Final[list[Callable[[Random, bytes], bytes]]] = [
    _flip,
    _truncate,
    _insert,
    _swap,
    _replace_all,
    lambda _chance, body: body * 2,
    lambda _chance, body: body + b"\x00",
]


# --- structure

STRANGE: Final[list[Any]] = [
    *(0, 1, -1, 2**63, 2**64 - 1, 1.5, None, True),
    *(b"", bytes(31), bytes(32), bytes(64), "text"),
    *([], {}, [[[[]]]]),
]
ODD_KEYS: Final[list[Any]] = [0, 9, 99, "x", b"y"]
DESCEND_PROBABILITY: Final = 0.8
"""How often a change is made inside a map or list, instead of replacing it."""


def _in_map(rng: Random, item: dict[Any, Any]) -> dict[Any, Any]:
    key = rng.choice(list(item))
    changed = dict(item)
    match rng.choice(["gone", "more", "other", "other"]):
        case "gone":
            del changed[key]
        case "more":
            changed[rng.choice(ODD_KEYS)] = rng.choice(STRANGE)
        case _:
            changed[key] = change_structure(rng, item[key])
    return changed


def _in_list(rng: Random, item: list[Any]) -> list[Any]:
    changed = list(item)
    at = rng.randrange(len(item))
    changed[at] = change_structure(rng, item[at])
    if rng.random() < 0.25:
        changed.insert(at, rng.choice(STRANGE))
    return changed


def change_structure(rng: Random, item: Any) -> Any:
    if item and rng.random() < DESCEND_PROBABILITY:
        if isinstance(item, dict):
            return _in_map(rng, item)
        if isinstance(item, list):
            return _in_list(rng, item)
    return rng.choice(STRANGE)


# --- everything around the body

METHODS: Final = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "BREW"]
TYPES: Final = [CBOR, CBOR_SEQ, JSON, "text/plain", "", "application/cbor; x=y", "multipart/form-data"]
ACCEPTED: Final = [JSON, CBOR, "*/*", "text/html", "\xe9", ""]
LETTERS: Final = string.ascii_letters + string.digits + "%/.?=&-_~"
PATHS: Final[list[Callable[[str, str], str]]] = [
    lambda path, word: path + word,
    lambda path, _word: path[:-1] or "/",
    lambda path, word: path.replace("v1", f"v{len(word)}"),
    lambda path, _word: path.upper(),
    lambda path, _word: path + "/",
    lambda _path, word: "/" + word,
    lambda path, word: f"{path}?from={word}",
    lambda path, _word: path.replace("/", "//"),
    lambda path, _word: path + "%00",
    lambda path, _word: path + "/../../etc/passwd",
]
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


class Mutator:
    """Changes requests at random; the same seed gives the same requests."""

    def __init__(self, rng: Random) -> None:
        self._chance = rng
        self._changes = [
            *[self._bytes, self._structure] * 2,
            self._path,
            self._add_header,
            self._drop_header,
            self._method,
        ]

    def pick(self, choices: list[FuzzRequest]) -> FuzzRequest:
        """Return one of the requests with zero to three changes."""
        request = self._chance.choice(choices)
        for change in self._chance.choices(self._changes, k=self._chance.choice([0, 1, 1, 1, 2, 3])):
            request = change(request)
        return request

    def _bytes(self, request: FuzzRequest) -> FuzzRequest:
        return replace(request, body=self._chance.choice(BYTES)(self._chance, request.body))

    def _structure(self, request: FuzzRequest) -> FuzzRequest:
        """Change the structure of a CBOR body, or the bytes of any other body."""
        try:
            return replace(
                request, body=cbor.encode_items(change_structure(self._chance, cbor.decode(request.body)))
            )
        except (DecodeError, EncodeError, TypeError):
            return self._bytes(request)

    def _path(self, request: FuzzRequest) -> FuzzRequest:
        word = "".join(self._chance.choices(LETTERS, k=self._chance.choice([1, 5, 70])))
        return replace(request, path=self._chance.choice(PATHS)(request.path, word))

    def _add_header(self, request: FuzzRequest) -> FuzzRequest:
        rng = self._chance
        added = [
            ("Content-Type", rng.choice(TYPES)),
            ("Accept", rng.choice(ACCEPTED)),
            rng.choice(ODD_HEADERS),
        ]
        return replace(request, headers=(*request.headers, rng.choice(added)))

    def _drop_header(self, request: FuzzRequest) -> FuzzRequest:
        """Remove a header, or truncate its value."""
        if not request.headers:
            return self._add_header(request)
        headers = list(request.headers)
        name, value = headers.pop(self._chance.randrange(len(headers)))
        if self._chance.random() < 0.5:
            headers.append((name, value[: self._chance.randint(0, len(value))]))
        return replace(request, headers=tuple(headers))

    def _method(self, request: FuzzRequest) -> FuzzRequest:
        return replace(request, method=self._chance.choice(METHODS))
