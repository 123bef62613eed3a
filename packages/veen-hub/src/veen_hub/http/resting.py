"""Connections that were refused because the hub is overloaded: none is read from for ``REST_SEC``.

A refusal costs about 40 µs of the event loop, a quarter of what a message costs the hub. Clients that repeat
refused requests at once could spend the whole loop on refusals. A client that honours ``Retry-After``, which
is at least 1 s, does not notice the rest. What a client sends during the rest waits in its socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

REST_SEC: Final = 0.25


class Resting:
    """Calls each connection back when its rest is over; one timer serves all of them."""

    def __init__(self, rest_sec: float = REST_SEC) -> None:
        self._rest_sec = rest_sec
        self._connections: deque[tuple[float, Callable[[], None]]] = deque()

    def add(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` after the rest."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._rest_sec
        if not self._connections:
            loop.call_at(until, self._resume, loop)
        self._connections.append((until, resume))

    def _resume(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self._connections:
            until, resume = self._connections[0]
            if until > now:
                loop.call_at(max(until, now + self._rest_sec / 25), self._resume, loop)
                return
            self._connections.popleft()
            resume()
