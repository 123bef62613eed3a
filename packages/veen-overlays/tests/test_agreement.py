"""Agreements: definitions, decisions, the active version (spec-3 §5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from signed_logs import IDS, STREAM_KEYS, Signed, link, signed_log, state_after
from strategies import lifted

from veen_core.errors import EncodeError
from veen_core.hashing import H
from veen_core.ids import UnixTime
from veen_overlays.fold.event import Message
from veen_overlays.operations.agreement import (
    AGREEMENTS,
    AgreementConfirmation,
    AgreementDefinition,
    AgreementId,
    AgreementPolicy,
    TermsHash,
    active_version,
    agreement_id,
    versions_of,
)
from veen_overlays.operations.operation import IdentityId
from veen_overlays.recorder.records import KeyContinuity
from veen_overlays.schema.record import decode_record

LEASE = agreement_id("lease")
ANN, BOB, CAY = IDS[:3]
ALL, MAJORITY = AgreementPolicy.ALL, AgreementPolicy.MAJORITY


def defined(
    version: int,
    *parties: IdentityId,
    agreement: AgreementId = LEASE,
    start: int | None = None,
    end: int | None = None,
) -> AgreementDefinition:
    return AgreementDefinition(
        agreement_id=agreement,
        version=version,
        terms_hash=TermsHash(H(b"terms %d" % version)),
        parties=tuple(sorted(parties)),
        effective_time=None if start is None else UnixTime(start),
        expiry_time=None if end is None else UnixTime(end),
    )


def says(party: IdentityId, decision: str, version: int, by: bytes | None = None) -> Signed:
    said = AgreementConfirmation(agreement_id=LEASE, version=version, party_identity=party, decision=decision)
    return said, by or bytes(party)


def active(*entries: Signed, at: int = 50, policy: AgreementPolicy = ALL) -> int | None:
    found = active_version(versions_of(state_after(AGREEMENTS, *entries), LEASE), at, policy)
    return None if found is None else found.definition.version


V1: Signed = defined(1, ANN, BOB), ANN
V2: Signed = defined(2, ANN, BOB), ANN


def test_an_agreement_is_active_when_all_parties_accept() -> None:
    assert active(V1) is None
    assert active(V1, says(ANN, "accept", 1)) is None
    assert active(V1, says(ANN, "accept", 1), says(BOB, "accept", 1)) == 1


def test_a_majority_is_more_than_half_of_the_parties() -> None:
    three = (defined(1, ANN, BOB, CAY), ANN)
    assert active(three, says(ANN, "accept", 1), policy=MAJORITY) is None
    assert active(three, says(ANN, "accept", 1), says(BOB, "accept", 1), policy=MAJORITY) == 1
    assert active(V1, says(ANN, "accept", 1), policy=MAJORITY) is None


@pytest.mark.parametrize("word", ["reject", "withdraw", "abstain"])
def test_m1_the_latest_decision_of_a_party_replaces_the_earlier_one(word: str) -> None:
    both = V1, says(ANN, "accept", 1), says(BOB, "accept", 1)
    assert active(*both, says(BOB, word, 1)) is None
    assert active(*both, says(BOB, word, 1), says(BOB, "accept", 1)) == 1
    (version,) = versions_of(state_after(AGREEMENTS, *both, says(BOB, word, 1)), LEASE)
    assert [each.word for each in version.decisions.values()].count(word) == 1
    assert len(version.decisions) == 2


def test_m2_only_the_first_definition_of_a_version_counts_and_versions_rise() -> None:
    other = AgreementDefinition(
        agreement_id=LEASE, version=2, terms_hash=TermsHash(H(b"forged")), parties=(CAY,)
    )
    first, again = versions_of(state_after(AGREEMENTS, V2, (other, CAY), (defined(1, CAY), CAY)), LEASE)
    assert (first.definition.terms_hash, first.defined, first.rises) == (H(b"terms 2"), 2, True)
    assert (again.definition.version, again.rises) == (1, False)
    assert active(V2, (defined(1, CAY), CAY), says(CAY, "accept", 1)) is None


def test_a_decision_counts_only_if_the_party_has_signed_it() -> None:
    accepted = V1, says(ANN, "accept", 1)
    assert active(*accepted, says(BOB, "accept", 1, by=CAY)) is None
    assert active(*accepted, says(BOB, "accept", 1, by=STREAM_KEYS[1])) is None
    assert active(*accepted, link(1), says(BOB, "accept", 1, by=STREAM_KEYS[1])) == 1
    assert active(*accepted, says(BOB, "accept", 1, by=STREAM_KEYS[1]), link(1)) is None, "the link is later"
    forged = says(BOB, "withdraw", 1, by=CAY)
    assert active(*accepted, says(BOB, "accept", 1), forged) == 1


def test_a_decision_about_a_version_that_is_not_defined_yet_does_not_count() -> None:
    early = says(ANN, "accept", 1), says(BOB, "accept", 1)
    assert active(*early, V1) is None


def test_a_newer_version_supersedes_an_older_one_when_it_is_confirmed() -> None:
    first = V1, says(ANN, "accept", 1), says(BOB, "accept", 1), V2
    assert active(*first) == 1
    assert active(*first, says(ANN, "accept", 2)) == 1
    assert active(*first, says(ANN, "accept", 2), says(BOB, "accept", 2)) == 2


def test_a_version_without_the_old_parties_cannot_supersede_their_agreement() -> None:
    first = V1, says(ANN, "accept", 1), says(BOB, "accept", 1)
    without_bob = (defined(2, ANN, CAY), CAY), says(ANN, "accept", 2), says(CAY, "accept", 2)
    assert active(*first, *without_bob) == 1
    assert active(*first, *without_bob, says(BOB, "accept", 2)) == 2, "Bob agrees to leave"


def test_a_version_takes_effect_and_expires_at_its_times() -> None:
    first = (defined(1, ANN, start=10, end=20), ANN), says(ANN, "accept", 1)
    assert [active(*first, at=at) for at in (9, 10, 19, 20)] == [None, 1, 1, None]
    second = *first, (defined(2, ANN, start=15, end=18), ANN), says(ANN, "accept", 2)
    assert [active(*second, at=at) for at in (14, 15, 18)] == [1, 2, None], "nothing comes back"


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (
            AgreementDefinition(agreement_id=LEASE, version=1, terms_hash=TermsHash(bytes(32)), parties=()),
            "one",
        ),
        (
            AgreementDefinition(
                agreement_id=LEASE,
                version=1,
                terms_hash=TermsHash(bytes(32)),
                parties=tuple(sorted((ANN, BOB), reverse=True)),
            ),
            "sorted",
        ),
        (defined(1, ANN, start=9, end=9), "after effective_time"),
    ],
    ids=["no party", "unsorted", "expires at once"],
)
def test_a_definition_that_breaks_a_rule_is_refused(broken: AgreementDefinition, rule: str) -> None:
    with pytest.raises(EncodeError, match=rule):
        broken.encode()


# --- the oracle: the document read message by message, sharing nothing with the package but the records


def interpreted(log: list[Message]) -> list[dict[str, Any]]:
    shapes = {bytes(s.SCHEMA): s for s in (AgreementDefinition, AgreementConfirmation, KeyContinuity)}
    linked: set[tuple[bytes, bytes]] = set()
    versions: dict[tuple[bytes, int], dict[str, Any]] = {}
    identities = set()
    for message in log:
        shape = shapes.get(message.schema)
        if shape is None or message.identity in identities:
            continue
        identities.add(message.identity)
        match decode_record((shape,), message.body):
            case KeyContinuity() as made:
                if made.client_id == message.client_id:  # all links of the drawn logs are signed
                    linked.add((bytes(made.principal_id), bytes(made.client_id)))
            case AgreementDefinition() as made:
                key = bytes(made.agreement_id), made.version
                if key in versions:
                    versions[key]["defined"] += 1
                    continue
                highest = max((v for a, v in versions if a == key[0]), default=-1)
                body: dict[str, Any] = {
                    field.key: getattr(made, field.name)
                    for field in made.codec.fields
                    if getattr(made, field.name) is not None
                }
                body["parties"] = [bytes(each) for each in made.parties]
                extra = {"seq": message.seq, "defined": 1, "rises": made.version > highest, "decisions": {}}
                versions[key] = body | extra
            case AgreementConfirmation() as made:
                key = bytes(made.agreement_id), made.version
                party = bytes(made.party_identity)
                known = message.client_id == party or (party, message.client_id) in linked
                if key in versions and known:
                    versions[key]["decisions"][party] = (made.decision, message.seq)
    shown = []
    for _, each in sorted(versions.items(), key=lambda item: (item[0][0], item[1]["seq"])):
        said = sorted(each["decisions"].items())
        rows = [{"party_identity": party, "decision": word, "seq": seq} for party, (word, seq) in said]
        shown.append(each | {"decisions": rows})
    return shown


def any_entry() -> st.SearchStrategy[Signed]:
    person = st.integers(0, 2)
    agreements = st.sampled_from((LEASE, agreement_id("other")))
    parties = st.sets(st.sampled_from(IDS[:3]), min_size=1)
    definitions = st.builds(
        lambda who, agreement, version, by: (defined(version, *who, agreement=agreement), IDS[by]),
        parties,
        agreements,
        st.integers(0, 4),
        person,
    )
    signers = st.sampled_from((*IDS[:3], *STREAM_KEYS[:3], None))
    confirmations = st.builds(
        lambda agreement, version, by, word, signer: (
            AgreementConfirmation(
                agreement_id=agreement, version=version, party_identity=IDS[by], decision=word
            ),
            signer,
        ),
        agreements,
        st.integers(0, 4),
        person,
        st.sampled_from(("accept", "reject", "withdraw", "?")),
        signers,
    )
    return st.one_of(definitions, confirmations, confirmations, person.map(link))


@given(st.lists(any_entry(), max_size=30))
def test_the_fold_is_the_interpretation_of_the_document(entries: list[Signed]) -> None:
    log = signed_log(*entries)
    assert AGREEMENTS.view(AGREEMENTS.fold(log).inner) == interpreted(log)


@given(st.lists(any_entry(), max_size=30), st.lists(st.integers(0, 30), max_size=3))
def test_any_cut_of_a_signed_log_gives_the_same_bytes(entries: list[Signed], cuts: list[int]) -> None:
    log, edges = signed_log(*entries), sorted(min(cut, len(entries)) for cut in cuts)
    parts = [AGREEMENTS.fold(log[a:b]) for a, b in zip([0, *edges], [*edges, len(log)], strict=True)]
    assert AGREEMENTS.encode(AGREEMENTS.merge(parts)) == AGREEMENTS.encode(AGREEMENTS.fold(log))
    assert AGREEMENTS.encode(AGREEMENTS.merge(lifted(AGREEMENTS, log))) == AGREEMENTS.encode(
        AGREEMENTS.fold(log)
    )
