"""Proof of work that a hub asks for: up to a bound, and interruptible (SH1+ 5.2, H13).

The difficulty comes from the status, which is not signed. A forged status must not keep the client busy for
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

NONCES_PER_STEP: Final = 1 << 14
"""Nonces tried between two looks at the clock: about 20 ms of work."""
MAX_REFRESHES: Final = 3
"""How often one operation reads the difficulty again; it rises as the hub's queue fills."""


class ProofOfWork:
    """The proof of work of one operation."""

    __slots__ = ("_connection", "_refreshes")

    def __init__(self, connection: HubConnection) -> None:
        self._connection = connection
        self._refreshes = 0

    async def submit(self, wires: Sequence[bytes], attempts: Attempts) -> list[Receipt | Refused]:
        """Submit all messages; if the hub asks for work, submit only the first message, with its cookie.

        The cookie must be found before the deadline of ``attempts``.
        """
        connection, url = self._connection, self._connection.api.transport.url
        if not connection.status.pow_difficulty:
            return await attempts.attempt(
                lambda: connection.submits.submit(wires), url, min_seconds=MIN_ANSWER_SECONDS
            )
        cookie = await self._solve(wires[0], attempts.until)
        headers = {"VEEN-PoW": cookie.encode().hex()}
        return await attempts.attempt(
            lambda: connection.api.submit(wires[:1], headers=headers), url, min_seconds=MIN_ANSWER_SECONDS
        )

    async def is_wanted(self, refused: Refused) -> bool:
        """Return whether a refusal asks for work, or for more work, so that the caller submits again."""
        if refused.detail_enum != PREFILTER_REJECT.detail or self._refreshes == MAX_REFRESHES:
            return False
        self._refreshes += 1
        await self._connection.refresh()
        return self._connection.status.pow_difficulty > 0

    async def _solve(self, wire: bytes, until: float) -> PowCookie:
        connection = self._connection
        difficulty, max_difficulty = connection.status.pow_difficulty, connection.max_pow_difficulty
        if difficulty > max_difficulty:
            raise TooMuchWork(
                f"the hub asks for proof of work of difficulty {difficulty} for each message, more than "
                f"max_pow_difficulty = {max_difficulty}",
                action=f"connect with max_pow_difficulty={difficulty} if you accept that",
            )
        asked, start = challenge(connection.status.pow_salt, wire), 0
        while (cookie := await connection.workers.run(_search, asked, difficulty, start)) is None:
            start += NONCES_PER_STEP
            if time.monotonic() > until:
                raise TooMuchWork(
                    f"proof of work of difficulty {difficulty} was not found in time ({start} hashes)",
                    action="connect with a longer Retry.deadline, or send when the hub is less busy",
                )
        return cookie


def _search(asked: bytes, difficulty: int, start: int) -> PowCookie | None:
    for nonce in range(start, start + NONCES_PER_STEP):
        if work_of(asked, nonce) >= difficulty:
            return PowCookie(challenge=asked, nonce=nonce, difficulty=difficulty)
    return None
