"""The common part of both ends of an HTTP/3 connection: windows, sizes of datagrams, writes that wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.connection import QuicConnection

from veen_hub.http3.datagrams import Datagrams
from veen_hub.http3.stream_body import StreamBody
from veen_hub.http3.windows import MAX_UNSENT_BYTES, Windows

QUIC_LOGGER: Final = logging.getLogger("quic")
QUIC_LOGGER.addHandler(logging.NullHandler())
QUIC_LOGGER.propagate = False  # aioquic logs as an error what it reports as an event too


class QuicPeer(QuicConnectionProtocol):
    """One end of a connection."""

    def __init__(self, quic: QuicConnection) -> None:
        super().__init__(quic)
        self._windows = Windows(quic, self._unread)
        self._datagrams = Datagrams(quic)
        self._progress = asyncio.Event()
        """Set when a datagram has arrived, and when the connection ends."""
        self._transmitting = False

    def body_of(self, stream_id: int) -> StreamBody | None:
        """Return the body that arrives on a stream."""
        raise NotImplementedError

    def _unread(self, stream_id: int) -> int:
        body = self.body_of(stream_id)
        return body.size if body is not None else 0

    def datagram_received(self, data: bytes | str, addr: Any) -> None:
        super().datagram_received(data, addr)
        self._progress.set()

    def transmit(self) -> None:
        self._datagrams.fit()
        super().transmit()

    def transmit_soon(self) -> None:
        """Send what is pending once this turn of the event loop is over."""
        if not self._transmitting:
            self._transmitting = True
            self._loop.call_soon(self._transmit_now)

    def _transmit_now(self) -> None:
        self._transmitting = False
        self.transmit()

    async def until_sent(self, stream_id: int, max_unsent: int, waits: Callable[[], bool]) -> None:
        """Wait while a stream has more than ``max_unsent`` bytes unsent and ``waits()``, which may raise."""
        while self._windows.unsent(stream_id) > max_unsent and waits():
            self._progress.clear()
            await self._progress.wait()


def pieces(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Cut data into pieces that may wait unsent; yield each, and whether it is the last."""
    for start in range(0, len(data), MAX_UNSENT_BYTES):
        end = start + MAX_UNSENT_BYTES
        yield data[start:end], end >= len(data)
