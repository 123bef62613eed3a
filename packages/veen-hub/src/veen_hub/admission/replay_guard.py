"""What a running hub remembers of requests, so that none counts twice: bounded, and gone with the run."""

from __future__ import annotations

from typing import Final

from veen_core.ids import UnixTime
from veen_core.status import MAX_ADMIN_AGE

MAX_REPORTS: Final = 1_024


class Reports:
    """Evidence of equivocation: each piece is told once, up to a bound."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def is_news(self, evidence: bytes) -> bool:
        if evidence in self._seen:
            return False
        if len(self._seen) >= MAX_REPORTS:
            self._seen.clear()
        self._seen.add(evidence)
        return True


class Orders:
    """Signed tooling requests: each is carried out once, remembered for as long as it counts (H19)."""

    def __init__(self) -> None:
        self._carried_out: dict[bytes, UnixTime] = {}

    def is_replay(self, digest: bytes, signed_at: UnixTime, now: UnixTime) -> bool:
        fresh = now - 2 * MAX_ADMIN_AGE
        self._carried_out = {d: at for d, at in self._carried_out.items() if at >= fresh}
        seen = digest in self._carried_out
        self._carried_out[digest] = signed_at
        return seen
