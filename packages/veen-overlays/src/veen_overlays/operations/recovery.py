"""Recovery: an identity whose key is lost is replaced, by its guardians, in the log (spec-3 §8).

A summary keeps the records of recoveries, which are rare. ``Recoveries`` reads them in the order of the
stream:

1. A policy counts if its target, or a key linked to it, has signed it (8.3). A later one replaces it.
2. A request opens a recovery under the policy that counts then. A policy that comes later does not change an
   open recovery, so a thief of the key cannot stop it.
3. An approval counts if a guardian has signed it, after the request, and if ``policy_group_id``, where
   given, is the policy's. A guardian's latest decision replaces the earlier ones. The successor of a replaced
   guardian decides in its place.
4. An execution is applied if all its references exist before it (R1), all of them approve this target and
   this new identity (R2), its sender may execute (R3), and the approvals that count reach the threshold.
   Otherwise it is refused, with the rule that it breaks.
5. An identity is replaced once, by an identity that has not been replaced itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from veen_core import cbor
from veen_overlays.fold.event import Event, Message
from veen_overlays.fold.monoid import FIRST_WRITER, Monoid, StampedValue, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, Table
from veen_overlays.operations.frequent_record import Groups, bulk_fold
from veen_overlays.operations.key_links import (
    KEY_LINKS,
    KeyLinks,
    lift_link,
    signs_for,
    split_signer,
    with_signer,
)
from veen_overlays.operations.operation import IdentityId, OperationId, operation_id, operation_of
from veen_overlays.operations.recovery_records import (
    APPROVE,
    RECOVERY_RECORDS,
    PolicyGroupId,
    RecoveryApproval,
    RecoveryExecution,
    RecoveryPolicy,
    RecoveryRequest,
)
from veen_overlays.recorder.records import KeyContinuity
from veen_overlays.schema.pattern import is_free, is_text
from veen_overlays.schema.record import Record, plain_fields

RecoveryState = Mapping[str, Any]

RECOVERY_MONOID: Final[Monoid[RecoveryState]] = product(links=KEY_LINKS, records=map_of(FIRST_WRITER))
"""Key links, and every record with its operation_id and signer, by the identity of its event."""

_BY_SCHEMA: Final = {bytes(shape.SCHEMA): shape for shape in RECOVERY_RECORDS}


def lift_recovery(event: Event) -> RecoveryState:
    """The summary of a recovery record, or of a key link."""
    if isinstance(event.record, KeyContinuity):
        return lift_link(event)
    held = operation_of(event) + event.record.SCHEMA + with_signer(event)
    return {"records": {event.identity: (event.stamp(0), held)}}


def _add(found: dict[bytes, Any], groups: Groups, message: Message, identity: bytes) -> bool:
    """Take an approval of another identity."""
    target, new, _approver, _group, decision, _time, _parent, metadata = groups
    if target == new or not is_text(decision) or not (metadata is None or is_free(metadata)):
        return False
    signer = message.client_id or b""
    operation = operation_id(message.origin)
    held = operation + RecoveryApproval.SCHEMA + bytes([len(signer)]) + signer + message.body
    found[identity] = (0, message.seq, identity), held
    return True


# --- the meaning of a prefix


class Step(NamedTuple):
    """A recovery record in the log, with the key that signed its message."""

    seq: int
    operation_id: OperationId
    signer: bytes
    shape: type[Record]
    body: bytes

    @property
    def record(self) -> Record:
        """The record."""
        return self.shape.decode(self.body)


@dataclass(slots=True)
class OpenRecovery:
    """A requested recovery: the policy that counted at the request, and the decisions of guardians."""

    target: IdentityId
    new: IdentityId
    policy: RecoveryPolicy
    requested: Step
    group_id: PolicyGroupId
    decisions: dict[IdentityId, Step] = field(default_factory=dict)
    """The latest decision of each guardian, or of its successor."""

    @property
    def approvals(self) -> list[Step]:
        """The decisions that approve, in the order of the stream."""
        # The successor of two guardians has one voice.
        found = {each.seq: each for each in self.decisions.values() if _decision(each) == APPROVE}
        return [found[seq] for seq in sorted(found)]

    @property
    def is_approved(self) -> bool:
        return len(self.approvals) >= self.policy.threshold


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution in the log, and the rule that it breaks, if it is refused."""

    step: Step
    record: RecoveryExecution
    refused: str | None


def _decision(step: Step) -> str:
    assert isinstance(step.record, RecoveryApproval)
    return step.record.decision


