"""Evidence up to the hub checkpoint: each step, broken in turn, is named by its error (P1, P2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from veen_core import HubIdentity, StreamSeq
from veen_core.errors import (
    DecodeError,
    EvidenceError,
    IdentityError,
    ProofError,
    QuorumError,
    SignatureError,
    VeenError,
)
from veen_core.hub_evidence import MAX_EVIDENCE_BYTES, HubEvidence, parse_evidence, verify_evidence
from veen_core.hub_identity import endorsement_digest, key_id, new_identity
from veen_core.hub_log import note_key, origin_of
from veen_core.ids import HubId, HubPk, Label, MmrRoot, NodeHash, UnixTime
from veen_core.tlog.note import COSIGNATURE, NoteKey
from veen_core.tlog.policy import WitnessPolicy, parse_policy

from .simulator import WITNESSES, Hub, HubLog, flip, person, signing_key

ALICE, BOB, CAROL = WITNESSES
OWN = "logs.example/hub"


def policy(*lines: str, threshold: int = 2) -> WitnessPolicy:
    """Return a policy of two of three witnesses, after further lines."""
    named = [
        f"witness {name} {NoteKey(name, COSIGNATURE, signing_key(name).public).text}" for name in WITNESSES
    ]
    group = f"group g {threshold} " + " ".join(WITNESSES)
    return parse_policy("\n".join([*lines, *named, group, "quorum g"]).encode())


def log_line(hub: Hub, origin: str | None = None) -> str:
    name = origin or origin_of(hub.identity.hub_id)
    return f"log {note_key(hub.identity.hub_keys[0], name).text}"


@pytest.fixture
def log(hub: Hub) -> HubLog:
    """A hub log of seven entries; the third covers the first five of eight messages."""
    writer, made = person("writer", hub), HubLog(hub)
    made.add_others(2)
    for number in range(8):
        hub.now = UnixTime(hub.now + 10)
        writer.send(b"message %d" % number)
        if number == 4:
            made.add_own()
            made.add_others(3)
    made.add_own()
    return made


@pytest.fixture
def good(log: HubLog) -> HubEvidence:
    return log.evidence(3, 2, log.checkpoint(ALICE, BOB))


# --- what is accepted


def test_evidence_proves_a_message_to_a_verifier_that_knows_only_the_hub_id(
    log: HubLog, good: HubEvidence
) -> None:
    pinned = log.hub.identity.hub_id
    verdict = verify_evidence(parse_evidence(good.encode()), pinned=pinned)
    assert verdict.receipt == log.hub.receipt(3)
    assert verdict.head == log.heads[2]
    assert verdict.checkpoint.head.size == 7
    assert verdict.cosigned is None


def test_evidence_proves_a_message_to_a_verifier_that_trusts_two_of_three_witnesses(
    log: HubLog, good: HubEvidence
) -> None:
    for rules in (policy(), policy(log_line(log.hub))):
        verdict = verify_evidence(good, pinned=log.hub.identity.hub_id, policy=rules)
        assert verdict.cosigned is not None
        assert [witness.name.decode() for witness in verdict.cosigned.witnesses] == [ALICE, BOB]
        assert verdict.cosigned.quorum_at == log.hub.now


def test_every_message_has_evidence_by_every_head_and_checkpoint_that_covers_it(log: HubLog) -> None:
    own = [at for at, head in enumerate(log.heads) if head.label == log.hub.label]
    for index in own:
        for size in range(index + 1, len(log.heads) + 1):
            for stream_seq in range(1, log.heads[index].upto_seq + 1):
                made = log.evidence(stream_seq, index, log.checkpoint(size=size))
                verify_evidence(parse_evidence(made.encode()), pinned=log.hub.identity.hub_id)


def test_usual_evidence_is_smaller_than_6_kib(log: HubLog) -> None:
    log.add_others(1_000)
    assert len(log.evidence(3, 2, log.checkpoint(*WITNESSES)).encode()) < 6 * 1_024


def test_evidence_from_before_and_after_a_rotation_verifies(log: HubLog) -> None:
    hub, old = log.hub, log.hub.key
    pinned = hub.identity.hub_id
    hub.now = UnixTime(hub.now + 100)
    hub.rotate_key(600)
    rules = policy(log_line(hub))
    for keys in ((old,), (hub.key,), (old, hub.key)):
        made = log.evidence(3, 2, log.checkpoint(ALICE, CAROL, keys=keys))
        assert verify_evidence(made, pinned=pinned, policy=rules).cosigned is not None


# --- each step, broken in turn

Change = Callable[[HubLog, HubEvidence], HubEvidence]


def changed(**fields: Any) -> Change:
    return lambda _log, good: dataclasses.replace(good, **fields)


def _unendorsed(log: HubLog, good: HubEvidence) -> HubEvidence:
    first, other = log.hub.identity.hub_keys[0], HubPk(signing_key("other").public)
    second = dataclasses.replace(first, key_id=key_id(other), hub_pk=other, valid_from=log.hub.now)
    identity = dataclasses.replace(log.hub.identity, hub_keys=(first, second))
    return dataclasses.replace(good, identity=identity)


def _receipt(**fields: Any) -> Change:
    return lambda log, good: dataclasses.replace(good, receipt=log.hub.forged(good.receipt, **fields))


def _head(**fields: Any) -> Change:
    return lambda _log, good: dataclasses.replace(good, head=dataclasses.replace(good.head, **fields))


def _sibling(_log: HubLog, good: HubEvidence) -> HubEvidence:
    first, *rest = good.proof.path
    bent = dataclasses.replace(first, sib=NodeHash(flip(first.sib)))
    return dataclasses.replace(good, proof=dataclasses.replace(good.proof, path=(bent, *rest)))


def _checkpoint(**how: Any) -> Change:
    return lambda log, good: dataclasses.replace(good, checkpoint=log.checkpoint(ALICE, BOB, **how).encode())


def _cosigned(*names: str) -> Change:
    return lambda log, good: dataclasses.replace(good, checkpoint=log.checkpoint(*names).encode())


def _bad_cosignature(log: HubLog, good: HubEvidence) -> HubEvidence:
    lines = good.checkpoint.decode().splitlines(keepends=True)
    other = log.checkpoint(BOB, now=log.hub.now + 1).encode().decode().splitlines(keepends=True)[-1]
    mixed = other[:-40] + lines[-1][-40:]
    return dataclasses.replace(good, checkpoint="".join([*lines[:-1], mixed]).encode())


BROKEN: dict[str, tuple[Change, type[VeenError], str]] = {
    "identity of another hub": (
        changed(identity=new_identity(signing_key("other"), UnixTime(0))),
        IdentityError,
        "the pinned hub is",
    ),
    "key without endorsement": (_unendorsed, IdentityError, r"hub_key.endorsement \(core §8.4\): missing"),
    "receipt changed": (
        lambda _log, good: dataclasses.replace(
            good, receipt=dataclasses.replace(good.receipt, stream_seq=StreamSeq(2))
        ),
        SignatureError,
        r"RECEIPT.hub_sig at stream_seq 2",
    ),
    "receipt of another message": (
        lambda log, good: dataclasses.replace(good, receipt=log.hub.receipt(4)),
        ProofError,
        r"mmr_proof.leaf_hash",
    ),
    "receipt of another label": (
        _receipt(label=Label(bytes(32))),
        EvidenceError,
        "another label than the receipt",
    ),
    "receipt after the head": (
        lambda log, good: dataclasses.replace(good, receipt=log.hub.receipt(6)),
        EvidenceError,
        "the label's head at 5 is before the message at 6",
    ),
    "receipt later than the head": (
        lambda log, good: dataclasses.replace(
            good, receipt=log.hub.forged(good.receipt, hub_ts=good.head.hub_ts + 1)
        ),
        EvidenceError,
        "before that of the receipt",
    ),
    "receipt of the head with another root": (
        lambda log, good: dataclasses.replace(
            good, receipt=log.hub.forged(log.hub.receipt(5), mmr_root=MmrRoot(bytes(32)))
        ),
        EvidenceError,
        "head and receipt at 5 differ in mmr_root or hub_ts",
    ),
    "proof with a changed sibling": (_sibling, ProofError, r"mmr_proof \(core §5.4\): leaf 3 of 5"),
    "head with another root": (_head(mmr_root=MmrRoot(bytes(32))), ProofError, r"mmr_proof \(core §5.4\)"),
    "head with another time": (
        lambda _log, good: dataclasses.replace(
            good, head=dataclasses.replace(good.head, hub_ts=good.head.hub_ts + 1)
        ),
        ProofError,
        r"inclusion proof \(RFC 6962 §2.1.1\): leaf 2 of 7",
    ),
    "head at another place": (changed(index=3), ProofError, r"inclusion proof .* leaf 3 of 7 does not lead"),
    "head beyond the log": (changed(index=7), ProofError, "leaf 7 is not in a tree of 7 leaves"),
    "head proof empty": (changed(head_proof=()), ProofError, "inclusion proof .* too short"),
    "head proof of another size": (_checkpoint(size=6), ProofError, r"inclusion proof \(RFC 6962"),
    "checkpoint not a note": (changed(checkpoint=b""), DecodeError, r"note \(C2SP signed-note\)"),
    "checkpoint of another key": (
        _checkpoint(keys=(signing_key("other"),)),
        SignatureError,
        "hub checkpoint at size 7 .*no key of the hub signed it",
    ),
    "checkpoint of another log": (_checkpoint(origin=OWN), SignatureError, "hub checkpoint .*its origin is"),
    "origin changed": (changed(origin=OWN), SignatureError, "hub checkpoint .*its origin is"),
    "one witness only": (_cosigned(CAROL), QuorumError, "1 of 3 witnesses, which is no quorum"),
    "no witness": (_cosigned(), QuorumError, "0 of 3 witnesses"),
    "witnesses that are not listed": (_cosigned("x.example", "y.example"), QuorumError, "0 of 3 witnesses"),
    "a cosignature that does not verify": (_bad_cosignature, SignatureError, f"signature of {BOB} does not"),
}


@pytest.mark.parametrize(
    ("change", "error", "match"), [pytest.param(*row, id=name) for name, row in BROKEN.items()]
)
def test_a_broken_step_is_refused_and_named(
    log: HubLog, good: HubEvidence, change: Change, error: type[VeenError], match: str
) -> None:
    with pytest.raises(error, match=match) as refusal:
        verify_evidence(change(log, good), pinned=log.hub.identity.hub_id, policy=policy())
    assert type(refusal.value) is error


def test_no_changed_byte_of_a_file_of_evidence_changes_what_it_proves(log: HubLog, good: HubEvidence) -> None:
    """Only the start of the hub's first key may differ: no signature in the file covers it (§8.4)."""
    wire, rules, pinned = good.encode(), policy(), log.hub.identity.hub_id
    first = good.identity.hub_keys[0]
    for at in range(len(wire)):
        try:
            changed = parse_evidence(flip(wire, at))
            verify_evidence(changed, pinned=pinned, policy=rules)
        except VeenError:
            continue
        key = dataclasses.replace(changed.identity.hub_keys[0], valid_from=first.valid_from)
        restored = dataclasses.replace(changed.identity, hub_keys=(key,))
        assert dataclasses.replace(changed, identity=restored) == good


