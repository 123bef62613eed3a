"""A minimal follower of a label: a request that stays open, and the items that arrive (H15)."""

from __future__ import annotations

import http.client
import io
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import cbor2

from veen_core.ids import Label

from .serving import PATIENCE


class Follower:
    """Reads one live stream. ``next`` waits for an item, and is None when the hub has ended the stream."""

    def __init__(self, port: int, label: Label, start: int = 1, *, receive_buffer: int | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._connection.connect()
        if receive_buffer is not None:
            self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._connection.request("GET", f"/v1/stream/{label.hex()}?from={start}")
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.content_type = self._response.getheader("Content-Type")
        self.request_id = self._response.getheader("VEEN-Request-Id")
        self._held = b""

    def next(self) -> dict[int, Any] | None:
        while True:
            stream = io.BytesIO(self._held)
            try:
                item: dict[int, Any] = cbor2.CBORDecoder(stream).decode()
            except cbor2.CBORDecodeEOF:
                if not (more := self._response.read1(65_536)):
                    return None
                self._held += more
                continue
            self._held = self._held[stream.tell() :]
            return item

    def each(self, n: int) -> Iterator[dict[int, Any]]:
        """The next so many items, as they come; fewer if the hub ends the stream."""
        for _ in range(n):
            if (item := self.next()) is None:
                return
            yield item

    def take(self, n: int) -> list[dict[int, Any]]:
        return list(self.each(n))

    def close(self) -> None:
        self._connection.close()
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()
