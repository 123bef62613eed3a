"""Proof of work that a hub asks for: up to a bound, and so that it can be stopped (SH1+ 5.2, H13).

The difficulty stands in the status, which nobody signs: whoever wrote it may not keep this side busy for
ever.
"""

from __future__ import annotations

import time
from typing import Final

from veen_core.pow import PowCookie, challenge, work_of
from veen_hub.client.errors import TooMuchWork
from veen_hub.client.link import Link

SLICE: Final = 1 << 14
"""Nonces tried between two looks at the clock: a fiftieth of a second."""


async def solve(link: Link, wire: bytes, until: float) -> PowCookie:
    """The cookie for one message, before ``until`` (monotonic)."""
    difficulty, most = link.status.pow_difficulty, link.max_pow_difficulty
    if difficulty > most:
        raise TooMuchWork(
            f"the hub asks for proof of work of difficulty {difficulty} for each message, more than {most}: "
            f"if that is meant, connect with max_pow_difficulty={difficulty}"
        )
    asked, start = challenge(link.status.pow_salt, wire), 0
    while (cookie := await link.workers.run(_search, asked, difficulty, start)) is None:
        start += SLICE
        if time.monotonic() > until:
            raise TooMuchWork(
                f"proof of work of difficulty {difficulty} took too long ({start} hashes): "
                "connect with a longer Retry.deadline, or send when the hub is less busy"
            )
    return cookie


def _search(asked: bytes, difficulty: int, start: int) -> PowCookie | None:
    for nonce in range(start, start + SLICE):
        if work_of(asked, nonce) >= difficulty:
            return PowCookie(challenge=asked, nonce=nonce, difficulty=difficulty)
    return None
