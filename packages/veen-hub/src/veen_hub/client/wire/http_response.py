"""One HTTP/1.1 response, parsed from bytes as they arrive, without IO (RFC 9112).

A response is refused if it could be read in two ways: a malformed head, folded lines, two lengths, a coding
other than ``chunked``, bytes after its end. The head, a chunk's head and the trailers are bounded. The bytes
of the body are not: the caller takes them as they arrive, and decides how many it accepts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MAX_HEAD_BYTES: Final = 32 * 1_024
MAX_CHUNK_HEAD_BYTES: Final = 256
"""Longest line before a chunk: its size in hex, and extensions, which are ignored."""
MAX_LENGTH_DIGITS: Final = 15

_END: Final = b"\r\n\r\n"
_LINE: Final = b"\r\n"
_FIELDS: Final = rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*"
_HEAD: Final = re.compile(
    rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\r\n(" + _FIELDS + rb")\r\n"
)
_FIELD: Final = re.compile(rb"([^:]+):([^\r]*)\r\n")
_TRAILERS: Final = re.compile(_FIELDS + rb"\r\n")
_FIRST_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_NEXT_CHUNK: Final = re.compile(rb"\r\n" + _FIRST_CHUNK.pattern)
"""The line break that ends a chunk, and the head of the next one."""


class HttpError(Exception):
    """The bytes are not a response that this client accepts."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and fields of a response; names are in lower case."""

    status: int
    fields: Mapping[bytes, bytes]
    is_persistent: bool
    """Whether the server keeps the connection open after this response."""


class ResponseParser:
    """Parses one response; ``feed`` raises ``HttpError`` at the first byte that is out of place."""

    __slots__ = (
        "_body",
        "_buffer",
        "_chunk_head",
        "_chunked",
        "_left",
        "_trailers",
        "head",
        "is_complete",
        "size",
    )

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self.is_complete = False
        self.size = 0
        """Bytes of the body that have arrived and were not taken."""
        self._buffer = b""
        """Bytes that are not parsed yet: of the head, or of a chunk's head."""
        self._body: list[bytes] = []
        self._chunked = False
        self._chunk_head = _FIRST_CHUNK
        self._trailers = False
        self._left: int | None = None
        """Bytes of the body, or of the chunk, that are still to come; None: the body ends with the stream."""

    def feed(self, data: bytes) -> None:
        """Parse bytes that have arrived."""
        if self.is_complete:
            raise HttpError("bytes after the end of the response")
        data = self._buffer + data if self._buffer else data
        self._buffer = b""
        while self.head is None:
            if (end := data.find(_END)) < 0:
                if len(data) > MAX_HEAD_BYTES:
                    raise HttpError(f"a head of more than {MAX_HEAD_BYTES} bytes")
                self._buffer = data
                return
            data = self._begin(data, end + len(_END))
        if self._chunked:
            self._feed_chunks(data)
        else:
            self._feed_body(data)

    def feed_eof(self) -> None:
        """Note that the server has closed the connection; raises unless the response is complete."""
        if self.head is not None and self._left is None and not self._chunked:
            self.is_complete = True
        if not self.is_complete:
            raise HttpError("the connection was closed before the response was complete")

    def take(self) -> bytes:
        """Return the bytes of the body that have arrived since the last call."""
        body, self._body, self.size = self._body, [], 0
        return body[0] if len(body) == 1 else b"".join(body)

    # --- the head

    def _begin(self, data: bytes, end: int) -> bytes:
        """Parse the head, which ends at ``end``; returns the bytes after it."""
        if end > MAX_HEAD_BYTES or (match := _HEAD.fullmatch(data, 0, end)) is None:
            raise HttpError("a malformed head")
        version, status, lines = match.groups()
        if status[0] == 0x31:  # 1xx: the response follows
            if status == b"101":
                raise HttpError("another protocol, which was not asked for")
            return data[end:]
        fields: dict[bytes, bytes] = {}
        for name, value in _FIELD.findall(lines):
            key = name.lower()
            if key in fields and key in (b"content-length", b"transfer-encoding"):
                raise HttpError("two lengths")
            fields[key] = value.strip(b" \t")
        self._set_framing(status, fields)
        tokens = {token.strip().lower() for token in fields.get(b"connection", b"").split(b",")}
        keeps = b"keep-alive" in tokens if version == b"0" else b"close" not in tokens
        is_persistent = keeps and (self._chunked or self._left is not None)
        self.head = ResponseHead(int(status), fields, is_persistent)
        return data[end:]

    def _set_framing(self, status: bytes, fields: Mapping[bytes, bytes]) -> None:
        """Find out where the body ends (RFC 9112 §6.3)."""
        coding, length = fields.get(b"transfer-encoding"), fields.get(b"content-length")
        if coding is not None:
            if coding.lower() != b"chunked" or length is not None:
                raise HttpError("an unknown transfer coding, or one with a length")
            self._chunked, self._left = True, 0
        elif status in (b"204", b"304"):
            self._left = 0
        elif length is not None:
            if not length.isdigit() or len(length) > MAX_LENGTH_DIGITS:
                raise HttpError("a malformed length")
            self._left = int(length)

    # --- the body

    def _feed_body(self, data: bytes) -> None:
        if self._left is None:
            self._add(data)
            return
        if len(data) > self._left:
            raise HttpError("bytes after the end of the response")
        self._add(data)
        self._left -= len(data)
        self.is_complete = self._left == 0

    def _add(self, data: bytes) -> None:
        if data:
            self._body.append(data)
            self.size += len(data)

    def _feed_chunks(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._trailers:
                self._end(data[at:])
                return
            if self._left:
                part = data[at : at + self._left]
                self._add(part)
                self._left -= len(part)
                at += len(part)
            elif (head := self._chunk_head.match(data, at)) is not None:
                self._left, self._chunk_head, at = int(head[1], 16), _NEXT_CHUNK, head.end()
                self._trailers = self._left == 0
            else:
                self._keep_chunk_head(data, at)
                return

    def _keep_chunk_head(self, data: bytes, at: int) -> None:
        """Keep the beginning of a chunk's head until the rest arrives."""
        line_at = at + len(_LINE) if self._chunk_head is _NEXT_CHUNK else at
        if data.find(_LINE, line_at) >= 0 or len(data) - at > MAX_CHUNK_HEAD_BYTES:
            raise HttpError("a malformed chunk")
        self._buffer = data[at:]

    def _end(self, data: bytes) -> None:
        """Parse the trailers, which are ignored, and the empty line that ends the response."""
        if (match := _TRAILERS.match(data)) is not None:
            if match.end() != len(data):
                raise HttpError("bytes after the end of the response")
            self.is_complete = True
        elif _END in data or data.startswith(_LINE) or len(data) > MAX_HEAD_BYTES:
            raise HttpError("malformed trailers")
        else:
            self._buffer = data