def test_a_retired_key_cannot_have_signed_a_log_with_a_later_entry(log: HubLog) -> None:
    hub, old = log.hub, log.hub.key
    hub.now = UnixTime(hub.now + 100)
    hub.rotate_key(50)
    hub.now = UnixTime(hub.now + 1_000)
    hub.append(person("late", hub).compose())
    index = log.add_own()
    made = log.evidence(9, index, log.checkpoint(keys=(old,)))
    with pytest.raises(SignatureError, match="no key of the hub signed it"):
        verify_evidence(made, pinned=hub.identity.hub_id)
    verify_evidence(log.evidence(9, index, log.checkpoint()), pinned=hub.identity.hub_id)


def test_a_verifier_that_knows_of_a_retired_key_is_not_fooled_by_an_older_record(log: HubLog) -> None:
    """The holder of a retired key can show a record that ends with that key (§8.4)."""
    hub, old, older = log.hub, log.hub.key, log.hub.identity
    hub.now = UnixTime(hub.now + 100)
    hub.rotate_key(50)
    newest = hub.identity
    hub.now, hub.identity = UnixTime(hub.now + 1_000), older
    hub.append(person("late", hub).compose(), key=old)
    made = log.evidence(9, log.add_own(), log.checkpoint(keys=(old,)))
    verify_evidence(made, pinned=newest.hub_id)
    with pytest.raises(SignatureError, match=r"RECEIPT.hub_sig at stream_seq 9"):
        verify_evidence(made, pinned=newest.hub_id, known=newest)
    with pytest.raises(IdentityError, match="the pinned hub is"):
        verify_evidence(made, known=Hub(name="another").identity)


