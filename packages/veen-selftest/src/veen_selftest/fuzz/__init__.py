"""The suite ``fuzz``: a malformed request gets an error envelope, and the next user is served (TS0.3)."""

from __future__ import annotations

from typing import Final

from veen_selftest.fuzz import requests, sockets

CHECKS: Final = (*requests.CHECKS, *sockets.CHECKS)
