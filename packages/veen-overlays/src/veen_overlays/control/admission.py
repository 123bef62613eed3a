"""A policy view as a hub asks it: the methods of ``veen_hub``'s AdmissionPolicy, by shape (H6).

The hub is not imported: it finds policies by entry point and checks their shape. Whoever follows the realm
replaces ``view``; a question is answered from whatever view is there, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from veen_core.cap import CapToken, Rate
from veen_core.ids import AuthRef, ClientId, Label, StreamId, UnixTime
from veen_overlays.control.policy import PolicyView


class Question(Protocol):
    """What of a message the policy looks at."""

    @property
    def label(self) -> Label: ...
    @property
    def client_id(self) -> ClientId: ...
    @property
    def auth_ref(self) -> AuthRef | None: ...
    @property
    def token(self) -> CapToken | None: ...
    @property
    def hub_ts(self) -> UnixTime: ...


class ViewPolicy:
    """Answers from a view that is at most ``max_age_sec`` old; from an older one, nothing is accepted."""

    def __init__(
        self,
        view: PolicyView,
        stream_of: Callable[[Label], StreamId | None],
        max_age_sec: int,
        rates: Mapping[str, Rate] | None = None,
    ) -> None:
        """``rates`` by class, in place of a share of a token's own."""
        self.view = view
        self._rates = rates or {}
        self._stream_of = stream_of
        self._max_age_sec = max_age_sec
        self._now = UnixTime(0)
        self._counted: tuple[tuple[int, int], int] = ((0, 0), 0)

    def not_primary(self, question: Question) -> str | None:
        """AUTH1 3.3 → E.AUTH / NOT_PRIMARY."""
        return self.view.not_primary(self._stream_of(question.label), question.hub_ts)

    def revoked(self, question: Question) -> str | None:
        """KEX1+ 4.3 → E.CAP / REVOKED."""
        token = None if question.token is None else question.token.token_hash
        return self.view.revoked(question.client_id, question.auth_ref, token, question.hub_ts)

    def pad_block(self, question: Question) -> int:
        """LCLASS0 6.2 → E.SIZE / PADDING."""
        return self.view.pad_block(question.label)

    def rate(self, question: Question) -> Rate | None:
        """LCLASS0 6.2 → E.RATE / CAP_RATE."""
        own = question.token.allow.rate if question.token is not None else None
        return self.view.rate(question.label, own, self._rates)

    def retention(self) -> Mapping[Label, int]:
        """LCLASS0 6.2, COMP0.1."""
        return self.view.retention()

    def enforces(self) -> tuple[str, ...]:
        """What the level does; and of how many streams this hub is not the only one to accept (AUTH1 3.3).

        How many, not which: a hub's status is for everybody.
        """
        many = self._multi_primary()
        shared = f"multi-primary: {many} of the realm's streams, for which every hub accepts (AUTH1)"
        return (*self.view.enforces(), shared) if many else self.view.enforces()

    def _multi_primary(self) -> int:
        """Counted when the records change, and once a minute: a status costs nothing."""
        held = self.view.authorities
        of = (0 if held is None else held.upto_seq, self._now // 60)
        if self._counted[0] != of:
            self._counted = of, len(self.view.multi_primary(self._now))
        return self._counted[1]

    def stale(self, now: UnixTime) -> str | None:
        """Why the view is too old to answer from."""
        self._now = now
        return self.view.stale(now, self._max_age_sec)

    def describe(self) -> Mapping[str, str]:
        """Level, prefixes, and the lag when it was last asked for."""
        return self.view.describe(self._now)
