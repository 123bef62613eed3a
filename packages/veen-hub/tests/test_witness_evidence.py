"""What a witness keeps when a log contradicts itself, and what a third party can verify of it offline."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from veen_core.errors import EvidenceError, SignatureError
from veen_core.ids import NodeHash, UnixTime
from veen_core.tlog.note import NoteKey, parse_key
from veen_core.tlog.tree_head import parse_signed_head
from veen_hub.witness import state as witness_state
from veen_hub.witness.contradiction import LogContradiction, find_contradiction, verify_contradiction
from veen_hub.witness.key import WitnessKey
from veen_hub.witness.state import CosignedHead, KeptContradiction, WitnessChanges, WitnessState
from veen_storage import DamageError

from .independent_log import IndependentLog
from .witnessing import NAME, SEED, WitnessProcess, make_witness

LOG = IndependentLog.of("log.example/evidence", 40)
OTHER = LOG.fork(2, 40)
"""A second history of the same log, signed with the same key."""
KEYS = [parse_key(LOG.vkey)]


@dataclass(frozen=True)
class Liar:
    """A log with two histories, and the witness that watches it."""

    witness: WitnessProcess
    log: IndependentLog

    @property
    def other(self) -> IndependentLog:
        """The second history, signed with the same key."""
        return self.log.fork(2, 40)

    @property
    def keys(self) -> list[NoteKey]:
        return [parse_key(self.log.vkey)]

    @property
    def kept(self) -> list[LogContradiction]:
        """Every contradiction that the witness lists, fetched."""
        listed = self.witness.logs()[self.log.origin]["contradictions"]
        answers = [self.witness.get(f"/contradiction/{each['id']}") for each in listed]
        return [LogContradiction.decode(answer.body) for answer in answers]


@pytest.fixture(scope="module")
def liars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[Liar]]:
    root = tmp_path_factory.mktemp("evidence") / "witness"
    logs = [IndependentLog.of(f"log.example/liar/{n}", 40) for n in range(20)]
    make_witness(root, logs)
    witness = WitnessProcess(root)
    yield (Liar(witness, log) for log in logs)
    assert witness.stop() == 0


@pytest.fixture
def liar(liars: Iterator[Liar]) -> Liar:
    """A log of its own for each test; the witness process is shared."""
    return next(liars)


def test_two_roots_at_one_size_are_evidence_that_anybody_can_verify(liar: Liar) -> None:
    liar.witness.cosigned(liar.log, 0, 5)
    assert liar.witness.post(liar.other.request(5, 5)).status == 409
    [found] = liar.kept
    assert (found.claim, found.is_evidence) == ("two-roots", True)
    verify_contradiction(found, liar.keys)
    texts = set()
    for note in found.notes:  # without VEEN code: a note is a text, an empty line, and signatures
        text, lines = note.rsplit("\n\n", 1)
        _dash, name, signature = lines.split("\n")[0].split(" ")
        assert name == liar.log.name
        liar.log.key.verify_key.verify(f"{text}\n".encode(), base64.b64decode(signature)[4:])
        texts.add(text)
    assert {text.split("\n")[1] for text in texts} == {"5"}
    assert len({text.split("\n")[2] for text in texts}) == 2


def test_two_roots_are_found_even_if_the_old_size_is_wrong(liar: Liar) -> None:
    liar.witness.cosigned(liar.log, 0, 5)
    assert liar.witness.post(liar.other.request(0, 5)).body == b"5\n"
    assert [found.claim for found in liar.kept] == ["two-roots"]


def test_a_root_of_the_empty_tree_needs_no_second_checkpoint(liar: Liar) -> None:
    assert liar.witness.post(liar.log.request(0, 0, liar.log.checkpoint(0, bytes(32)))).status == 409
    [found] = liar.kept
    assert len(found.notes) == 1
    verify_contradiction(found, liar.keys)


def test_a_log_that_extends_a_second_history_proves_its_own_fork(liar: Liar) -> None:
    liar.witness.cosigned(liar.log, 0, 5)
    assert liar.witness.post(liar.other.request(5, 9)).status == 422
    [found] = liar.kept
    assert found.claim == "fork"
    verify_contradiction(found, liar.keys)


def test_at_a_power_of_two_the_proof_of_a_fork_has_no_old_root(liar: Liar) -> None:
    liar.witness.cosigned(liar.log, 0, 8)
    assert liar.witness.post(liar.other.request(8, 13)).status == 422
    assert [found.claim for found in liar.kept] == ["unproven"]


@pytest.mark.parametrize("proof", [[], [bytes(32)], [bytes(32)] * 4], ids=["none", "short", "wrong"])
def test_a_wrong_proof_alone_is_no_evidence(liar: Liar, proof: list[bytes]) -> None:
    liar.witness.cosigned(liar.log, 0, 5)
    assert liar.witness.post(liar.log.request(5, 9, proof=proof)).status == 422
    [found] = liar.kept
    assert (found.claim, found.is_evidence) == ("unproven", False)
    with pytest.raises(EvidenceError, match="ask the log for a consistency proof"):
        verify_contradiction(found, liar.keys)


def test_an_unproven_pair_is_removed_when_the_checkpoint_is_cosigned(liar: Liar) -> None:
    liar.witness.cosigned(liar.log, 0, 5)
    liar.witness.post(liar.log.request(5, 9, proof=[]))
    liar.witness.post(liar.log.request(5, 11, proof=[]))
    liar.witness.cosigned(liar.log, 5, 9)
    assert [found.heads[-1].head.size for found in liar.kept] == [11]


def test_a_question_and_its_answer_at_the_same_time_leave_no_question(liar: Liar) -> None:
    """Wrong and right proofs arrive together, so that both can be in one transaction, or in two."""
    liar.witness.cosigned(liar.log, 0, 5)
    with ThreadPoolExecutor(8) as pool:
        for size in range(6, 40):
            wrong, right = liar.log.request(size - 1, size, proof=[]), liar.log.request(size - 1, size)
            assert 200 in [each.status for each in pool.map(liar.witness.post, [wrong, right, wrong])]
            asked = [found.heads[-1].head.size for found in liar.kept]
            assert size not in asked, "a proof was shown before the question, or after it"


def test_evidence_survives_kill_9(tmp_path: Path) -> None:
    make_witness(tmp_path / "witness", [LOG])
    witness = WitnessProcess(tmp_path / "witness")
    witness.cosigned(LOG, 0, 5)
    witness.post(OTHER.request(5, 5))
    before = Liar(witness, LOG).kept
    assert before
    witness.kill()
    witness = WitnessProcess(tmp_path / "witness")
    assert Liar(witness, LOG).kept == before
    witness.stop()


def test_what_is_kept_is_bounded_and_evidence_is_not_displaced(liar: Liar) -> None:
    liar.witness.cosigned(liar.log, 0, 5)
    dropped = liar.witness.metric("veen_witness_contradictions_dropped_total")
    for size in range(6, 26):
        liar.witness.post(liar.log.request(5, size, proof=[]))
    forged = [liar.log.checkpoint(5, bytes([n]) * 32) for n in range(20)]
    for note in forged:
        liar.witness.post(liar.log.request(5, 5, note))
        liar.witness.post(liar.log.request(5, 5, note))  # once more: kept once
    claims = [found.claim for found in liar.kept]
    assert sorted(claims) == ["two-roots"] * 8 + ["unproven"] * 8
    assert liar.witness.metric("veen_witness_contradictions_dropped_total") - dropped == 12 + 2 * 12
    line = f'veen_witness_contradictions{{claim="two-roots",origin="{liar.log.origin}"}}'
    assert liar.witness.metric(line) == 8


def test_all_evidence_together_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = WitnessKey.of(NAME, SEED).verifier
    WitnessState.create(tmp_path / "state", key)
    state = WitnessState(tmp_path / "state", key)
    found = [two_roots(IndependentLog.of(f"log.example/{n}", 9)) for n in range(5)]
    monkeypatch.setattr(witness_state, "MAX_BYTES", 3 * len(found[0].encode()))
    for each in map(KeptContradiction.of, found):
        if state.has_room(each, []):
            changes = WitnessChanges(kept=[each])
            state.write(changes)
            state.adopt(changes)
    assert (len(state.contradictions), state.dropped) == (3, 2)
    state.close()
    reopened = WitnessState(tmp_path / "state", key)
    assert reopened.contradictions == state.contradictions
    assert not reopened.has_room(KeptContradiction.of(found[3]), [])
    reopened.close()


def two_roots(log: IndependentLog = LOG, size: int = 5) -> LogContradiction:
    known, new = log.checkpoint(size), log.fork(2, 9).checkpoint(size)
    found = find_contradiction(
        parse_signed_head(known.encode()), parse_signed_head(new.encode()), None, UnixTime(7)
    )
    assert found is not None
    return found


def fork() -> LogContradiction:
    known, new = LOG.checkpoint(5), OTHER.checkpoint(9)
    found = find_contradiction(
        parse_signed_head(known.encode()), parse_signed_head(new.encode()), OTHER.proof(5, 9), UnixTime(7)
    )
    assert found is not None
    return found


STRANGER = IndependentLog.of("log.example/evidence", 9, seed="a stranger")
FALSE = {
    "the same checkpoint twice": replace(two_roots(), notes=(LOG.checkpoint(5), LOG.checkpoint(5))),
    "another size": replace(two_roots(), notes=(LOG.checkpoint(5), LOG.checkpoint(6))),
    "one checkpoint": replace(two_roots(), notes=(LOG.checkpoint(5),)),
    "no checkpoint": replace(two_roots(), notes=()),
    "three checkpoints": replace(two_roots(), notes=(*two_roots().notes, LOG.checkpoint(7))),
    "the right root of the empty tree": replace(two_roots(), notes=(LOG.checkpoint(0),)),
    "a fork without a proof": replace(fork(), proof=()),
    "a fork with a wrong proof": replace(fork(), proof=(NodeHash(bytes(32)), *fork().proof[1:])),
    "a fork of one history": replace(
        fork(), notes=(LOG.checkpoint(5), LOG.checkpoint(9)), proof=tuple(map(NodeHash, LOG.proof(5, 9)))
    ),
    "a fork in the wrong order": replace(fork(), notes=fork().notes[::-1]),
    "signed by a stranger": replace(
        two_roots(), notes=(LOG.checkpoint(5), STRANGER.fork(2, 9).checkpoint(5))
    ),
    "of two logs": replace(
        two_roots(), notes=(LOG.checkpoint(5), IndependentLog.of("log.example/b", 9).checkpoint(5))
    ),
}


@pytest.mark.parametrize("claim", FALSE.values(), ids=FALSE)
def test_a_false_claim_is_refused(claim: LogContradiction) -> None:
    with pytest.raises((EvidenceError, SignatureError)):
        verify_contradiction(claim, KEYS)


def test_evidence_is_the_same_file_after_a_round_trip() -> None:
    for found in (two_roots(), fork()):
        assert LogContradiction.decode(found.encode()) == found
        assert LogContradiction.from_json(found.to_json()) == found
        verify_contradiction(found, KEYS)


def test_a_pair_that_is_consistent_is_no_contradiction() -> None:
    known, larger = (parse_signed_head(LOG.checkpoint(size).encode()) for size in (5, 9))
    for new, proof in ((known, None), (larger, None), (known, ())):
        assert find_contradiction(known, new, proof, UnixTime(7)) is None
    assert find_contradiction(None, larger, (), UnixTime(7)) is None


def test_a_smaller_checkpoint_is_no_contradiction(liar: Liar) -> None:
    liar.witness.cosigned(liar.log, 0, 9)
    assert liar.witness.post(liar.log.request(5, 5)).status == 409
    assert not liar.kept


def test_only_signatures_that_the_witness_verified_are_kept(liar: Liar) -> None:
    """Otherwise a sender could fill the state with signature lines of its own."""
    liar.witness.cosigned(liar.log, 0, 5)
    note = liar.other.checkpoint(5) + STRANGER.signature(liar.other.text(5))
    assert liar.witness.post(liar.log.request(5, 5, note)).status == 409
    [found] = liar.kept
    assert [len(head.note.signatures) for head in found.heads] == [2, 1]  # the log and this witness, the log


def test_a_head_without_the_witness_s_cosignature_is_damage(tmp_path: Path) -> None:
    """A state whose head lacks the witness's own cosignature is damaged."""
    key = WitnessKey.of(NAME, SEED).verifier
    WitnessState.create(tmp_path / "state", key)
    state = WitnessState(tmp_path / "state", key)
    head = CosignedHead(parse_signed_head(LOG.checkpoint(5).encode()), UnixTime(7))
    state.write(WitnessChanges(heads={LOG.origin: head}))
    state.close()
    with pytest.raises(DamageError, match="no cosignature of this witness"):
        WitnessState(tmp_path / "state", key)
