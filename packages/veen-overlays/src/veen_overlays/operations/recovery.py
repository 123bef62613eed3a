"""Recovery: an identity whose key is lost is replaced, by its guardians, in the log (spec-3 §8).

A summary keeps the records of recoveries, which are rare. ``Recoveries`` reads them in the order of the
stream:

1. A policy counts if its target, or a key linked to it, has signed it (8.3). A later one replaces it.
2. A request opens a recovery under the policy that counts then. A policy that comes later does not change an
   open recovery, so a thief of the key cannot stop it.
3. An approval counts if a guardian has signed it, after the request, and if ``policy_group_id``, where
   given, is the policy's. A guardian's latest decision replaces the earlier ones. The successor of a replaced
   guardian decides instead of that guardian.
4. An execution is applied if all its references exist before it (R1), all of them approve this target and
   this new identity (R2), its sender may execute (R3), and the approvals that count reach the threshold.
   Otherwise it is refused, with the rule that it breaks.
5. An identity is replaced once, by an identity that has not been replaced itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple

from veen_core import cbor
from veen_core.ids import OperationId
from veen_overlays.fold.event import Event, Message
from veen_overlays.fold.monoid import FIRST, FIRST_WRITER, Monoid, StampedValue, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, Table
from veen_overlays.operations.frequent_record import Groups, bulk_fold
from veen_overlays.operations.key_links import (
    KEY_LINKS,
    KeyLinks,
    lift_link,
    signs_for,
    split_signer,
    take_link,
    with_signer,
)
from veen_overlays.operations.operation import IdentityId, operation_key
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
from veen_overlays.schema.pattern import is_free, is_text, string_content
from veen_overlays.schema.record import Record, plain_fields

RecoveryState = Mapping[str, Any]

RECOVERY_MONOID: Final[Monoid[RecoveryState]] = product(
    links=KEY_LINKS, approvals=map_of(FIRST), records=map_of(FIRST_WRITER)
)
"""Key links, the ``Approval`` and the records of other kinds, by the identity of their event."""

_BY_SCHEMA: Final = {bytes(shape.SCHEMA): shape for shape in RECOVERY_RECORDS}


class Approval(NamedTuple):
    """A decision in the log, with the key that signed its message; summaries hold it as a plain tuple."""

    seq: int
    name: bytes
    """Its operation_id."""
    signer: bytes
    target: bytes
    new: bytes
    approver: bytes
    group_id: bytes | None
    decision: str

    @property
    def operation_id(self) -> OperationId:
        return OperationId(self.name)


def lift_recovery(event: Event) -> RecoveryState:
    """The summary of a recovery record, or of a key link."""
    match event.record:
        case KeyContinuity():
            return lift_link(event)
        case RecoveryApproval(
            target_identity=target,
            requested_new_identity=new,
            approver_identity=approver,
            policy_group_id=group_id,
            decision=decision,
        ):
            group = None if group_id is None else bytes(group_id)
            held = event.seq, operation_key(event.origin), event.client_id or b""
            parties = bytes(target), bytes(new), bytes(approver)
            return {"approvals": {event.identity: (*held, *parties, group, decision)}}
    content = operation_key(event.origin) + event.record.SCHEMA + with_signer(event)
    return {"records": {event.identity: (event.stamp(0), content)}}


def _add(found: dict[bytes, Any], groups: Groups, message: Message, identity: bytes) -> bool:
    """Add an approval whose target and new identity differ; return False for any other message."""
    target, new, approver, group_id, decision, _time, _parent, metadata = groups
    if target == new or not is_text(decision) or not (metadata is None or is_free(metadata)):
        return False
    name = operation_key(message.parent_id or message.msg_id)
    word = string_content(decision).decode()
    found[identity] = message.seq, name, message.client_id or b"", target, new, approver, group_id, word
    return True


# --- the meaning of a prefix


class RecoveryEvent(NamedTuple):
    """A policy, request or execution in the log, with the key that signed its message."""

    seq: int
    name: bytes
    """Its operation_id."""
    signer: bytes
    shape: type[Record]
    body: bytes

    @property
    def operation_id(self) -> OperationId:
        return OperationId(self.name)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the record as plain values: a fifth of the time of decoding it again."""
        return plain_fields(self.body)


@dataclass(slots=True)
class OpenRecovery:
    """A requested recovery: the policy that counted at the request, and the decisions of guardians."""

    target: bytes
    new: bytes
    policy: RecoveryPolicy
    requested: RecoveryEvent
    group_id: PolicyGroupId
    decisions: dict[IdentityId, Approval] = field(default_factory=dict)
    """The latest decision of each guardian, or of its successor."""

    @property
    def approvals(self) -> list[Approval]:
        """The decisions that approve, in the order of the stream."""
        # A principal that succeeded two guardians counts once.
        found = {each.seq: each for each in self.decisions.values() if each.decision == APPROVE}
        return [found[seq] for seq in sorted(found)]

    @property
    def is_approved(self) -> bool:
        return len(self.approvals) >= self.policy.threshold


@dataclass(frozen=True, slots=True)
class LoggedExecution:
    """An execution in the log, and the rule that it breaks, if it is refused."""

    step: RecoveryEvent
    target: bytes
    new: bytes
    refused: str | None


