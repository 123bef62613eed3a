"""Proof of work that a hub asks for: up to a bound, and so that it can be stopped (SH1+ 5.2, H13).

The difficulty stands in the status, which nobody signs: whoever wrote it may not keep this side busy for
ever.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from veen_core.pow import PowCookie, challenge, work_of
from veen_core.receipt import Receipt
from veen_core.rejection import PREFILTER_REJECT
from veen_hub.client.errors import Refused, TooMuchWork
from veen_hub.client.wire.connection import HubConnection
from veen_hub.client.wire.retry import MIN_ANSWER_SECONDS, Attempts

SLICE: Final = 1 << 14
"""Nonces tried between two looks at the clock: a fiftieth of a second."""
MOST: Final = 3
"""How often an operation asks for the difficulty anew: it rises as the hub's queue fills."""


class ProofOfWork:
    """The proof of work of one operation."""

    __slots__ = ("_again", "_connection")

    def __init__(self, connection: HubConnection) -> None:
        self._connection = connection
        self._again = 0

    async def submit(self, wires: Sequence[bytes], attempts: Attempts) -> list[Receipt | Refused]:
        """All; or, where work is asked for, the first with its cookie, made before patience ends."""
        api, headers = self._connection.api, None
        if self._connection.status.pow_difficulty:
            cookie = await self._solve(wires[0], attempts.until)
            wires, headers = wires[:1], {"VEEN-PoW": cookie.encode().hex()}
        return await attempts.trying(
            lambda: api.submit(wires, headers=headers), api.transport.url, least=MIN_ANSWER_SECONDS
        )

    async def is_wanted(self, why: Refused) -> bool:
        """Whether a refusal asks for work, or for more than was done; then it is worth another try."""
        if why.detail_enum != PREFILTER_REJECT.detail or self._again == MOST:
            return False
        self._again += 1
        await self._connection.refresh()
        return self._connection.status.pow_difficulty > 0

    async def _solve(self, wire: bytes, until: float) -> PowCookie:
        connection = self._connection
        difficulty, most = connection.status.pow_difficulty, connection.max_pow_difficulty
        if difficulty > most:
            raise TooMuchWork(
                f"the hub asks for proof of work of difficulty {difficulty} for each message, more than "
                f"{most}: if that is meant, connect with max_pow_difficulty={difficulty}"
            )
        asked, start = challenge(connection.status.pow_salt, wire), 0
        while (cookie := await connection.workers.run(_search, asked, difficulty, start)) is None:
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
