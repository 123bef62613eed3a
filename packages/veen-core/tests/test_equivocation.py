"""Evidence that a hub signed two histories (spec-1 §14, §16)."""

import dataclasses

import pytest

from veen_core import Equivocation, HubPk, Label, MmrRoot, Receipt, verify_evidence
from veen_core.equivocation import Statement, evidence_of
from veen_core.errors import EvidenceError
from veen_core.hub_identity import HubKey, key_id
from veen_core.ids import StreamSeq, UnixTime

from .simulator import BORN, Hub, signing_key


def _statement(hub: Hub, receipt: Receipt) -> Statement:
    return Statement(hub_pk=hub.hub_pk, receipt=receipt)


@pytest.fixture
def receipt(hub: Hub) -> Receipt:
    return hub.append(hub.compose("bob"))


@pytest.fixture
def evidence(hub: Hub, receipt: Receipt) -> Equivocation:
    """Two receipts for the same stream_seq."""
    other = hub.fork(0).write("mallory")[0]
    return evidence_of(_statement(hub, receipt), _statement(hub, other))


def test_two_receipts_for_the_same_stream_seq_are_evidence(hub: Hub, evidence: Equivocation) -> None:
    verify_evidence(evidence)
    verify_evidence(evidence, hub.identity)
    verify_evidence(Equivocation.decode(evidence.encode()))


def test_the_same_two_receipts_give_the_same_evidence(hub: Hub, evidence: Equivocation) -> None:
    assert evidence_of(evidence.second, evidence.first) == evidence
    assert evidence.first.encode() < evidence.second.encode()
    assert evidence.first.hub_pk == hub.hub_pk


def test_two_roots_over_one_leaf_are_evidence_too(hub: Hub, receipt: Receipt) -> None:
    other = hub.forged(receipt, mmr_root=MmrRoot(bytes(32)))
    verify_evidence(evidence_of(_statement(hub, receipt), _statement(hub, other)))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        pytest.param(
            {"hub_ts": UnixTime(BORN + 1)}, "agree on leaf_hash and mmr_root", id="only another time"
        ),
        pytest.param(
            {"stream_seq": StreamSeq(2)}, "are for different labels or stream_seqs", id="another place"
        ),
        pytest.param(
            {"label": Label(bytes(32))}, "are for different labels or stream_seqs", id="another label"
        ),
    ],
)
def test_receipts_that_do_not_contradict_each_other_prove_nothing(
    hub: Hub, receipt: Receipt, change: dict[str, object], match: str
) -> None:
    with pytest.raises(EvidenceError, match=match):
        evidence_of(_statement(hub, receipt), _statement(hub, hub.forged(receipt, **change)))


def test_a_receipt_proves_nothing_against_itself(hub: Hub, receipt: Receipt) -> None:
    with pytest.raises(EvidenceError, match="ascending order"):
        evidence_of(_statement(hub, receipt), _statement(hub, receipt))


def test_statements_in_the_wrong_order_are_refused(evidence: Equivocation) -> None:
    with pytest.raises(EvidenceError, match="ascending order"):
        verify_evidence(Equivocation(first=evidence.second, second=evidence.first))


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_receipt_the_hub_did_not_sign_proves_nothing(evidence: Equivocation, which: str) -> None:
    statement = getattr(evidence, which)
    # hub_ts comes after everything that decides the order of the statements.
    forged = dataclasses.replace(statement.receipt, hub_ts=UnixTime(BORN + 1))
    damaged = dataclasses.replace(evidence, **{which: dataclasses.replace(statement, receipt=forged)})
    with pytest.raises(EvidenceError, match="does not verify"):
        verify_evidence(damaged)


def test_evidence_against_another_hub_is_refused(evidence: Equivocation) -> None:
    with pytest.raises(EvidenceError, match="was not an active key of hub"):
        verify_evidence(evidence, Hub(name="innocent").identity)


def test_evidence_with_two_keys_needs_the_hubs_identity(hub: Hub) -> None:
    other = hub.fork(0).write("mallory")[0]
    hub.now = UnixTime(BORN + 1)
    hub.rotate_key(600)
    receipt = hub.append(hub.compose("bob"))
    a = _statement(hub, receipt)
    b = Statement(hub_pk=HubPk(hub.keys[0].public), receipt=other)
    first, second = sorted((a, b), key=Statement.encode)
    evidence = Equivocation(first=first, second=second)
    with pytest.raises(EvidenceError, match="two keys"):
        verify_evidence(evidence)
    verify_evidence(evidence, hub.identity)


def test_two_strangers_cannot_frame_a_hub(hub: Hub, receipt: Receipt) -> None:
    stranger = signing_key("stranger")
    forged = Hub(name="stranger").forged(receipt, mmr_root=MmrRoot(bytes(32)))
    with pytest.raises(EvidenceError):
        evidence_of(_statement(hub, receipt), Statement(hub_pk=HubPk(stranger.public), receipt=forged))


def _promises(hub: Hub, now: int, key: int) -> Equivocation:
    """Two receipts for the first place, both signed at ``now`` with one of the hub's keys."""
    statements = []
    for who in ("bob", "mallory"):
        fork = hub.fork(0)
        fork.now = UnixTime(now)
        receipt = fork.append(fork.compose(who), key=hub.keys[key])
        statements.append(Statement(hub_pk=HubPk(hub.keys[key].public), receipt=receipt))
    return evidence_of(*statements)


@pytest.mark.parametrize(
    ("offset", "key", "convicts"),
    [
        pytest.param(0, 0, True, id="the first key in its time"),
        pytest.param(1_599, 0, True, id="the first key in its last second"),
        pytest.param(1_600, 0, False, id="the first key after its end"),
        pytest.param(1_000, 1, True, id="the second key from its start"),
        pytest.param(999, 1, False, id="the second key before its start"),
    ],
)
def test_a_key_is_evidence_only_for_its_own_time(hub: Hub, offset: int, key: int, convicts: bool) -> None:
    hub.now = UnixTime(BORN + 1_000)
    hub.rotate_key(600)
    evidence = _promises(hub, BORN + offset, key)
    verify_evidence(evidence)  # whoever held the key did it
    if convicts:
        verify_evidence(evidence, hub.identity)
    else:
        with pytest.raises(EvidenceError, match=f"was not an active key of hub .* at {BORN + offset}"):
            verify_evidence(evidence, hub.identity)


def test_evidence_with_a_broken_identity_is_refused(hub: Hub, evidence: Equivocation) -> None:
    """Otherwise a key added to a forged record could be used to accuse the hub."""
    mallory = HubPk(signing_key("mallory").public)
    slipped = HubKey(key_id=key_id(mallory), hub_pk=mallory, valid_from=UnixTime(BORN + 1))
    forged = dataclasses.replace(hub.identity, hub_keys=(*hub.identity.hub_keys, slipped))
    with pytest.raises(EvidenceError, match=r"endorsement .core §8\.4.: missing"):
        verify_evidence(evidence, forged)