# --- which log it is


def test_a_policy_that_names_other_logs_refuses_the_evidence(log: HubLog, good: HubEvidence) -> None:
    other = Hub(name="another")
    with pytest.raises(SignatureError, match=r"the policy does not name the log veen.hub/"):
        verify_evidence(good, pinned=log.hub.identity.hub_id, policy=policy(log_line(other)))
    assert verify_evidence(good, policy=policy(log_line(other), log_line(log.hub))).cosigned


def test_a_log_with_a_name_of_its_own_must_be_named_by_the_policy_or_the_caller(log: HubLog) -> None:
    """Otherwise a hub could keep a second log, and have it cosigned too."""
    made, pinned = log.evidence(3, 2, log.checkpoint(ALICE, BOB, origin=OWN)), log.hub.identity.hub_id
    assert verify_evidence(made, pinned=pinned).checkpoint.head.origin == OWN
    with pytest.raises(EvidenceError, match="nothing says that it is the hub's one log"):
        verify_evidence(made, pinned=pinned, policy=policy())
    with pytest.raises(EvidenceError, match="nothing says that it is the hub's one log"):
        verify_evidence(made, pinned=pinned, policy=policy(), origin="logs.example/another")
    with pytest.raises(SignatureError, match=f"the policy does not name the log {OWN}"):
        verify_evidence(made, pinned=pinned, policy=policy(log_line(log.hub)))
    for how in ({"policy": policy(log_line(log.hub, OWN))}, {"policy": policy(), "origin": OWN}):
        assert verify_evidence(made, pinned=pinned, **how).cosigned is not None


