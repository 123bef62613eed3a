"""The grants of a log: which are valid, what is spent, and who has revoked them (spec-3 §3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from veen_core.cap import CapToken
from veen_core.ids import StreamId, UnixTime
from veen_core.rate import Bucket
from veen_overlays.fold.monoid import int_to_item, item_to_int
from veen_overlays.operations.access import AccessGrant, cap_token
from veen_overlays.operations.refusal import Refusal


class Grant(NamedTuple):
    """A grant of the log, and what its subject has spent by it."""

    seq: int
    issuer: bytes
    hub_ts: int
    record: AccessGrant
    auth_ref: bytes
    spent: int = 0
    bucket: Bucket | None = None
    """The bucket of paid operations; None while it is full."""

    @property
    def subject(self) -> bytes:
        return self.record.subject_identity

    @property
    def streams(self) -> tuple[StreamId, ...]:
        return self.record.allowed_stream_ids

    @property
    def token(self) -> CapToken:
        """The token that is derived from the grant (spec-3 3.3)."""
        return cap_token(self.record, self.issuer, self.hub_ts)

    def refused_charge(self, amount: int, hub_ts: int) -> Refusal | None:
        """Why the grant does not cover a payment; None if it does (spec-3 2.4, P17)."""
        if self.record.maximum_amount is not None and self.spent + amount > self.record.maximum_amount:
            return Refusal.AMOUNT
        rate = self.record.rate
        if rate is not None and self.bucket is not None:
            return None if self.bucket.at(rate, UnixTime(hub_ts)).allows else Refusal.RATE
        return Refusal.RATE if rate is not None and not rate.burst else None

    def charged(self, amount: int, hub_ts: int) -> Grant:
        """The grant after a payment."""
        rate = self.record.rate
        if rate is None:
            return self._replace(spent=self.spent + amount)
        bucket = self.bucket or Bucket.full(rate, UnixTime(hub_ts))
        return self._replace(spent=self.spent + amount, bucket=bucket.at(rate, UnixTime(hub_ts)).take())

    def dump(self) -> list[Any]:
        """The grant as a CBOR item; ``load`` is the inverse."""
        bucket = None if self.bucket is None else [self.bucket.tokens, self.bucket.refilled_at]
        return [
            self.seq,
            self.issuer,
            self.hub_ts,
            self.record.encode(),
            self.auth_ref,
            int_to_item(self.spent),
            bucket,
        ]

    @classmethod
    def load(cls, item: Any) -> Grant:
        seq, issuer, hub_ts, body, auth_ref, spent, bucket = item
        held = None if bucket is None else Bucket(bucket[0], UnixTime(bucket[1]))
        return cls(seq, issuer, hub_ts, AccessGrant.decode(body), auth_ref, item_to_int(spent), held)


Revocations = Mapping[bytes, Mapping[bytes, int]]
"""By target, then by issuer: the position of the issuer's last revocation of it."""


def capability_target(auth_ref: bytes) -> bytes:
    """The key of the revocations of one capability."""
    return b"capability/" + auth_ref


def subject_target(subject: bytes) -> bytes:
    """The key of the revocations of everything that a subject was granted."""
    return b"subject/" + subject


def revoked_at(grant: Grant, revocations: Any, authorities: Collection[bytes]) -> int | None:
    """The position of the revocation that ended a grant; None if it is not revoked (spec-3 3.3, A1).

    A revocation counts if an authority or the grant's own issuer sent it, after the grant.
    """
    ends = [
        seq
        for target in (capability_target(grant.auth_ref), subject_target(grant.subject))
        for issuer, seq in (revocations.get(target) or {}).items()
        if seq > grant.seq and (issuer == grant.issuer or issuer in authorities)
    ]
    return min(ends, default=None)


def revocation_of(
    auth_ref: bytes, subject: bytes, revocations: Revocations, authorities: Collection[bytes]
) -> int | None:
    """The first position at which an authority revoked a capability that is no grant of this log."""
    targets = (capability_target(auth_ref), subject_target(subject))
    ends = [
        seq
        for target in targets
        for issuer, seq in revocations.get(target, {}).items()
        if issuer in authorities
    ]
    return min(ends, default=None)


def refused_grant(
    grant: Grant, revocations: Any, authorities: Collection[bytes], hub_ts: int
) -> Refusal | None:
    """Why a grant is not valid at ``hub_ts``; None if it is."""
    if hub_ts > grant.record.expiry_time:
        return Refusal.EXPIRED
    return Refusal.REVOKED if revoked_at(grant, revocations, authorities) is not None else None
