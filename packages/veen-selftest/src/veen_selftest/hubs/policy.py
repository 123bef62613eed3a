"""A policy for the selftest's own hubs: it refuses three keys, each by a different admission row (H6).

The hub loads it by the entry point ``veen_hub.policies``. The keys are not secret: only the selftest uses
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from veen_core.ids import ClientId, HubId, Label, UnixTime
from veen_selftest.peers.writer import key_of
from veen_selftest.runner.hub_setup import POLICY

REFUSED_KEYS_SEED: Final = b"veen-selftest/outcasts"
"""Seed of the three refused keys, whose names follow."""
ELSEWHERE, REVOKED, UNPADDED = "elsewhere", "revoked", "unpadded"
IMPOSSIBLE_PAD_BLOCK: Final = 2**31 - 1
"""No ciphertext has a length that is a multiple of this."""


class PolicyQuestion(Protocol):
    """The part of the hub's question that this policy reads."""

    @property
    def client_id(self) -> ClientId: ...


class RefusingPolicy:
    """An ``AdmissionPolicy`` that depends on no log and is therefore never stale."""

    def __init__(self) -> None:
        self._elsewhere = key_of(REFUSED_KEYS_SEED, ELSEWHERE).public
        self._revoked = key_of(REFUSED_KEYS_SEED, REVOKED).public
        self._unpadded = key_of(REFUSED_KEYS_SEED, UNPADDED).public

    def not_primary(self, question: PolicyQuestion) -> str | None:
        return "its primary is another hub" if question.client_id == self._elsewhere else None

    def revoked(self, question: PolicyQuestion) -> str | None:
        return "client_id is revoked" if question.client_id == self._revoked else None

    def pad_block(self, question: PolicyQuestion) -> int:
        return IMPOSSIBLE_PAD_BLOCK if question.client_id == self._unpadded else 0

    def rate(self, question: PolicyQuestion) -> None:
        """Return None: there is no rate limit in addition to the token's."""

    def retention(self) -> Mapping[Label, int]:
        return {}

    def enforces(self) -> tuple[str, ...]:
        return ("the selftest's own policy",)

    def stale(self, now: UnixTime) -> str | None:
        del now
        return None

    def describe(self) -> Mapping[str, str]:
        return {"level": POLICY}


def refusing_policy(hub: HubId, options: Mapping[str, object]) -> RefusingPolicy:
    """Make the policy; the hub calls this entry point."""
    del hub, options
    return RefusingPolicy()
