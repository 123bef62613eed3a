"""Access grants and revocations, and the cap token that is derived from a grant (spec-3 §3).

A grant gives its subject a capability without a signature of its own: the issuer has signed the MSG that
carries the grant. Everyone who reads the grant derives the same token from it, with an empty ``sig_chain``.
No hub accepts such a token at ``/tooling/authorize``, where only signed tokens count (core §6), so it has
force only where grants are folded.
"""

from __future__ import annotations

from dataclasses import dataclass

from veen_core.cap import Allow, CapToken, Rate
from veen_core.errors import CapError
from veen_core.hashing import Ht
from veen_core.ids import AuthRef, ClientId, OperationId, StreamId, UnixTime, VerifyKey
from veen_core.limits import DEFAULT_LIMITS
from veen_core.utc import format_utc
from veen_overlays.identifiers import RealmId
from veen_overlays.operations.operation import IdentityId, operation, sorted_set
from veen_overlays.schema.record import Record, RecordRule

_NAMES_A_STREAM = RecordRule(
    "allowed_stream_ids names at least one stream (core §6)", lambda grant: bool(grant.allowed_stream_ids)
)
_BURST_HAS_RATE = RecordRule(
    "maximum_burst is present only with maximum_rate_per_second",
    lambda grant: grant.maximum_burst is None or grant.maximum_rate_per_second is not None,
)
_RATE_IS_BOUNDED = RecordRule(
    f"the rate is at most {DEFAULT_LIMITS.max_cap_rate_per_sec}/s with a burst of at most "
    f"{DEFAULT_LIMITS.max_cap_rate_burst} (core §14.1)",
    lambda grant: (
        (grant.maximum_rate_per_second or 0) <= DEFAULT_LIMITS.max_cap_rate_per_sec
        and (grant.maximum_burst or 0) <= DEFAULT_LIMITS.max_cap_rate_burst
    ),
)


@operation(
    "access.grant.v1",
    section="spec-3 3.2",
    rules=(_NAMES_A_STREAM, sorted_set("allowed_stream_ids"), _BURST_HAS_RATE, _RATE_IS_BOUNDED),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class AccessGrant(Record):
    """Allow a subject to write to streams, and to spend up to an amount, until ``expiry_time``."""

    subject_identity: IdentityId
    subject_label: str | None = None
    allowed_stream_ids: tuple[StreamId, ...]
    expiry_time: UnixTime
    """The last second at which the grant is valid, in hub time."""
    maximum_rate_per_second: int | None = None
    maximum_burst: int | None = None
    """Absent: the same as ``maximum_rate_per_second``."""
    maximum_amount: int | None = None
    """The total that the subject may spend by paid operations (P17)."""
    currency_code: str | None = None
    """The unit of ``maximum_amount``; absent: any unit."""
    reason: str | None = None
    parent_operation_id: OperationId | None = None

    @property
    def rate(self) -> Rate | None:
        """The rate of the grant; None if it has no bound."""
        if self.maximum_rate_per_second is None:
            return None
        burst = self.maximum_rate_per_second if self.maximum_burst is None else self.maximum_burst
        return Rate(per_sec=self.maximum_rate_per_second, burst=burst)


@operation("access.revoke.v1", section="spec-3 3.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRevoke(Record):
    """Revoke one capability of a subject, or all that it was granted before."""

    subject_identity: IdentityId
    target_capability_reference: AuthRef | None = None
    """The auth_ref of the revoked capability; absent: every capability of the subject."""
    reason: str | None = None
    parent_operation_id: OperationId | None = None


def cap_token(grant: AccessGrant, issuer: bytes, hub_ts: int) -> CapToken:
    """Derive the token of a grant by this issuer, whose receipt has the time ``hub_ts`` (spec-3 3.3).

    Its ttl counts from ``hub_ts``, so that it expires at ``expiry_time``. Raises ``CapError`` if the grant
    has expired by then.
    """
    if grant.expiry_time < hub_ts:
        raise CapError(
            f"access.grant.v1 (spec-3 3.3): the grant expired at {format_utc(grant.expiry_time)}, before its "
            f"receipt at {format_utc(hub_ts)}"
        )
    return CapToken(
        issuer_pk=VerifyKey(issuer),
        subject_pk=ClientId(grant.subject_identity),
        allow=Allow(stream_ids=grant.allowed_stream_ids, ttl=grant.expiry_time - hub_ts, rate=grant.rate),
        sig_chain=(),
    )


def access_stream(realm: RealmId) -> StreamId:
    """The stream of a realm's grants and revocations, which hubs of level access follow."""
    return StreamId(Ht("veen/access", realm))
