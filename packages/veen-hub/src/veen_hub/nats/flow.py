"""One live stream over NATS, with flow control: NATS itself drops what a slow subscriber leaves unread.

The first message names a flow subject. The follower publishes to it the number of the last part that it has
consumed, at least every ``ALIVE_SEC`` seconds, or ``end``. The hub sends on while at most
``MAX_UNREAD_PARTS`` parts and ``MAX_UNREAD_BYTES`` are unread.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from contextlib import aclosing
from typing import Final

from veen_hub.api.reply import StreamedReply
from veen_hub.nats.connection import Client
from veen_hub.nats.parts import (
    ALIVE_SEC,
    END,
    END_WORD,
    FLOW_SUBJECT,
    MAX_UNREAD_BYTES,
    MAX_UNREAD_PARTS,
    PART,
    PARTS,
    STATUS,
    part_size,
)
from veen_hub.pipeline.feed import LiveWriter

MAX_SILENT_SEC: Final = 3 * ALIVE_SEC
"""A follower that is silent for so long counts as gone."""


class NatsFollower:
    """A live stream to one client; a ``Peer`` of the API."""

    remote: str | None = None
    """NATS does not show the address of its clients."""
    live_writer: LiveWriter | None = None

    source = b""
    """A follower sends no messages."""

    def __init__(self, slow_client_sec: float) -> None:
        self.id = secrets.token_hex(8)
        self.lost = asyncio.Event()
        self.dropped = False
        self._slow_client_sec = slow_client_sec
        self._unread: deque[tuple[int, int]] = deque()
        """Number and size of each part that the follower has not consumed."""
        self._unread_bytes = 0
        self._progress = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._watch = self._loop.call_later(MAX_SILENT_SEC, self._check_alive)

    def is_checked_reader(self) -> bool:
        """Return True: if readers need certificates, NATS must be allowed explicitly (``NatsSettings``)."""
        return True

    def hear(self, payload: bytes) -> None:
        """Take a message from the flow subject; anything that is no number or ``end`` is ignored."""
        if payload == END_WORD:
            self._end()
        if not (payload.isdigit() and len(payload) <= 10):
            return
        self._heard = self._loop.time()
        consumed = int(payload)
        while self._unread and self._unread[0][0] <= consumed:
            self._unread_bytes -= self._unread.popleft()[1]
            self._progress.set()

    def _check_alive(self) -> None:
        silent = self._loop.time() - self._heard
        if silent >= MAX_SILENT_SEC:
            self._end()
        else:
            self._watch = self._loop.call_later(MAX_SILENT_SEC - silent, self._check_alive)

    def _end(self) -> None:
        self.lost.set()
        self._progress.set()

    def close(self) -> None:
        """Release the timer; the stream has ended."""
        self._end()
        self._watch.cancel()

    async def send(self, client: Client, to: str, flow_subject: str, reply: StreamedReply) -> None:
        """Send the stream until it ends, the follower is gone, or it reads too slowly."""
        head = {STATUS: "200", "Content-Type": reply.content_type, **reply.headers}
        async with aclosing(reply.parts) as parts:
            await client.publish(to, b"", headers=head | {PARTS: "0", FLOW_SUBJECT: flow_subject})
            number, size = 1, part_size(client.max_payload)
            async for part in parts:
                for start in range(0, len(part), size):
                    if not await self._wait_for_room():
                        return
                    number += 1
                    piece = part[start : start + size]
                    self._unread.append((number, len(piece)))
                    self._unread_bytes += len(piece)
                    await client.publish(to, piece, headers={PART: str(number)})
        if not self.lost.is_set():
            await client.publish(to, b"", headers={END: "1"})

    async def _wait_for_room(self) -> bool:
        """Wait until the follower may get another part; False if it is gone, or reads too slowly."""
        while len(self._unread) >= MAX_UNREAD_PARTS or self._unread_bytes >= MAX_UNREAD_BYTES:
            self._progress.clear()
            try:
                async with asyncio.timeout(self._slow_client_sec):
                    await self._progress.wait()
            except TimeoutError:
                self.dropped = True
                self._end()
            if self.lost.is_set():
                return False
        return not self.lost.is_set()
