"""The body of a request as it arrives, and the two kinds of reply; both without a transport."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from multidict import MultiMapping

from veen_core.errors import VeenError

Headers = MultiMapping[str]
"""Header fields by name; names are matched without regard to case. A field may have several values."""


class Body(Protocol):
    """The body of a request, as it arrives. aiohttp's ``StreamReader`` is one."""

    def is_eof(self) -> bool:
        """Return whether the whole body has arrived."""

    def read_nowait(self) -> bytes:
        """Return the bytes that have arrived and were not read yet."""

    def iter_any(self) -> AsyncIterator[bytes]:
        """Iterate over the body in parts of any size, as they arrive."""

    def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        """Iterate over the body in parts of at most ``n`` bytes."""


class ReadableRequest(Protocol):
    """The parts of a request that are needed to read its body."""

    @property
    def headers(self) -> Headers: ...

    @property
    def content(self) -> Body: ...


@dataclass(slots=True)
class Reply:
    """An answer: its status, its body, and its headers except Content-Type and Content-Length."""

    status: int
    body: bytes
    content_type: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class StreamedReply:
    """A 200 answer whose body is sent while it is made: a live stream, or a file.

    The transport closes ``parts`` in every case. If ``parts`` raises, the answer has begun and can only be
    interrupted, so that the client sees that it is not whole.
    """

    content_type: str
    parts: AsyncGenerator[bytes, None]
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    """Bytes of the whole body, if they are known."""
    first: bytes = b""
    """Bytes to send before ``parts``."""

    @classmethod
    async def begin(
        cls, content_type: str, parts: AsyncGenerator[bytes, None], headers: dict[str, str]
    ) -> StreamedReply:
        """Make the first part now, because an error can be answered only before the answer has begun."""
        return cls(content_type, parts, headers, first=await anext(parts, b""))


AnyReply = Reply | StreamedReply


class InterruptedReply(VeenError):  # noqa: N818 - an end, not a failure of the request
    """The rest of an answer that has begun cannot be sent; the reason is in the hub's log."""
