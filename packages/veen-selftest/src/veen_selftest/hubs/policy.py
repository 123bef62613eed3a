"""A policy for the selftest's own hubs: three keys that it keeps out, so that its rows can be seen (H6).

Found by the entry point ``veen_hub.policies``, like any other; the hub that loads it knows nothing of the
selftest, and the selftest nothing of the hub. What the keys are is no secret: nobody else uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from veen_core.ids import ClientId, HubId, Label, UnixTime
from veen_selftest.peers.writer import key_of
from veen_selftest.runner.hub_setup import POLICY

OUTCASTS: Final = b"veen-selftest/outcasts"
"""What the keys of the three are made from, with these names."""
ELSEWHERE, REVOKED, UNPADDED = "elsewhere", "revoked", "unpadded"
LONGER_THAN_ANY: Final = 2**31 - 1
"""No ciphertext's length is a multiple of it."""


class Asked(Protocol):
    """What is looked at of the hub's question."""

    @property
    def client_id(self) -> ClientId: ...


class Outcasts:
    """An ``AdmissionPolicy`` without a view: always current."""

    def __init__(self) -> None:
        self._elsewhere = key_of(OUTCASTS, ELSEWHERE).public
        self._revoked = key_of(OUTCASTS, REVOKED).public
        self._unpadded = key_of(OUTCASTS, UNPADDED).public

    def not_primary(self, question: Asked) -> str | None:
        return "its primary is another hub" if question.client_id == self._elsewhere else None

    def revoked(self, question: Asked) -> str | None:
        return "client_id is revoked" if question.client_id == self._revoked else None

    def pad_block(self, question: Asked) -> int:
        return LONGER_THAN_ANY if question.client_id == self._unpadded else 0

    def rate(self, question: Asked) -> None:
        """No other than the token's."""

    def retention(self) -> Mapping[Label, int]:
        return {}

    def enforces(self) -> tuple[str, ...]:
        return ("what the selftest's own policy says",)

    def stale(self, now: UnixTime) -> str | None:
        del now
        return None

    def describe(self) -> Mapping[str, str]:
        return {"level": POLICY}


def outcasts(hub: HubId, options: Mapping[str, object]) -> Outcasts:
    """As the entry point is called."""
    del hub, options
    return Outcasts()
