"""Ports for servers that start later, or again."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """Return a port that stays free until a server takes it: outgoing connections use none below 32768."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
