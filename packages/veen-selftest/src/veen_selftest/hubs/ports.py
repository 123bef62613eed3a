"""Ports for servers that start later."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from typing import Final

LOWEST: Final = 20_000
PORTS: Final = 12_000
"""The ports below 32768: no outgoing connection uses one of them."""


def free_port() -> int:
    """Return a port that stays free until the server takes it, also if it stops and starts again."""
    while True:
        port = LOWEST + secrets.randbelow(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