@dataclass(slots=True)
class Recoveries:
    """The recoveries of a prefix, read record by record in the order of the stream."""

    links: KeyLinks
    policies: dict[IdentityId, RecoveryPolicy] = field(default_factory=dict)
    open: dict[tuple[IdentityId, IdentityId], OpenRecovery] = field(default_factory=dict)
    """Requested recoveries that were not executed, by target and new identity."""
    executions: list[Execution] = field(default_factory=list)
    replaced: dict[IdentityId, IdentityId] = field(default_factory=dict)
    """The successor of every replaced identity."""
    _approvals: dict[OperationId, Step] = field(default_factory=dict)

    def current(self, identity: bytes) -> IdentityId:
        """The identity that has taken the place of this one; itself if it was never replaced."""
        found = IdentityId(identity)
        while (successor := self.replaced.get(found)) is not None:  # a replaced identity replaces nobody
            found = successor
        return found

    def read(self, step: Step) -> None:
        """Apply the next record."""
        if step.shape is RecoveryApproval:  # without decoding: approvals are the most frequent records
            self._approvals.setdefault(step.operation_id, step)
            self._approve(step, plain_fields(step.body))
            return
        match step.record:
            case RecoveryPolicy() as policy:
                if self._signed(step, policy.target_identity) and policy.target_identity not in self.replaced:
                    self.policies[policy.target_identity] = policy
            case RecoveryRequest() as request:
                self._request(step, request)
            case RecoveryExecution() as execution:
                why = self.refusal(step, execution)
                if why is None:
                    target = execution.target_identity
                    self.replaced[target] = execution.new_identity
                    self.open = {pair: each for pair, each in self.open.items() if target not in pair}
                self.executions.append(Execution(step, execution, why))

    def _signed(self, step: Step, identity: bytes) -> bool:
        return signs_for(self.links, identity, step.signer, step.seq)

    def _request(self, step: Step, request: RecoveryRequest) -> None:
        pair = request.target_identity, request.requested_new_identity
        policy = self.policies.get(pair[0])
        if policy is not None and pair not in self.open and not self.replaced.keys() & set(pair):
            self.open[pair] = OpenRecovery(*pair, policy, step, policy.group_id)

    def _approve(self, step: Step, approval: Mapping[str, Any]) -> None:
        found = self.open.get((approval["target_identity"], approval["requested_new_identity"]))
        if found is None or approval.get("policy_group_id") not in (None, found.group_id):
            return
        approver = approval["approver_identity"]
        if self._signed(step, approver):
            for guardian in found.policy.guardians:
                if self.current(guardian) == approver:
                    found.decisions[guardian] = step

    def refusal(self, step: Step, execution: RecoveryExecution) -> str | None:
        """The rule that an execution breaks, or None."""
        target, new = execution.target_identity, execution.new_identity
        for reference in execution.approval_references:
            if (approval := self._approvals.get(reference)) is None:
                return f"R1: no approval {reference.hex()} before this message"
            if (why := _mismatch(approval, target, new)) is not None:
                return f"R2: approval {reference.hex()} {why}"
        for identity in (target, new):
            if identity in self.replaced:
                return f"8.3: {identity.hex()} has been replaced already"
        found = self.open.get((target, new))
        if found is None:
            return "8.3: no request of an identity with a recovery policy before this message"
        executors = found.policy.executors
        if executors is not None and not any(self._signed(step, self.current(each)) for each in executors):
            return "R3: its sender is none of the policy's executors"
        counted = sum(each.operation_id in execution.approval_references for each in found.approvals)
        if counted < found.policy.threshold:
            return f"8.3: {counted} of {found.policy.threshold} approvals by guardians count"
        return None


def _mismatch(step: Step, target: IdentityId, new: IdentityId) -> str | None:
    approval = step.record
    assert isinstance(approval, RecoveryApproval)
    if approval.target_identity != target:
        return "names another target_identity"
    if approval.requested_new_identity != new:
        return "names another requested_new_identity"
    return None if approval.decision == APPROVE else "does not approve"


def recoveries(state: RecoveryState) -> Recoveries:
    """The recoveries of a prefix."""
    found = Recoveries(state.get("links", {}))
    held: Mapping[bytes, StampedValue | None] = state.get("records", {})
    in_order = sorted(filter(None, held.values()), key=lambda each: each[0][1])
    for (_, seq, _), content in in_order:
        signer, body = split_signer(content[64:])
        found.read(Step(seq, OperationId(content[:32]), signer, _BY_SCHEMA[content[32:64]], body))
    return found


# --- the overlay


def replaced_view(found: Recoveries) -> dict[bytes, bytes]:
    """The current successor of every replaced identity."""
    return {bytes(target): bytes(found.current(target)) for target in sorted(found.replaced)}


def _open_view(found: OpenRecovery) -> dict[str, Any]:
    return {
        "target_identity": bytes(found.target),
        "requested_new_identity": bytes(found.new),
        "seq": found.requested.seq,
        "threshold": found.policy.threshold,
        "approvals": [bytes(each.operation_id) for each in found.approvals],
    }


def _execution_view(each: Execution) -> dict[str, Any]:
    return {
        "target_identity": bytes(each.record.target_identity),
        "new_identity": bytes(each.record.new_identity),
        "seq": each.step.seq,
        **({} if each.refused is None else {"refused": each.refused}),
    }


def _view(state: RecoveryState) -> dict[str, Any]:
    found = recoveries(state)
    policies: list[Any] = [cbor.decode(found.policies[each].encode()) for each in sorted(found.policies)]
    return {
        "policies": policies,
        "open": [_open_view(found.open[pair]) for pair in sorted(found.open)],
        "executions": [_execution_view(each) for each in found.executions],
        "replaced": replaced_view(found),
    }


RECOVERIES: Final[Overlay[RecoveryState]] = Overlay(
    name="operation.recoveries",
    title="Recoveries: guardians, requests, approvals, executions, replaced identities (spec-3 §8).",
    schemas=(*RECOVERY_RECORDS, KeyContinuity),
    monoid=RECOVERY_MONOID,
    lift=lift_recovery,
    view=_view,
    bulk=bulk_fold(
        {RecoveryApproval: _add},
        part="records",
        others=(RecoveryPolicy, RecoveryRequest, RecoveryExecution, KeyContinuity),
        lift=lift_recovery,
        monoid=RECOVERY_MONOID,
    ),
    reads_signer=True,
    table=Table(
        {"target_identity": ColumnType.BYTES, "successor": ColumnType.BYTES},
        lambda view: view["replaced"].items(),
    ),
)
