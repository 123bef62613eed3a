"""Request ids, for the answer and the log."""

from __future__ import annotations

import itertools
import secrets

_RUN = secrets.token_hex(4)
_NUMBERS = itertools.count(1)


def is_own(name: str) -> bool:
    """Return whether this process has given a request this id."""
    return name.startswith(_RUN)


def new_request_id() -> str:
    """Return the id of this run and a counter: reading the system's randomness costs 10 µs per request."""
    return f"{_RUN}{next(_NUMBERS):08x}"
