"""The records of a recovery: policy, request, approval, execution (spec-3 8.2, 8.3).

spec-3 leaves the policy to the domain. Here an identity states its own guardians while it has its key, in
``id.recovery.policy.v1``, a record of the identity overlay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from veen_core.hashing import Ht
from veen_core.ids import FixedBytes, OperationId, UnixTime
from veen_overlays.operations.operation import IdentityId, operation, sorted_set
from veen_overlays.schema.record import Record, RecordRule, record

APPROVE: Final = "approve"
REJECT: Final = "reject"


class PolicyGroupId(FixedBytes):
    """The id of a recovery policy (spec-3 8.2)."""

    __slots__ = ()


_THRESHOLD: Final = RecordRule(
    "threshold is 1 to the number of guardians", lambda r: 1 <= r.threshold <= len(r.guardians)
)
_NOT_ITS_OWN: Final = RecordRule(
    "no identity is its own guardian", lambda r: r.target_identity not in r.guardians
)


@record(
    "id.recovery.policy.v1",
    section="spec-3 8.3",
    rules=(sorted_set("guardians"), sorted_set("executors"), _THRESHOLD, _NOT_ITS_OWN),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPolicy(Record):
    """Name the guardians of an identity, and how many of them must approve its recovery."""

    target_identity: IdentityId
    """The identity that the guardians may replace; it signs the message."""
    guardians: tuple[IdentityId, ...]
    threshold: int
    executors: tuple[IdentityId, ...] | None = None
    """The identities that may execute a recovery (R3); absent: every writer of the stream."""
    updated_at: UnixTime

    @property
    def group_id(self) -> PolicyGroupId:
        """``Ht("veen/recovery-policy", record)``: what an approval may name as its ``policy_group_id``."""
        return PolicyGroupId(Ht("veen/recovery-policy", self.encode()))


def _changes(new: str) -> RecordRule:
    return RecordRule(f"{new} is not target_identity", lambda r: r.target_identity != getattr(r, new))


@operation("recovery.request.v1", section="spec-3 8.2", rules=(_changes("requested_new_identity"),))
@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRequest(Record):
    """Ask that a new identity replace a lost one."""

    target_identity: IdentityId
    requested_new_identity: IdentityId
    reason: str | None = None
    request_time: UnixTime | None = None
    metadata: Any | None = None


@operation("recovery.approval.v1", section="spec-3 8.2", rules=(_changes("requested_new_identity"),))
@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryApproval(Record):
    """State the decision of a guardian about a request: ``approve`` or ``reject``."""

    target_identity: IdentityId
    requested_new_identity: IdentityId
    approver_identity: IdentityId
    policy_group_id: PolicyGroupId | None = None
    decision: str
    decision_time: UnixTime | None = None
    parent_operation_id: OperationId | None = None
    metadata: Any | None = None


_HAS_REFERENCES: Final = RecordRule(
    "approval_references names at least one approval", lambda r: bool(r.approval_references)
)
_UNIQUE: Final = RecordRule(
    "approval_references names no approval twice",
    lambda r: len(set(r.approval_references)) == len(r.approval_references),
)


@operation(
    "recovery.execution.v1", section="spec-3 8.2", rules=(_changes("new_identity"), _HAS_REFERENCES, _UNIQUE)
)
@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryExecution(Record):
    """Replace an identity, by approvals that are in the log before this message (R1)."""

    target_identity: IdentityId
    new_identity: IdentityId
    applied_time: UnixTime | None = None
    approval_references: tuple[OperationId, ...]
    """The operation_ids of the approvals (spec-3 1.1)."""
    metadata: Any | None = None


RECOVERY_RECORDS: Final[tuple[type[Record], ...]] = (
    RecoveryPolicy,
    RecoveryRequest,
    RecoveryApproval,
    RecoveryExecution,
)
