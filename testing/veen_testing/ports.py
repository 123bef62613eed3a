"""Ports for servers that start later, or again."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """Return a port for a hub; the port after it, for the hub's probes, is free too.

    Both stay free until the hub takes them: outgoing connections use none below 32768.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as api, socket.socket() as probes, contextlib.suppress(OSError):
            api.bind(("127.0.0.1", port))
            probes.bind(("127.0.0.1", port + 1))
            return port