@dataclass(slots=True)
class Recoveries:
    """The recoveries of a prefix, read record by record in the order of the stream."""

    links: KeyLinks
    policies: dict[bytes, RecoveryPolicy] = field(default_factory=dict)
    open: dict[tuple[bytes, bytes], OpenRecovery] = field(default_factory=dict)
    """Requested recoveries that were not executed, by target and new identity."""
    executions: list[LoggedExecution] = field(default_factory=list)
    replaced: dict[bytes, bytes] = field(default_factory=dict)
    """The successor of every replaced identity."""
    _approvals: dict[bytes, Approval] = field(default_factory=dict)

    def current(self, identity: bytes) -> IdentityId:
        """The identity that has replaced this one; this identity itself if it was never replaced."""
        while (successor := self.replaced.get(identity)) is not None:  # a replaced identity replaces no other
            identity = successor
        return IdentityId(identity)

    def read(self, step: RecoveryEvent | Approval) -> None:
        """Apply the next record."""
        if isinstance(step, Approval):
            self._approve(step)
        else:
            _APPLY[step.shape](self, step, step.fields)

    def _signed(self, step: RecoveryEvent | Approval, identity: bytes) -> bool:
        return signs_for(self.links, identity, step.signer, step.seq)

    def _set_policy(self, step: RecoveryEvent, policy: Mapping[str, Any]) -> None:
        target = policy["target_identity"]
        if self._signed(step, target) and target not in self.replaced:
            self.policies[target] = RecoveryPolicy.decode(step.body)

    def _request(self, step: RecoveryEvent, request: Mapping[str, Any]) -> None:
        pair = request["target_identity"], request["requested_new_identity"]
        policy = self.policies.get(pair[0])
        if policy is not None and pair not in self.open and not self.replaced.keys() & set(pair):
            self.open[pair] = OpenRecovery(*pair, policy, step, policy.group_id)

    def _execute(self, step: RecoveryEvent, execution: Mapping[str, Any]) -> None:
        target, new = execution["target_identity"], execution["new_identity"]
        why = self.refusal(step, execution)
        if why is None:
            self.replaced[target] = new
            self.open = {pair: each for pair, each in self.open.items() if target not in pair}
        self.executions.append(LoggedExecution(step, target, new, why))

    def _approve(self, approval: Approval) -> None:
        self._approvals.setdefault(approval.name, approval)
        found = self.open.get((approval.target, approval.new))
        if found is None or approval.group_id not in (None, found.group_id):
            return
        if self._signed(approval, approval.approver):
            for guardian in found.policy.guardians:
                if self.current(guardian) == approval.approver:
                    found.decisions[guardian] = approval

    def refusal(self, step: RecoveryEvent, execution: Mapping[str, Any]) -> str | None:
        """The rule that an execution breaks, or None."""
        target, new = execution["target_identity"], execution["new_identity"]
        references = execution["approval_references"]
        for reference in references:
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
        counted = sum(each.name in references for each in found.approvals)
        if counted < found.policy.threshold:
            return f"8.3: {counted} of {found.policy.threshold} approvals by guardians count"
        return None


_APPLY: Final[Mapping[type[Record], Callable[[Recoveries, RecoveryEvent, Mapping[str, Any]], None]]] = {
    RecoveryPolicy: Recoveries._set_policy,
    RecoveryRequest: Recoveries._request,
    RecoveryExecution: Recoveries._execute,
}


def _mismatch(approval: Approval, target: bytes, new: bytes) -> str | None:
    if approval.target != target:
        return "names another target_identity"
    if approval.new != new:
        return "names another requested_new_identity"
    return None if approval.decision == APPROVE else "does not approve"


def recoveries(state: RecoveryState) -> Recoveries:
    """The recoveries of a prefix."""
    found = Recoveries(state.get("links", {}))
    steps: list[RecoveryEvent | Approval] = [
        Approval._make(held) for held in state.get("approvals", {}).values() if held is not None
    ]
    records: Iterable[StampedValue | None] = state.get("records", {}).values()
    for (_, seq, _), content in filter(None, records):
        signer, body = split_signer(content[64:])
        steps.append(RecoveryEvent(seq, content[:32], signer, _BY_SCHEMA[content[32:64]], body))
    for step in sorted(steps, key=itemgetter(0)):
        found.read(step)
    return found


# --- the overlay


def replaced_view(found: Recoveries) -> dict[bytes, bytes]:
    """The current successor of every replaced identity."""
    return {bytes(target): bytes(found.current(target)) for target in sorted(found.replaced)}


def _open_view(found: OpenRecovery) -> dict[str, Any]:
    return {
        "target_identity": found.target,
        "requested_new_identity": found.new,
        "seq": found.requested.seq,
        "threshold": found.policy.threshold,
        "approvals": [each.name for each in found.approvals],
    }


def _execution_view(each: LoggedExecution) -> dict[str, Any]:
    return {
        "target_identity": each.target,
        "new_identity": each.new,
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
        {RecoveryApproval: _add, KeyContinuity: take_link},
        part="approvals",
        others=(RecoveryPolicy, RecoveryRequest, RecoveryExecution),
        lift=lift_recovery,
        monoid=RECOVERY_MONOID,
    ),
    reads_signer=True,
    table=Table(
        {"target_identity": ColumnType.BYTES, "successor": ColumnType.BYTES},
        lambda view: view["replaced"].items(),
    ),
)
