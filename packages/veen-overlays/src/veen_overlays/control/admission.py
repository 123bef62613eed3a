"""The admission policy of a hub, answered from a policy view (RESOLUTIONS H6).

``ViewPolicy`` has the shape of veen-hub's ``AdmissionPolicy``. The hub is not imported: it finds policies by
entry point and checks their shape. The follower of the realm replaces ``view``; every method answers from
the current view, without IO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from veen_core.cap import CapToken, Rate
from veen_core.ids import AuthRef, ClientId, Label, StreamId, UnixTime
from veen_overlays.control.policy import PolicyView


class Question(Protocol):
    """The properties of a submitted message that a policy needs."""

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
    """Admission policy that answers from ``view``; ``stale`` reports a view that is too old."""

    def __init__(
        self,
        view: PolicyView,
        stream_of: Callable[[Label], StreamId | None],
        max_age_sec: int,
        class_rates: Mapping[str, Rate] | None = None,
    ) -> None:
        """``class_rates`` replaces, for a label class, the share of the token's rate."""
        self.view = view
        self._class_rates = class_rates or {}
        self._stream_of = stream_of
        self._max_age_sec = max_age_sec
        self._now = UnixTime(0)
        self._multi_primary_cache: tuple[tuple[int, int], int] = ((0, 0), 0)

    def not_primary(self, question: Question) -> str | None:
        """Why this hub is not the stream's primary, or None: E.AUTH / NOT_PRIMARY (AUTH1 3.3)."""
        return self.view.not_primary(self._stream_of(question.label), question.hub_ts)

    def revoked(self, question: Question) -> str | None:
        """Which key or token is revoked, or None: E.CAP / REVOKED (KEX1+ 4.3, spec-3 3.3)."""
        token = None if question.token is None else question.token.token_hash
        return self.view.revoked(
            question.client_id, question.auth_ref, token, question.hub_ts
        ) or self.view.access_revoked(question.auth_ref, question.token)

    def granted(self, auth_ref: AuthRef, hub_ts: UnixTime) -> tuple[CapToken, UnixTime] | None:
        """The token of a grant, and the time of the grant's receipt (spec-3 3.3).

        A revoked or expired grant has its token too: the rows of the admission table say what is wrong.
        """
        grant = self.view.grant(auth_ref, hub_ts)
        return None if grant is None else (grant.token, UnixTime(grant.hub_ts))

    def pad_block(self, question: Question) -> int:
        """Bytes that the ciphertext's length must be a multiple of: E.SIZE / PADDING (LCLASS0 6.2)."""
        return self.view.pad_block(question.label)

    def rate(self, question: Question) -> Rate | None:
        """The rate of the label's class: E.RATE / CAP_RATE (LCLASS0 6.2)."""
        token_rate = question.token.allow.rate if question.token is not None else None
        return self.view.rate(question.label, token_rate, self._class_rates)

    def retention(self) -> Mapping[Label, int]:
        """Seconds for which the payloads of a label are kept, by label (LCLASS0 6.2, COMP0.1)."""
        return self.view.retention()

    def enforces(self) -> tuple[str, ...]:
        """The rules that the level enforces, and the number of multi-primary streams (AUTH1 3.3).

        The streams are counted, not named: anyone can read a hub's status.
        """
        count = self._multi_primary_count()
        shared = f"multi-primary streams, for which every hub accepts messages: {count} (AUTH1)"
        return (*self.view.enforces(), shared) if count else self.view.enforces()

    def _multi_primary_count(self) -> int:
        """The number of multi-primary streams, cached for a minute: a status request must stay cheap."""
        authorities = self.view.authorities
        cache_key = (0 if authorities is None else authorities.upto_seq, self._now // 60)
        if self._multi_primary_cache[0] != cache_key:
            self._multi_primary_cache = cache_key, len(self.view.multi_primary(self._now))
        return self._multi_primary_cache[1]

    def stale(self, now: UnixTime) -> str | None:
        """Why the view is too old, so that the hub must accept nothing; None if it is fresh."""
        self._now = now
        return self.view.stale(now, self._max_age_sec)

    def describe(self) -> Mapping[str, str]:
        """Level, folded prefixes, and the view's age at the last call of ``stale``."""
        return self.view.describe(self._now)