def impostor(victim: Hub) -> HubIdentity:
    """Return an identity that lists the victim's key as the successor of another key."""
    first, hub_pk, start = signing_key("impostor/0"), victim.hub_pk, UnixTime(5)
    own = new_identity(first, UnixTime(0))
    listed = dataclasses.replace(
        victim.identity.hub_keys[0],
        valid_from=start,
        endorsement=first.sign(endorsement_digest(own.hub_id, hub_pk, start)),
    )
    return dataclasses.replace(own, hub_keys=(*own.hub_keys, listed))


def test_without_a_pinned_hub_a_log_with_a_name_of_its_own_must_be_tied_to_the_first_key(log: HubLog) -> None:
    """Otherwise an attacker could list the hub's key as the successor of its own, and sign with its own."""
    rules = policy(log_line(log.hub, OWN))
    made = log.evidence(3, 2, log.checkpoint(ALICE, BOB, origin=OWN))
    assert verify_evidence(made, policy=rules).cosigned is not None
    identity = impostor(log.hub)
    forged = dataclasses.replace(
        made,
        identity=identity,
        checkpoint=log.checkpoint(ALICE, BOB, origin=OWN, keys=(signing_key("impostor/0"),)).encode(),
    )
    assert verify_evidence(forged).checkpoint.head.origin == OWN  # it proves something about the impostor
    with pytest.raises(EvidenceError, match=r"nothing ties the log 'logs.example/hub' to hub"):
        verify_evidence(forged, policy=rules)
    with pytest.raises(IdentityError, match="the pinned hub is"):
        verify_evidence(forged, policy=rules, pinned=log.hub.identity.hub_id)


def test_another_hub_cannot_use_the_name_of_a_hub(log: HubLog, good: HubEvidence) -> None:
    """P1's name contains the hub_id, so the impostor's log has another name."""
    forged = dataclasses.replace(
        good,
        identity=impostor(log.hub),
        checkpoint=log.checkpoint(ALICE, BOB, keys=(signing_key("impostor/0"),)).encode(),
        origin=origin_of(log.hub.identity.hub_id),
    )
    with pytest.raises(EvidenceError, match="nothing"):
        verify_evidence(forged, policy=policy())
    with pytest.raises(EvidenceError, match="nothing ties the log"):
        verify_evidence(forged, policy=policy(log_line(log.hub)))


# --- files


def test_a_file_is_parsed_as_it_was_encoded(good: HubEvidence) -> None:
    assert parse_evidence(good.encode()) == good
    assert HubEvidence.from_json(good.to_json()) == good


def test_a_file_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(DecodeError, match=rf"hub evidence .*at most {MAX_EVIDENCE_BYTES} are allowed"):
        parse_evidence(bytes(MAX_EVIDENCE_BYTES + 1))


def test_a_file_whose_checkpoint_is_not_one_is_refused_when_it_is_parsed(good: HubEvidence) -> None:
    bad = dataclasses.replace(good, checkpoint=good.checkpoint[:-1])
    with pytest.raises(DecodeError, match=r"hub evidence.checkpoint \(RESOLUTIONS P1\): note \(C2SP"):
        parse_evidence(bad.encode())


def test_a_pinned_hub_id_of_another_hub_is_refused(good: HubEvidence) -> None:
    with pytest.raises(IdentityError, match="the pinned hub is 0000"):
        verify_evidence(good, pinned=HubId(bytes(32)))
