"""A body that arrived whole, from transports of single messages."""

from __future__ import annotations

from collections.abc import AsyncIterator


class WholeBody:
    """Bytes as a ``Body``."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def is_eof(self) -> bool:
        return True

    def read_nowait(self) -> bytes:
        data, self._data = self._data, b""
        return data

    async def iter_any(self) -> AsyncIterator[bytes]:
        if data := self.read_nowait():
            yield data

    async def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        data = self.read_nowait()
        for start in range(0, len(data), n):
            yield data[start : start + n]
