"""Files of a drop folder: a request in one file, its reply in another with the same name (DR0).

    <sender>-<number>-<hash>.request     CBOR [method, target, [[header, value], …], body]
    <sender>-<number>-<hash>.reply       CBOR [status, [[header, value], …], body]
    status.reply                         the hub's status, which the hub renews

``sender`` is 16 hex digits that a client draws once per folder, ``number`` counts its requests from 1, and
``hash`` begins the hash of the request's content: a request that is dropped twice has the same name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from veen_core import cbor
from veen_core.errors import DecodeError
from veen_core.hashing import H

REQUEST: Final = ".request"
REPLY: Final = ".reply"
STATUS_NAME: Final = f"status{REPLY}"
MAX_REQUEST_BYTES: Final = 16 * 1_048_576
"""Largest request file; a request with the largest message has little more than 1 MiB."""
MAX_REPLY_BYTES: Final = 64 * 1_048_576
MAX_HEAD_BYTES: Final = 32 * 1_024
"""Bytes before the body, as over HTTP; headers of a few bytes would take forty times their size in memory."""
_STEM: Final = re.compile(r"([0-9a-f]{16})-([0-9]{12})-([0-9a-f]{32})", re.ASCII)

Fields = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, order=True)
class DropName:
    """The name of a request and of its reply; ordered by sender and number."""

    sender: str
    number: int
    digest: str

    @classmethod
    def parse(cls, file_name: str, kind: str) -> DropName | None:
        """Return the name of a request or reply; None if the file is neither."""
        if not file_name.endswith(kind):
            return None
        found = _STEM.fullmatch(file_name.removesuffix(kind))
        return cls(found[1], int(found[2]), found[3]) if found is not None else None

    def file_name(self, kind: str) -> str:
        return f"{self.sender}-{self.number:012d}-{self.digest}{kind}"


@dataclass(frozen=True, slots=True)
class DroppedRequest:
    """The content of a request file."""

    method: str
    target: str
    headers: Fields
    body: bytes

    def encode(self) -> bytes:
        return cbor.encode([self.method, self.target, [list(field) for field in self.headers], self.body])

    @classmethod
    def decode(cls, data: bytes) -> DroppedRequest:
        _check_head(data, items=3)
        match cbor.decode(data):
            case [str(method), str(target), list(headers), bytes(body)]:
                return cls(method, target, _fields(headers), body)
        raise DecodeError("a request file is not [method, target, headers, body]")


@dataclass(frozen=True, slots=True)
class DroppedReply:
    """The content of a reply file."""

    status: int
    headers: Fields
    body: bytes

    def encode(self) -> bytes:
        return cbor.encode([self.status, [list(field) for field in self.headers], self.body])

    @classmethod
    def decode(cls, data: bytes) -> DroppedReply:
        _check_head(data, items=2)
        match cbor.decode(data):
            case [int(status), list(headers), bytes(body)]:
                return cls(status, _fields(headers), body)
        raise DecodeError("a reply file is not [status, headers, body]")


def digest_of(content: bytes) -> str:
    """Return the part of a name that stands for the content."""
    return H(content)[:16].hex()


def _check_head(data: bytes, *, items: int) -> None:
    """Refuse a file whose items before the body are too long, before any of them is built."""
    head, at = data[:MAX_HEAD_BYTES], 1
    try:
        for _ in range(items):
            at = cbor.item_end(head, at)
    except DecodeError:
        raise DecodeError(f"the items before the body do not end within {MAX_HEAD_BYTES} bytes") from None


def _fields(found: Sequence[object]) -> Fields:
    fields: list[tuple[str, str]] = []
    for each in found:
        match each:
            case [str(name), str(value)] if name.isascii() and value.isascii() and value.isprintable():
                fields.append((name, value))
            case _:
                raise DecodeError("a header is not [name, value]")
    return tuple(fields)
