"""Recoveries: guardians replace an identity whose key is lost (spec-3 §8)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from signed_logs import IDS, STREAM_KEYS, Signed, link, operation_at, signed_log, state_after
from strategies import lifted

from veen_core.errors import EncodeError
from veen_core.hashing import H
from veen_core.ids import OperationId, UnixTime
from veen_overlays.fold.event import Message
from veen_overlays.identifiers import (
    OrgId,
    PrincipalPk,
    ctx_id,
    device_id,
    org_stream,
    principal_stream,
    realm_id,
    wallet_id,
)
from veen_overlays.identity import IDENTITY, IdentityDirectory, on_stream
from veen_overlays.identity.records import Device, Role
from veen_overlays.operations.operation import IdentityId
from veen_overlays.operations.recovery import RECOVERIES, recoveries
from veen_overlays.operations.recovery_records import (
    RecoveryApproval,
    RecoveryExecution,
    RecoveryPolicy,
    RecoveryRequest,
)
from veen_overlays.recorder.records import KeyContinuity
from veen_overlays.wallet.owners import OWNERS
from veen_overlays.wallet.records import Open

LOST, NEW, ANN, BOB, CAY, EVE = IDS


def policy(
    *guardians: IdentityId,
    threshold: int = 2,
    target: IdentityId = LOST,
    executors: Any = None,
    by: Any = None,
) -> Signed:
    record = RecoveryPolicy(
        target_identity=target,
        guardians=tuple(sorted(guardians)),
        threshold=threshold,
        executors=executors,
        updated_at=UnixTime(0),
    )
    return record, by or bytes(target)


def request(target: IdentityId = LOST, new: IdentityId = NEW) -> Signed:
    return RecoveryRequest(target_identity=target, requested_new_identity=new), bytes(new)


def approval(
    by: IdentityId,
    decision: str = "approve",
    *,
    target: IdentityId = LOST,
    new: IdentityId = NEW,
    group: Any = None,
    signer: Any = None,
) -> Signed:
    record = RecoveryApproval(
        target_identity=target,
        requested_new_identity=new,
        approver_identity=by,
        policy_group_id=group,
        decision=decision,
    )
    return record, signer or bytes(by)


def execution(
    *references: int, target: IdentityId = LOST, new: IdentityId = NEW, by: IdentityId = NEW
) -> Signed:
    named = tuple(operation_at(seq) for seq in references)
    record = RecoveryExecution(target_identity=target, new_identity=new, approval_references=named)
    return record, bytes(by)


def refusal(*entries: Signed) -> str | None:
    """The rule that the last execution breaks; None if it was applied."""
    return recoveries(state_after(RECOVERIES, *entries)).executions[-1].refused


START = policy(ANN, BOB, CAY), request()
APPROVED = *START, approval(ANN), approval(BOB)


def test_enough_guardians_replace_an_identity() -> None:
    found = recoveries(state_after(RECOVERIES, *APPROVED, execution(3, 4)))
    assert found.executions[-1].refused is None
    assert found.current(LOST) == NEW
    assert found.current(ANN) == ANN
    assert not found.open


def test_r1_an_execution_names_approvals_that_are_in_the_log_before_it() -> None:
    assert str(refusal(*APPROVED, execution(3, 99))).startswith("R1: no approval ")
    late = *START, approval(ANN), execution(3, 5), approval(BOB)
    assert str(refusal(*late)).startswith("R1: ")
    assert str(refusal(*APPROVED, execution(3, 2))).startswith("R1: "), "a request is no approval"
    assert refusal(*late, execution(3, 5)) is None


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (approval(CAY, "reject"), "does not approve"),
        (approval(CAY, target=EVE), "another target_identity"),
        (approval(CAY, new=EVE), "another requested_new_identity"),
    ],
    ids=["decision", "target", "new identity"],
)
def test_r2_one_wrong_approval_refuses_the_execution(wrong: Signed, why: str) -> None:
    found = refusal(*APPROVED, wrong, execution(3, 4, 5))
    assert found is not None
    assert found.startswith("R2: ")
    assert why in found


def test_r3_only_the_policys_executors_may_execute() -> None:
    start = policy(ANN, BOB, CAY, executors=(EVE,)), request(), approval(ANN), approval(BOB)
    assert str(refusal(*start, execution(3, 4))).startswith("R3: ")
    assert refusal(*start, execution(3, 4, by=EVE)) is None


@pytest.mark.parametrize(
    "entries",
    [
        (*START, approval(ANN), execution(3)),
        (*START, approval(ANN), approval(EVE), execution(3, 4)),
        (*START, approval(ANN), approval(BOB, signer=EVE), execution(3, 4)),
        (*START, approval(ANN), approval(ANN), execution(3, 4)),
        (policy(ANN, BOB), approval(ANN), approval(BOB), request(), execution(2, 3)),
        (request(), approval(ANN), approval(BOB), execution(2, 3)),
        (policy(ANN, BOB, by=EVE), request(), approval(ANN), approval(BOB), execution(3, 4)),
        (*START, approval(ANN), approval(BOB, group=bytes(32)), execution(3, 4)),
        (*APPROVED, approval(BOB, "reject"), execution(3, 4)),
        (*APPROVED, execution(3, 4), execution(3, 4)),
    ],
    ids=[
        "too few",
        "no guardian",
        "not signed by the guardian",
        "one guardian twice",
        "approved before the request",
        "no policy",
        "policy of another signer",
        "another policy group",
        "a guardian has changed its mind",
        "replaced already",
    ],
)
def test_an_execution_without_enough_approvals_that_count_is_refused(entries: tuple[Signed, ...]) -> None:
    assert str(refusal(*entries)).startswith("8.3: ")


def test_a_policy_that_comes_after_the_request_does_not_stop_the_recovery() -> None:
    assert refusal(*START, policy(EVE, threshold=1), approval(ANN), approval(BOB), execution(4, 5)) is None
    thief = *START, policy(EVE, threshold=1), approval(EVE), execution(4)
    assert str(refusal(*thief)).startswith("8.3: ")


def test_a_guardian_that_was_replaced_is_represented_by_its_successor() -> None:
    guardian_lost = (
        policy(BOB, threshold=1, target=ANN),
        request(ANN, EVE),
        approval(BOB, target=ANN, new=EVE),
        execution(3, target=ANN, new=EVE),
    )
    start = *guardian_lost, *START
    assert str(refusal(*start, approval(ANN), approval(BOB), execution(7, 8))).startswith("8.3: ")
    assert refusal(*start, approval(EVE), approval(BOB), execution(7, 8)) is None


def test_a_successor_can_be_replaced_too_and_nobody_comes_back() -> None:
    first = *APPROVED, execution(3, 4)
    again = (
        policy(CAY, threshold=1, target=NEW),
        request(NEW, EVE),
        approval(CAY, target=NEW, new=EVE),
        execution(8, target=NEW, new=EVE),
    )
    found = recoveries(state_after(RECOVERIES, *first, *again))
    assert (found.current(LOST), found.current(NEW)) == (EVE, EVE)
    back = policy(CAY, threshold=1, target=EVE), request(EVE, LOST), approval(CAY, target=EVE, new=LOST)
    assert str(refusal(*first, *again, *back, execution(12, target=EVE, new=LOST))).startswith("8.3: ")


def test_keys_of_an_open_hub_count_from_their_link_on() -> None:
    linked = link(0), link(2), link(3), policy(ANN, BOB, by=STREAM_KEYS[0]), request()
    approved = approval(ANN, signer=STREAM_KEYS[2]), approval(BOB, signer=STREAM_KEYS[3])
    assert refusal(*linked, *approved, execution(6, 7)) is None


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (policy(ANN, threshold=2)[0], "number of guardians"),
        (policy(ANN, threshold=0)[0], "number of guardians"),
        (policy(LOST, ANN)[0], "its own guardian"),
        (request(LOST, LOST)[0], "is not target_identity"),
        (execution()[0], "at least one approval"),
        (execution(3, 3)[0], "twice"),
    ],
    ids=["threshold", "no threshold", "own guardian", "same identity", "no reference", "reference twice"],
)
def test_a_record_that_breaks_a_rule_is_refused(broken: Any, rule: str) -> None:
    with pytest.raises(EncodeError, match=rule):
        broken.encode()


# --- what follows: identities and wallets

REALM = realm_id("shop")
REPLACED = *APPROVED, execution(3, 4)


def device(principal: IdentityId, n: int) -> Device:
    key: Any = IDS[n]
    return Device(
        principal_pk=PrincipalPk(principal),
        device_id=device_id(key),
        device_pk=key,
        dh_pk=key,
        created_at=UnixTime(0),
    )


def test_a_replaced_principals_devices_are_inactive_and_its_successor_acts_for_its_accounts() -> None:
    lost, new, org = PrincipalPk(LOST), PrincipalPk(NEW), OrgId(bytes(32))
    old_account = ctx_id(lost, REALM)
    role = Role(org_id=org, role="cashier", targets_ctx=(old_account,), ts=UnixTime(0))
    home = principal_stream(lost)

    def directory(*entries: Signed) -> IdentityDirectory:
        streams = {
            home: state_after(on_stream(home), (device(LOST, 0), LOST), *entries),
            principal_stream(new): state_after(on_stream(principal_stream(new)), (device(NEW, 1), NEW)),
            org_stream(org): state_after(on_stream(org_stream(org)), (role, EVE)),
        }
        return IdentityDirectory(streams=streams)

    shifted = policy(ANN, BOB), request(), approval(ANN), approval(BOB), execution(4, 5)
    before, after = directory(*shifted[:-1]), directory(*shifted)
    old, fresh = device_id(LOST), device_id(NEW)  # type: ignore[arg-type]
    assert before.inactive(lost, old, 1) is None
    assert "replaced by" in str(after.inactive(lost, old, 1))
    assert after.inactive(new, fresh, 1) is None
    assert (before.successor(lost), after.successor(lost)) == (lost, new)
    assert after.accounts(new, REALM) == (ctx_id(new, REALM), old_account)
    assert after.accounts(lost, REALM) == ()
    roles = {role for ctx in after.accounts(new, REALM) for role in after.roles(org, ctx, REALM)}
    assert roles == {"cashier"}


def test_a_recovery_on_another_principals_stream_replaces_nobody() -> None:
    stream = principal_stream(PrincipalPk(EVE))
    assert "replaced" not in on_stream(stream).view(state_after(on_stream(stream), *REPLACED))
    assert IDENTITY.view(state_after(IDENTITY, *REPLACED))["replaced"] == {bytes(LOST): bytes(NEW)}


def test_a_wallet_follows_its_owner() -> None:
    owner = ctx_id(PrincipalPk(LOST), REALM)
    wallet = wallet_id(REALM, owner, "EUR")
    opened = Open(wallet_id=wallet, realm_id=REALM, ctx_id=owner, currency="EUR", created_at=UnixTime(0))
    entries = (opened, LOST), policy(ANN, threshold=1), request(), approval(ANN)
    before = OWNERS.view(state_after(OWNERS, *entries))
    after = OWNERS.view(state_after(OWNERS, *entries, execution(4)))
    assert "replaced_by" not in before[bytes(wallet)]
    assert after[bytes(wallet)] == before[bytes(wallet)] | {"replaced_by": bytes(NEW)}


# --- the oracle: the document read message by message


def interpreted(log: list[Message]) -> dict[bytes, bytes]:  # noqa: PLR0912 - one branch per rule
    """Which identity replaced which; written from 8.3 and 8.4, sharing nothing but the records."""
    shapes = {
        bytes(s.SCHEMA): s
        for s in (RecoveryPolicy, RecoveryRequest, RecoveryApproval, RecoveryExecution, KeyContinuity)
    }
    linked: set[tuple[bytes, bytes]] = set()
    policies: dict[bytes, Any] = {}
    opened: dict[tuple[bytes, bytes], tuple[int, Any]] = {}
    approvals: dict[bytes, tuple[int, Any, bool]] = {}
    replaced: dict[bytes, bytes] = {}

    def now(identity: bytes) -> bytes:
        while identity in replaced:
            identity = replaced[identity]
        return identity

    for message in log:
        record: Any = shapes[message.schema].decode(message.body)
        signer = message.client_id

        def signed(by: bytes, signer: Any = signer) -> bool:
            return by == signer or (by, signer) in linked

        if isinstance(record, KeyContinuity):
            if record.client_id == signer:
                linked.add((bytes(record.principal_id), bytes(record.client_id)))
            continue
        target = bytes(record.target_identity)
        if isinstance(record, RecoveryPolicy):
            if signed(target) and target not in replaced:
                policies[target] = record
            continue
        new = bytes(getattr(record, "requested_new_identity", None) or record.new_identity)
        if isinstance(record, RecoveryRequest):
            if target in policies and target not in replaced and new not in replaced:
                opened.setdefault((target, new), (message.seq, policies[target]))
        elif isinstance(record, RecoveryApproval):
            by = bytes(record.approver_identity)
            identifier = bytes(H(b"veen/operation-id\x00" + message.msg_id))
            approvals[identifier] = message.seq, record, signed(by)
        else:
            named = [approvals.get(bytes(each)) for each in record.approval_references]
            pair = target, new
            wrong = any(
                each is None
                or each[1].decision != "approve"
                or (bytes(each[1].target_identity), bytes(each[1].requested_new_identity)) != pair
                for each in named
            )
            if wrong or pair not in opened or target in replaced or new in replaced:
                continue
            since, rules = opened[pair]
            voices = set()
            for guardian in rules.guardians:
                latest = max(
                    (
                        (seq, identifier, said)
                        for identifier, (seq, said, own) in approvals.items()
                        if own and seq > since and said.approver_identity == guardian
                        if (said.target_identity, said.requested_new_identity) == pair
                    ),
                    default=None,
                )
                if latest is not None and latest[2].decision == "approve":
                    voices.add(latest[1])
            if len(voices & {bytes(each) for each in record.approval_references}) >= rules.threshold:
                replaced[target] = new
                opened = {each: held for each, held in opened.items() if target not in each}
    return {old: now(old) for old in replaced}


def any_entry() -> st.SearchStrategy[Signed]:
    """Entries about two identities and two guardians, who are never replaced themselves."""
    targets, news = st.sampled_from((LOST, NEW)), st.sampled_from((NEW, LOST, EVE))
    pairs = st.tuples(targets, news).filter(lambda pair: pair[0] != pair[1])
    guardians = st.sampled_from((ANN, BOB))
    policies = st.builds(
        lambda target, threshold, by: policy(ANN, BOB, threshold=threshold, target=target, by=by),
        targets,
        st.integers(1, 2),
        st.sampled_from((None, None, EVE)),
    )
    requests = pairs.map(lambda pair: request(*pair))
    decisions = st.builds(
        lambda by, word, pair, signer: approval(by, word, target=pair[0], new=pair[1], signer=signer),
        guardians,
        st.sampled_from(("approve", "approve", "approve", "reject")),
        pairs,
        st.sampled_from((None, None, None, STREAM_KEYS[2], EVE)),
    )
    executions = st.builds(
        lambda references, pair: execution(*references, target=pair[0], new=pair[1]),
        st.lists(st.integers(1, 14), min_size=1, max_size=3, unique=True),
        pairs,
    )
    return st.one_of(
        policies, requests, decisions, decisions, decisions, executions, executions, st.just(link(2))
    )


@given(st.lists(any_entry(), max_size=20), st.integers(0, 20))
def test_the_fold_is_the_interpretation_of_the_document_wherever_the_log_is_cut(
    entries: list[Signed], cut: int
) -> None:
    log = signed_log(*APPROVED[: cut % 5], *entries)
    summary = RECOVERIES.merge(RECOVERIES.fold(part) for part in (log[:cut], log[cut:]))
    assert RECOVERIES.view(summary.inner)["replaced"] == interpreted(log)
    assert RECOVERIES.encode(summary) == RECOVERIES.encode(RECOVERIES.fold(log))
    assert RECOVERIES.encode(RECOVERIES.merge(lifted(RECOVERIES, log))) == RECOVERIES.encode(summary)


@given(st.integers(0, 5), st.permutations([approval(ANN), approval(BOB), approval(CAY, "reject")]))
def test_complete_recoveries_replace_in_the_interpretation_too(cut: int, decisions: list[Signed]) -> None:
    names = [seq for seq, (said, _) in enumerate(decisions, 3) if said.decision == "approve"]  # type: ignore[attr-defined]
    log = signed_log(*START, *decisions, execution(*names))
    summary = RECOVERIES.merge(RECOVERIES.fold(part) for part in (log[:cut], log[cut:]))
    assert interpreted(log) == RECOVERIES.view(summary.inner)["replaced"] == {bytes(LOST): bytes(NEW)}


def test_an_operation_id_that_a_forger_claims_as_its_parent_stays_the_first_messages() -> None:
    log = signed_log(*APPROVED)
    forged = signed_log(*APPROVED, approval(CAY, "reject"))[-1]._replace(parent_id=log[2].msg_id)
    ended = signed_log(*APPROVED, approval(CAY, "reject"), execution(3, 4))[-1]
    found = recoveries(RECOVERIES.fold([*log, forged, ended]).inner)
    assert found.executions[-1].refused is None
    assert isinstance(operation_at(3), OperationId)
