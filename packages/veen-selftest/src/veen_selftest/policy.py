"""A policy for the selftest's own hubs: two keys that it does not let in, so that its rows can be seen (H6).

Found by the entry point ``veen_hub.policies``, like any other; the hub that loads it knows nothing of the
selftest, and the selftest nothing of the hub. What the keys are is no secret: nobody else uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from veen_core.ids import ClientId, HubId, UnixTime
from veen_selftest.setup import POLICY
from veen_selftest.writer import key_of

OUTCASTS: Final = b"veen-selftest/outcasts"
"""What the keys of the two are made from, with these names."""
ELSEWHERE, REVOKED = "elsewhere", "revoked"


class Asked(Protocol):
    """What is looked at of the hub's question."""

    @property
    def client_id(self) -> ClientId: ...


class Outcasts:
    """An ``AdmissionPolicy`` without a view: always current."""

    def __init__(self) -> None:
        self._elsewhere = key_of(OUTCASTS, ELSEWHERE).public
        self._revoked = key_of(OUTCASTS, REVOKED).public

    def not_primary(self, question: Asked) -> str | None:
        return "its primary is another hub" if question.client_id == self._elsewhere else None

    def revoked(self, question: Asked) -> str | None:
        return "client_id is revoked" if question.client_id == self._revoked else None

    def stale(self, now: UnixTime) -> str | None:
        del now
        return None

    def describe(self) -> Mapping[str, str]:
        return {"level": POLICY}


def outcasts(hub: HubId, options: Mapping[str, object]) -> Outcasts:
    """As the entry point is called."""
    del hub, options
    return Outcasts()
