"""Result files: evidence, offline verification, re-execution, comparison (query-api §5, §6, §9.1, P13)."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from query_logs import (
    EXECUTION,
    START,
    Evidence,
    Hub,
    Stream,
    answer,
    engine,
    evidence_of,
    identities,
    query,
    result,
    two_streams,
)
from query_strategies import descriptors, streams

from veen_core.errors import (
    DecodeError,
    EvidenceError,
    ProofError,
    SignatureError,
    VeenError,
    VerificationError,
)
from veen_core.hashing import H
from veen_core.ids import MmrRoot, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.mmr import Mmr
from veen_core.proof import prove_inclusion
from veen_core.receipt import Receipt, sign_receipt
from veen_core.tlog.note import COSIGNATURE, NoteKey, cosign
from veen_core.tlog.policy import parse_policy
from veen_core.tlog.tree_head import parse_signed_head
from veen_overlays.query import Prefix, QueryAnswer, QueryDescriptor, QueryError, SourceEvent, canonical_json
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.engine import SourceReceipt
from veen_overlays.query.plain_engine import PlainEngine
from veen_overlays.query.result.evidence import ResultEvidence, build_evidence
from veen_overlays.query.result.inclusion import (
    prove_from_leaves,
    prove_from_nodes,
    verify_leaves,
)
from veen_overlays.query.result.read_digest import read_digest
from veen_overlays.query.result.result_file import (
    ResultFile,
    encode_rows,
    make_result,
    parse_result,
    split_rows,
)
from veen_overlays.query.verify.comparison import compare
from veen_overlays.query.verify.completeness import MARGIN_MS, check_complete
from veen_overlays.query.verify.reexecution import reexecute
from veen_overlays.query.verify.row_rules import difference
from veen_overlays.query.verify.verification import MAX_CLOCK_SKEW_MS, ResultTrust, verify_result

FIRST, SECOND = two_streams()
BOTH = (FIRST, SECOND)
PINNED = ResultTrust(pinned={FIRST.hub.hub_id})
FULL = query(FIRST.name, SECOND.name)
SPOT = query(FIRST.name, SECOND.name, evidence={"mode": "spot", "sample_rate": 0.3})
NONE = query(FIRST.name, SECOND.name, evidence={"mode": "none"})
COUNTS = query(
    FIRST.name,
    SECOND.name,
    projection=["receipt_id"],
    aggregate={"group_by": ["subject_id"], "metrics": ["count", "max(payload.n)"]},
)
WINDOW = query(
    FIRST.name,
    filter={
        "subject_id": "user:1",
        "event_type": ["login"],
        "time": {"from": "2025-11-18T21:06:42Z", "to": "2025-11-18T21:06:50Z"},
        "where": {"origin": "api-1"},
    },
)
SPOT_COUNTS = query(
    FIRST.name,
    SECOND.name,
    aggregate={"metrics": ["count"]},
    evidence={"mode": "spot", "sample_rate": 0.3},
)
QUERIES = {
    "full": FULL,
    "spot": SPOT,
    "none": NONE,
    "aggregate": COUNTS,
    "window": WINDOW,
    "sampled aggregate": SPOT_COUNTS,
}


STRIDE = int(os.environ.get("VEEN_QUERY_STRIDE", "23"))
"""Distance of the bytes that are changed, one at a time; 1 changes every byte."""


# --- inclusion of many leaves


def leaves_of(size: int) -> list[bytes]:
    return [H(b"leaf" + bytes([n % 251, n // 251])) for n in range(size)]


@given(st.integers(1, 70).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(1, n), min_size=1))))
def test_any_set_of_leaves_is_proved_and_all_builders_agree(drawn: tuple[int, set[int]]) -> None:
    size, chosen = drawn
    seqs, leaves = sorted(chosen), leaves_of(size)
    tree, nodes = Mmr(), {}
    for leaf in leaves:
        nodes |= {(node.height, node.index): node.hash for node in tree.append(leaf)}

    def lookup(height: int, index: int) -> bytes:
        return nodes[height, index]

    proof = prove_from_leaves(leaves, seqs, size)
    assert proof == prove_from_nodes(lookup, seqs, size)
    single = [prove_inclusion(lookup, StreamSeq(seq), size) for seq in seqs]
    picked = [leaves[seq - 1] for seq in seqs]
    verify_leaves(proof, seqs, picked, size, tree.root)
    assert len(proof) <= 32 * sum(len(each.path) + len(each.peaks_after) for each in single)
    for wrong in (proof + bytes(32), proof[:-1] if proof else b"x"):
        with pytest.raises(ProofError):
            verify_leaves(wrong, seqs, picked, size, tree.root)
    with pytest.raises(ProofError):
        verify_leaves(proof, seqs, [*picked[:-1], H(b"other")], size, tree.root)


@pytest.mark.parametrize("seqs", [[0], [2, 2], [3, 2], [9]], ids=str)
def test_places_that_are_not_ascending_leaves_of_the_tree_are_refused(seqs: list[int]) -> None:
    leaves = leaves_of(8)
    with pytest.raises(ProofError):
        prove_from_leaves(leaves, seqs, 8)
    with pytest.raises(ProofError):
        verify_leaves(b"", seqs, [leaves[0]] * len(seqs), 8, MmrRoot(bytes(32)))


def test_missing_leaf_hashes_are_refused() -> None:
    with pytest.raises(ProofError, match="missing"):
        prove_from_leaves(leaves_of(5), [2], 8)


# --- building evidence


class Altered(Evidence):
    """Evidence with one part altered."""

    def __init__(self, **parts: Callable[..., Any]) -> None:
        super().__init__(BOTH)
        for name, make in parts.items():
            setattr(self, name, make)


@pytest.mark.parametrize("descriptor", [FULL, SPOT, COUNTS], ids=["full", "spot", "aggregate"])
def test_a_receipt_that_does_not_verify_fails_the_query(descriptor: QueryDescriptor) -> None:
    found = answer(descriptor, *BOTH)
    for at, each in enumerate(found.sources):
        forged = each.receipt[:-1] + bytes([each.receipt[-1] ^ 1])
        sources = [*found.sources[:at], each._replace(receipt=forged), *found.sources[at + 1 :]]
        if descriptor.evidence.mode == "spot":
            sources = [s._replace(receipt=s.receipt[:-1] + bytes([s.receipt[-1] ^ 1])) for s in found.sources]
        with pytest.raises(QueryError, match="hub_sig") as failed:
            evidence_of(descriptor, dataclasses.replace(found, sources=sources), *BOTH)
        assert failed.value.code == "execution_failed"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (Altered(head=lambda _prefix: None), "is missing"),
        (Altered(head=lambda _prefix: b"\x80"), "RECEIPT"),
        (Altered(head=lambda _prefix: FIRST.receipts[0].encode()), "ends at entry|another label"),
        (Altered(proof=lambda _prefix, _seqs: bytes(32)), "inclusion proof"),
        (Altered(proof=lambda _prefix, _seqs: b""), "inclusion proof"),
    ],
    ids=["no head", "no receipt", "old head", "wrong proof", "no proof"],
)
def test_evidence_that_does_not_verify_fails_the_query(source: Evidence, why: str) -> None:
    found = answer(FULL, *BOTH)
    with pytest.raises(QueryError, match=why) as failed:
        build_evidence(FULL, found, source, identities(BOTH))
    assert failed.value.code == "execution_failed"
    assert failed.value.action


def test_evidence_needs_the_keys_of_every_hub_and_every_receipt() -> None:
    found = answer(FULL, *BOTH)
    with pytest.raises(QueryError, match="keys of hub"):
        build_evidence(FULL, found, Evidence(BOTH), {})
    with pytest.raises(QueryError, match="breaks its contract"):
        evidence_of(FULL, dataclasses.replace(found, sources=found.sources[1:]), *BOTH)


# --- verification of what is true


@pytest.mark.parametrize("name", QUERIES)
def test_a_result_file_verifies_after_a_round_trip(name: str) -> None:
    descriptor = QUERIES[name]
    streams = BOTH if len(descriptor.scope) == 2 else (FIRST,)
    file = parse_result(result(descriptor, *streams).encode())
    verdict = verify_result(file, PINNED)
    assert verdict.descriptor == descriptor
    assert verdict.hubs == (FIRST.hub.hub_id,)
    assert verdict.complete_before == min(each.receipts[-1].hub_ts for each in streams) * 1000
    assert any("every entry of its sources" in step for step in verdict.steps)
    reexecute(file, engine(*streams))
    assert read_digest(file.digest_json).canonical() == file.digest_json


@given(streams(), descriptors())
def test_every_result_of_every_query_verifies_and_can_be_executed_again(
    made: list[Stream], descriptor: QueryDescriptor
) -> None:
    file = parse_result(result(descriptor, *made).encode())
    verify_result(file, ResultTrust(pinned={stream.hub.hub_id for stream in made}))
    reexecute(file, engine(*reversed(made)))
    assert compare(file, result(descriptor, *reversed(made))).agrees


def test_the_same_query_over_the_same_data_gives_the_same_bytes() -> None:
    assert result(FULL, *BOTH).encode() == result(FULL, *two_streams()).encode()


def test_a_result_over_two_hubs_needs_both_to_be_pinned() -> None:
    other = Stream(FIRST.name, Hub(2))
    other.add()
    file = result(query(FIRST.name), FIRST, other)
    verify_result(file, ResultTrust(pinned={FIRST.hub.hub_id, other.hub.hub_id}))
    verify_result(file)
    with pytest.raises(EvidenceError, match=r"not pinned.*pin this hub_id"):
        verify_result(file, PINNED)


def test_a_source_without_entries_is_covered_and_named_in_the_limits() -> None:
    empty = Stream("record/empty", FIRST.hub)
    file = result(query(FIRST.name, empty.name), FIRST, empty)
    verdict = verify_result(file, PINNED)
    assert verdict.complete_before is None
    assert "empty_source" in [each["limit"] for each in verdict.digest.limits]


@pytest.mark.parametrize("upto", [5, 12], ids=["head before the end", "head at the end"])
def test_a_hub_checkpoint_ties_a_source_to_the_hub_log(upto: int) -> None:
    link = FIRST.link(upto, len(FIRST.leaves))
    text = parse_signed_head(link.checkpoint).head.text
    descriptor = query(FIRST.name)
    prefix = dataclasses.replace(FIRST.prefix, checkpoint=text)
    found = engine(FIRST).execute(descriptor, [prefix])
    evidence = build_evidence(descriptor, found, Evidence(BOTH, {FIRST.label: link}), identities([FIRST]))
    file = make_result(descriptor, found, evidence, EXECUTION)
    verdict = verify_result(parse_result(file.encode()), PINNED)
    assert any("hub checkpoint of 1 source" in step for step in verdict.steps)
    plain = result(descriptor, FIRST)
    assert compare(file, plain).agrees, "another checkpoint of the same prefix changes no hash"
    for broken, why in (
        (dataclasses.replace(link, index=0), "inclusion proof"),
        (dataclasses.replace(link, checkpoint=link.checkpoint.replace(b"veen.hub", b"veen.hat")), "origin"),
        (dataclasses.replace(link, head=dataclasses.replace(link.head, label=SECOND.label)), "another label"),
        (
            dataclasses.replace(link, head=dataclasses.replace(link.head, upto_seq=StreamSeq(4))),
            "consistency",
        ),
    ):
        source = dataclasses.replace(file.evidence.sources[0], link=broken)
        evidence = dataclasses.replace(file.evidence, sources=(source,))
        with pytest.raises(VerificationError, match=why):
            verify_result(dataclasses.replace(file, evidence=evidence), PINNED)
    gone = dataclasses.replace(file.evidence.sources[0], link=None)
    evidence = dataclasses.replace(file.evidence, sources=(gone,))
    with pytest.raises(EvidenceError, match="lacks the hub checkpoint"):
        verify_result(dataclasses.replace(file, evidence=evidence), PINNED)


def linked(upto: int, *cosigned: SigningKey, origin: str | None = None) -> ResultFile:
    """A result whose source leads to a hub checkpoint with these cosignatures."""
    to_seq = len(FIRST.leaves)
    link = FIRST.link(upto, to_seq, origin=origin)
    note = parse_signed_head(link.checkpoint).note
    now = UnixTime(START + 100)
    more = [cosign(key, "w.example", note.text, now) for key in cosigned]
    link = dataclasses.replace(link, checkpoint=note.with_signatures(more).encode())
    descriptor = query(FIRST.name)
    found = engine(FIRST).execute(descriptor, [dataclasses.replace(FIRST.prefix, checkpoint=note.text)])
    evidence = build_evidence(descriptor, found, Evidence(BOTH, {FIRST.label: link}), identities([FIRST]))
    return make_result(descriptor, found, evidence, EXECUTION)


WITNESS = SigningKey(SigningSeed(H(b"witness")))
POLICY = parse_policy(
    f"witness w {NoteKey('w.example', COSIGNATURE, WITNESS.public).text}\nquorum w\n".encode()
)


def test_a_witness_policy_asks_for_cosignatures_that_cover_the_whole_source() -> None:
    trust = dataclasses.replace(PINNED, policy=POLICY)
    verdict = verify_result(linked(12, WITNESS), trust)
    assert any("witnesses cosigned the hub checkpoint of 1 source" in step for step in verdict.steps)
    for file, why in (
        (linked(12), "no quorum"),
        (linked(12, SigningKey(SigningSeed(H(b"impostor")))), "no quorum"),
        (linked(5, WITNESS), "no witness vouches for the entries after 5"),
        (result(query(FIRST.name), FIRST), "no hub checkpoint"),
        (linked(12, WITNESS, origin="log.example/a"), "nothing says that it is the hub's one log"),
    ):
        verify_result(file, PINNED)
        with pytest.raises(VerificationError, match=why):
            verify_result(file, trust)


# --- a file that was altered on its way


def with_rows(file: ResultFile, rows: Sequence[Any]) -> ResultFile:
    return dataclasses.replace(file, rows_json=canonical_json.encode(list(rows)))


def changed(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: "x" if isinstance(row[name], str) else 10**9 for name in sorted(row)[:1]}


def alterations(rows: list[Any]) -> dict[str, tuple[list[Any], str]]:
    return {
        "dropped": ([*rows[:1], *rows[2:]], f"row 2 of {len(rows)} is missing"),
        "last dropped": (rows[:-1], f"row {len(rows)} of {len(rows)} is missing"),
        "added": ([*rows[:1], changed(rows[0]), *rows[1:]], "row 2 was added"),
        "doubled": ([*rows[:2], rows[1], *rows[2:]], "row 3 repeats row 2"),
        "swapped": ([rows[1], rows[0], *rows[2:]], "row 1 is out of order"),
        "changed": ([*rows[:1], changed(rows[1]), *rows[2:]], "row 2 was changed"),
    }


@pytest.mark.parametrize("mode", ["full", "spot", "none", "aggregate"])
@pytest.mark.parametrize("what", alterations([{}, {}]))
def test_an_altered_row_is_named(mode: str, what: str) -> None:
    file = result(QUERIES[mode], *BOTH)
    rows, why = alterations(file.rows())[what]
    with pytest.raises(EvidenceError, match=why):
        verify_result(with_rows(file, rows), PINNED)


@pytest.mark.parametrize("mode", ["full", "spot", "none", "aggregate"])
@pytest.mark.parametrize("what", alterations([{}, {}]))
def test_altered_rows_with_matching_row_hashes_are_refused(mode: str, what: str) -> None:
    file = result(QUERIES[mode], *BOTH)
    rows, _why = alterations(file.rows())[what]
    hashes = b"".join(map(H, split_rows(rows)))
    with pytest.raises(EvidenceError, match=r"row_count|rows_hash"):
        verify_result(dataclasses.replace(with_rows(file, rows), row_hashes=hashes), PINNED)


def with_digest(file: ResultFile, change: Callable[[dict[str, Any]], object]) -> ResultFile:
    digest = json.loads(file.digest_json)
    change(digest)
    return dataclasses.replace(file, digest_json=canonical_json.encode(digest))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d["coverage"][0].update(to_seq=11, scanned=11, opened=9), "result_id"),
        (lambda d: d["coverage"][0].update(from_seq=2), "result_id"),
        (lambda d: d["coverage"].pop(), "result_id"),
        (lambda d: d["coverage"][0].update(unopened=0, opened=11), "limits"),
        (lambda d: d["coverage"][1].update(opened=8, pruned=1), "limits"),
        (lambda d: d["coverage"][1].update(matched=8), "events match, but there are"),
        (lambda d: d["coverage"][1].update(scanned=10), "range 1 to 9 has 9"),
        (lambda d: d["coverage"][1].update(opened=10), "do not add up"),
        (lambda d: d.update(row_count=17), "row_count says 17"),
        (lambda d: d.update(rows_hash="00" * 32), "rows_hash"),
        (lambda d: d.update(evidence_hash="00" * 32), "evidence_hash"),
        (lambda d: d.update(query_id="q-other"), "another query_id"),
        (lambda d: d.update(result_id="r-" + "0" * 32), "result_id"),
        (lambda d: d.update(evidence_policy={"mode": "none"}), "different evidence policies"),
        (lambda d: d["limits"].pop(), "limits"),
        (lambda d: d.update(version=2), "ResultDigest.version"),
        (lambda d: d.update(extra=1), "unknown key"),
        (lambda d: d.pop("hub_id"), "hub_id is missing"),
        (lambda d: d["coverage"][0].update(label="xx"), r"coverage\[0\].label"),
        (lambda d: d["coverage"][0].update(epoch=-1), r"coverage\[0\].epoch"),
        (lambda d: d.update(coverage={}), "want an array"),
        (lambda d: d.update(executed_at="now"), "want a timestamp"),
        (lambda d: d.update(executed_at="2025-11-19T03:20:00Z"), "form in which"),
    ],
)
def test_a_changed_digest_is_refused(change: Callable[[dict[str, Any]], object], why: str) -> None:
    with pytest.raises((EvidenceError, DecodeError), match=why):
        verify_result(with_digest(result(FULL, *BOTH), change), PINNED)


@pytest.mark.parametrize("name", QUERIES)
def test_no_changed_byte_of_the_signed_parts_goes_unnoticed(name: str) -> None:
    descriptor = QUERIES[name]
    file = result(descriptor, *(BOTH if len(descriptor.scope) == 2 else (FIRST,)))
    data = file.encode()
    executed = data.index(b'"executed_at"')
    # When and where a query was executed is said by the executor alone; the start of a hub's first key is not
    # part of what hub_id fixes (core §8.4).
    first_key = data.index(FIRST.hub.identity.hub_keys[0].hub_pk) + 32
    said = {*range(executed, data.index(b'"limits"')), *range(first_key, first_key + 6)}
    for at in sorted({*range(0, len(data), STRIDE)} - said):
        altered = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(VeenError):
            verify_result(parse_result(altered), PINNED)


# --- an executor that lies, and computes all hashes again


def lie(
    descriptor: QueryDescriptor,
    found: QueryAnswer,
    evidence: ResultEvidence,
    **changes: Any,
) -> ResultFile:
    return make_result(descriptor, dataclasses.replace(found, **changes), evidence, EXECUTION)


def honest() -> tuple[QueryAnswer, ResultEvidence]:
    found = answer(FULL, *BOTH)
    return found, evidence_of(FULL, found, *BOTH)


def first_source(evidence: ResultEvidence, **changes: Any) -> ResultEvidence:
    first = dataclasses.replace(evidence.sources[0], **changes)
    return dataclasses.replace(evidence, sources=(first, *evidence.sources[1:]))


def test_a_row_hidden_with_its_receipt_left_in_is_refused() -> None:
    found, evidence = honest()
    file = lie(FULL, found, evidence, rows=found.rows[1:], sources=found.sources[1:])
    with pytest.raises(EvidenceError, match="18 events match, but there are 17 rows"):
        verify_result(file, PINNED)


def test_a_row_hidden_with_its_receipt_is_refused_by_the_count_of_receipts() -> None:
    found, evidence = honest()
    coverage = (dataclasses.replace(found.coverage[0], matched=8), found.coverage[1])
    file = lie(FULL, found, evidence, rows=found.rows[1:], sources=found.sources[1:], coverage=coverage)
    with pytest.raises(EvidenceError, match="8 events match, and the evidence has 9 receipts"):
        verify_result(file, PINNED)


def hidden_row() -> ResultFile:
    """A result that hides its first row consistently; only the log shows the row."""
    found, _ = honest()
    coverage = (dataclasses.replace(found.coverage[0], matched=8), found.coverage[1])
    less = dataclasses.replace(found, rows=found.rows[1:], sources=found.sources[1:], coverage=coverage)
    return make_result(FULL, less, evidence_of(FULL, less, *BOTH), EXECUTION)


def test_a_row_hidden_everywhere_is_found_by_executing_the_query_again() -> None:
    file = hidden_row()
    verify_result(file, PINNED)
    with pytest.raises(
        EvidenceError, match="executing the query again gives other rows: row 1 of 18 is missing"
    ):
        reexecute(file, engine(*BOTH))


def test_a_doubled_row_is_refused_by_its_receipt() -> None:
    found, evidence = honest()
    coverage = (dataclasses.replace(found.coverage[0], matched=10), found.coverage[1])
    rows = [found.rows[0], *found.rows]
    sources = [found.sources[0], *found.sources]
    receipts = (evidence.sources[0].receipts[0], *evidence.sources[0].receipts)
    file = lie(
        FULL, found, first_source(evidence, receipts=receipts), rows=rows, sources=sources, coverage=coverage
    )
    with pytest.raises(EvidenceError, match="appears twice"):
        verify_result(file, PINNED)


def test_swapped_rows_are_refused_by_their_receipts() -> None:
    found, evidence = honest()
    rows = [found.rows[1], found.rows[0], *found.rows[2:]]
    with pytest.raises(EvidenceError, match="row 1: hub_commit_seq differs from its receipt"):
        verify_result(lie(FULL, found, evidence, rows=rows), PINNED)
    receipts = evidence.sources[0].receipts
    swapped = first_source(evidence, receipts=(receipts[1], receipts[0], *receipts[2:]))
    sources = [found.sources[1], found.sources[0], *found.sources[2:]]
    with pytest.raises(EvidenceError, match="out of order"):
        verify_result(lie(FULL, found, swapped, rows=rows, sources=sources), PINNED)


@pytest.mark.parametrize("name", ["stream", "hub_id", "hub_commit_seq", "hub_commit_time", "receipt_id"])
def test_a_value_that_the_receipt_proves_cannot_be_changed(name: str) -> None:
    found, evidence = honest()
    value = 99 if name == "hub_commit_seq" else "2025-11-18T21:06:40.000Z"
    rows = [*found.rows[:4], {**found.rows[4], name: value}, *found.rows[5:]]
    with pytest.raises(EvidenceError, match=f"row 5: {name} differs from its receipt"):
        verify_result(lie(FULL, found, evidence, rows=rows), PINNED)


@pytest.mark.parametrize("name", ["subject_id", "event_type", "origin"])
def test_a_value_that_the_filter_excludes_is_refused(name: str) -> None:
    found = answer(WINDOW, FIRST)
    evidence = evidence_of(WINDOW, found, FIRST)
    rows = [{**found.rows[0], name: "other"}, *found.rows[1:]]
    with pytest.raises(EvidenceError, match=f"row 1: {name} has a value that the filter excludes"):
        verify_result(lie(WINDOW, found, evidence, rows=rows), PINNED)


def test_a_payload_changed_everywhere_is_found_by_executing_the_query_again() -> None:
    found, evidence = honest()
    rows = [*found.rows[:4], {**found.rows[4], "payload": {"n": -1}}, *found.rows[5:]]
    file = lie(FULL, found, evidence, rows=rows)
    verify_result(file, PINNED)
    with pytest.raises(EvidenceError, match="executing the query again gives other rows: row 5 was changed"):
        reexecute(file, engine(*BOTH))


def test_an_event_outside_the_time_filter_is_refused() -> None:
    found = answer(query(FIRST.name), FIRST)
    evidence = evidence_of(query(FIRST.name), found, FIRST)
    early = query(FIRST.name, filter={"time": {"to": "2025-11-18T21:06:42Z"}})
    with pytest.raises(EvidenceError, match=r"outside filter\.time"):
        verify_result(make_result(early, found, evidence, EXECUTION), PINNED)


@pytest.mark.parametrize("to_seq", [11, 5, 1, 0], ids=lambda n: f"ends at {n}")
def test_a_shortened_coverage_is_refused_because_the_hub_signed_no_such_root(to_seq: int) -> None:
    found, evidence = honest()
    first = found.coverage[0]
    shorter = dataclasses.replace(
        first, to_seq=to_seq, scanned=to_seq, opened=to_seq, unopened=0, pruned=0, matched=0
    )
    rest = [each for each in found.sources if each.source]
    file = lie(
        FULL,
        found,
        first_source(evidence, receipts=(), proof=b""),
        rows=found.rows[len(found.rows) - len(rest) :],
        sources=rest,
        coverage=(shorter, found.coverage[1]),
    )
    with pytest.raises(EvidenceError, match=r"ends at entry|outside the coverage|without entries"):
        verify_result(file, PINNED)


@pytest.mark.parametrize("mode", ["none", "full"])
def test_a_coverage_that_leaves_out_the_first_entries_is_refused_although_all_hashes_fit(mode: str) -> None:
    descriptor = query(FIRST.name, evidence={"mode": mode})
    found = answer(descriptor, FIRST)
    evidence = evidence_of(descriptor, found, FIRST)
    later = dataclasses.replace(
        found.coverage[0], from_seq=3, scanned=10, opened=found.coverage[0].opened - 2, matched=7
    )
    sources = found.sources[2:]
    file = lie(
        descriptor,
        found,
        evidence if mode == "none" else proving(evidence, sources),
        rows=found.rows[2:],
        sources=sources,
        coverage=(later,),
    )
    with pytest.raises(EvidenceError, match="the coverage begins at entry 3, so the entries before it"):
        verify_result(file, PINNED)
    with pytest.raises(QueryError, match="not 3 to 12"):
        reexecute(file, engine(FIRST))


def proving(evidence: ResultEvidence, sources: Sequence[SourceReceipt]) -> ResultEvidence:
    seqs = [each.seq for each in sources]
    proof = prove_from_leaves(FIRST.leaves, seqs, len(FIRST.leaves))
    return first_source(evidence, receipts=tuple(each.receipt for each in sources), proof=proof)


def older() -> tuple[QueryDescriptor, ResultFile]:
    """An honest result over the first five entries, given although the log has twelve."""
    descriptor = query(FIRST.name)
    root = FIRST.receipts[4].mmr_root
    prefix = dataclasses.replace(FIRST.prefix, to_seq=5, mmr_root=root)
    found = engine(FIRST).execute(descriptor, [prefix])
    return descriptor, make_result(descriptor, found, evidence_of(descriptor, found, FIRST), EXECUTION)


def test_an_old_prefix_is_refused_by_a_receipt_that_the_verifier_holds() -> None:
    _, file = older()
    verdict = verify_result(file, PINNED)
    assert verdict.complete_before == FIRST.receipts[4].hub_ts * 1000
    known = FIRST.receipts[8]
    with pytest.raises(EvidenceError, match="ends at entry 5, although the hub had committed entry 9"):
        verify_result(file, dataclasses.replace(PINNED, known=[known]))
    verify_result(file, dataclasses.replace(PINNED, known=[FIRST.receipts[2], FIRST.receipts[4]]))
    forged = dataclasses.replace(known, hub_ts=known.hub_ts + 1)
    with pytest.raises(SignatureError):
        verify_result(file, dataclasses.replace(PINNED, known=[forged]))


def test_an_old_prefix_is_refused_whatever_the_executor_says_about_the_time() -> None:
    _, file = older()
    known = FIRST.receipts[8]
    early = dataclasses.replace(file.digest, executed_at=known.hub_ts * 1000 - 1)
    backdated = dataclasses.replace(file, digest_json=early.canonical())
    verify_result(backdated, PINNED)
    with pytest.raises(EvidenceError, match=r"ends at entry 5, although.*entry 9.*leave this receipt out"):
        verify_result(backdated, dataclasses.replace(PINNED, known=[known]))


def test_the_log_shows_the_entries_and_sources_that_a_coverage_leaves_out() -> None:
    descriptor, file = older()
    other = Stream(FIRST.name, Hub(2))
    other.add()

    def check(late_ms: int, *streams: Stream) -> None:
        """Check a result that was executed so long after the first entry that it lacks."""
        digest = dataclasses.replace(file.digest, executed_at=1_000_000 + late_ms)
        check_complete(descriptor, digest, engine(*streams), lambda _prefix, _seq: 1_000_000)

    with pytest.raises(EvidenceError, match="ends at entry 5, although the hub had committed entry 6"):
        check(MARGIN_MS, FIRST)
    check(MARGIN_MS - 1, FIRST)
    with pytest.raises(EvidenceError, match="leaves this source out, although the hub had committed entry 1"):
        check(MARGIN_MS, other)


def test_a_held_receipt_of_a_stream_in_the_scope_that_the_coverage_leaves_out_is_refused() -> None:
    later = Stream(FIRST.name, FIRST.hub, epoch=7)
    later.add()
    file = result(query(FIRST.name), later)
    with pytest.raises(EvidenceError, match=r"epoch 0: the coverage leaves this source out.*entry 3"):
        verify_result(file, dataclasses.replace(PINNED, known=[FIRST.receipts[2]]))


def test_a_result_that_was_executed_before_its_last_entry_is_refused() -> None:
    _, file = older()
    committed = FIRST.receipts[4].hub_ts * 1000

    def executed(at: int) -> ResultFile:
        digest = dataclasses.replace(file.digest, executed_at=at)
        return dataclasses.replace(file, digest_json=digest.canonical())

    verify_result(executed(committed - MAX_CLOCK_SKEW_MS), PINNED)
    with pytest.raises(EvidenceError, match=r"entry 5 at .*, after the query was executed"):
        verify_result(executed(committed - MAX_CLOCK_SKEW_MS - 1), PINNED)


def test_a_receipt_that_is_of_no_source_of_the_coverage_is_reported() -> None:
    _, file = older()
    held = [FIRST.receipts[2], SECOND.receipts[3]]
    verdict = verify_result(file, dataclasses.replace(PINNED, known=held))
    (step,) = [step for step in verdict.steps if "not compared" in step]
    assert SECOND.label.hex() in step
    assert "entry 4" in step


@pytest.mark.parametrize("late", [-1, 1], ids=["before the question", "after the answer"])
def test_a_time_of_execution_that_the_asking_client_knows_to_be_false_is_refused(late: int) -> None:
    _, file = older()
    at = file.digest.executed_at
    for shift in (0, MAX_CLOCK_SKEW_MS):
        asked = at - late * shift
        verify_result(file, dataclasses.replace(PINNED, asked_between=(asked, asked)))
    asked = at - late * (MAX_CLOCK_SKEW_MS + 1)
    with pytest.raises(EvidenceError, match=r"executed at .*, but was asked for between.*clock"):
        verify_result(file, dataclasses.replace(PINNED, asked_between=(asked, asked)))


def test_an_answer_from_another_stream_of_the_hub_is_refused() -> None:
    other = Stream("record/app/other", FIRST.hub)
    other.label = SECOND.label
    for _ in range(3):
        other.add()
    file = result(query(other.name), other)
    with pytest.raises(EvidenceError, match="the label of the coverage does not belong to this stream"):
        verify_result(file, PINNED)
    verify_result(file, dataclasses.replace(PINNED, aliases={other.name: SECOND.name}))


def test_a_scope_that_the_coverage_leaves_out_is_refused() -> None:
    found, evidence = honest()
    file = lie(FULL, found, evidence, coverage=found.coverage[:1], sources=[], rows=[])
    with pytest.raises(EvidenceError, match="numbers of sources"):
        verify_result(file, PINNED)
    less = dataclasses.replace(evidence, sources=evidence.sources[:1])
    nine = [each for each in found.sources if not each.source]
    file = lie(FULL, found, less, coverage=found.coverage[:1], sources=nine, rows=found.rows[:9])
    with pytest.raises(EvidenceError, match="leaves out the stream 'record/app/auth'"):
        verify_result(file, PINNED)


def test_another_key_than_the_hubs_cannot_sign_a_receipt() -> None:
    descriptor = query(FIRST.name, projection=["payload"])
    found = answer(descriptor, FIRST)
    evidence = evidence_of(descriptor, found, FIRST)
    first, *rest = evidence.sources[0].receipts
    forged = sign_receipt(Hub(9).key, Receipt.decode(first)).encode()
    sources = [found.sources[0]._replace(receipt=forged), *found.sources[1:]]
    file = lie(descriptor, found, first_source(evidence, receipts=(forged, *rest)), sources=sources)
    with pytest.raises(SignatureError, match="hub_sig at stream_seq 1"):
        verify_result(file, PINNED)


def test_a_leaf_that_is_not_in_the_tree_is_refused_although_the_hub_signed_its_receipt() -> None:
    found, evidence = honest()
    held = Receipt.decode(evidence.sources[0].receipts[0])
    other = sign_receipt(FIRST.hub.key, dataclasses.replace(held, leaf_hash=type(held.leaf_hash)(H(b"x"))))
    receipts = (other.encode(), *evidence.sources[0].receipts[1:])
    row = {**found.rows[0], "receipt_id": "rcpt-" + H(other.encode()).hex()}
    sources = [found.sources[0]._replace(receipt=other.encode()), *found.sources[1:]]
    file = lie(
        FULL,
        found,
        first_source(evidence, receipts=receipts),
        rows=[row, *found.rows[1:]],
        sources=sources,
    )
    with pytest.raises(EvidenceError, match="do not lead to the root"):
        verify_result(file, PINNED)


def test_a_sample_of_other_rows_is_refused() -> None:
    found = answer(SPOT, *BOTH)
    evidence = evidence_of(SPOT, found, *BOTH)
    for altered in (
        first_source(evidence, receipts=(), proof=b""),
        dataclasses.replace(evidence, matched=evidence.matched[32:] if evidence.matched else None),
        dataclasses.replace(evidence, matched=None),
    ):
        with pytest.raises(EvidenceError, match="P14"):
            verify_result(lie(SPOT, found, altered), PINNED)


def test_counts_that_do_not_add_up_to_the_matched_events_are_refused() -> None:
    found = answer(COUNTS, *BOTH)
    evidence = evidence_of(COUNTS, found, *BOTH)
    rows = [{**found.rows[0], "count": 7}, *found.rows[1:]]
    with pytest.raises(EvidenceError, match="add up to 19, but 18 events match"):
        verify_result(lie(COUNTS, found, evidence, rows=rows), PINNED)
    with pytest.raises(EvidenceError, match="row 2: its group does not follow"):
        verify_result(lie(COUNTS, found, evidence, rows=[found.rows[0], found.rows[0]]), PINNED)
    rows = [{**row, "more": 1} for row in found.rows]
    with pytest.raises(
        EvidenceError, match=r"row 1: the field 'more' is not one that the descriptor asks for"
    ):
        verify_result(lie(COUNTS, found, evidence, rows=rows), PINNED)


def test_executing_again_finds_wrong_counts() -> None:
    found, evidence = honest()
    coverage = (dataclasses.replace(found.coverage[0], opened=11, pruned=0), found.coverage[1])
    file = lie(FULL, found, evidence, coverage=coverage)
    verify_result(file, PINNED)
    with pytest.raises(EvidenceError, match="the coverage says opened 11, the log has 10"):
        reexecute(file, engine(*BOTH))


@given(st.lists(st.binary(min_size=1, max_size=1), max_size=5), st.lists(st.binary(min_size=1, max_size=1)))
def test_two_lists_of_rows_differ_exactly_if_a_difference_is_named(a: list[bytes], b: list[bytes]) -> None:
    assert (difference(a, b) is None) == (a == b)


# --- comparison


def zone_two(*streams: Stream) -> PlainEngine:
    """The engine of another zone, which read the same origin events."""
    return PlainEngine([stream.log for stream in streams])


def test_two_zones_agree_if_they_have_the_same_history() -> None:
    here = result(FULL, *BOTH)
    made = zone_two(*BOTH)
    found = made.execute(FULL, made.prefixes(FULL.scope))
    there = make_result(
        FULL,
        found,
        evidence_of(FULL, found, *BOTH),
        dataclasses.replace(EXECUTION, executed_at=EXECUTION.executed_at + 5000, hub_id="cd" * 32),
    )
    assert compare(here, there).agrees
    assert compare((here.descriptor, here.digest), there).agrees
    assert compare(here, there).causes == ()


def test_a_comparison_names_where_two_results_part() -> None:
    descriptor, old = older()
    new = result(descriptor, FIRST)
    found = compare(old, new)
    assert [each.what for each in found.differences] == ["row_count", "rows_hash", "evidence_hash"]
    causes = [str(each) for each in found.causes]
    assert any("to_seq: 5 and 12" in cause for cause in causes)
    assert any("row 5 was added" in cause for cause in causes)


def test_results_of_different_queries_do_not_agree() -> None:
    found = compare(result(FULL, *BOTH), result(NONE, *BOTH))
    assert [each.what for each in found.differences] == ["descriptor.evidence"]
    assert not found.evidence_compared
    other = query(FIRST.name, query_id="q-2")
    names = [each.what for each in compare(result(FULL, *BOTH), result(other, FIRST)).differences]
    assert {"descriptor.query_id", "descriptor.scope", "query_id", "rows_hash"} <= set(names)


def test_a_source_that_one_side_lacks_is_a_cause() -> None:
    other = Stream(FIRST.name, Hub(2))
    other.add()
    found = compare(result(query(FIRST.name), FIRST), result(query(FIRST.name), FIRST, other))
    assert any("not covered and covered" in str(each) for each in found.causes)


# --- malformed files


def test_a_file_that_is_no_result_is_refused() -> None:
    data = result(FULL, *BOTH).encode()
    for wrong in (b"", b"\xa0", data[:-1], data + b"\x00", b"x" * (64 * 1_048_576 + 1)):
        with pytest.raises(DecodeError):
            parse_result(wrong)


@pytest.mark.parametrize(
    ("part", "value", "why"),
    [
        ("descriptor_json", b"{}", "scope"),
        ("descriptor_json", b"[", "not JSON"),
        ("descriptor_json", b"{ }", "not canonical"),
        ("digest_json", b"[]", "want an object"),
        ("rows_json", b"{}", "array of objects"),
        ("rows_json", b"[1]", "array of objects"),
        ("rows_json", b"[" * 100, "nested"),
        ("row_hashes", b"x", "ends in the middle"),
    ],
)
def test_a_malformed_part_is_named(part: str, value: bytes, why: str) -> None:
    file = dataclasses.replace(result(FULL, *BOTH), **{part: value})
    with pytest.raises((DecodeError, EvidenceError), match=why):
        verify_result(file, PINNED)


def test_a_descriptor_that_is_not_in_normal_form_is_refused() -> None:
    file = result(FULL, *BOTH)
    item = json.loads(file.descriptor_json)
    del item["version"]
    with pytest.raises(DecodeError, match="normal form"):
        verify_result(dataclasses.replace(file, descriptor_json=canonical_json.encode(item)), PINNED)


def test_rows_in_another_encoding_are_refused() -> None:
    file = result(FULL, *BOTH)
    spaced = file.rows_json.replace(b'"attributed":true', b'"attributed": true', 1)
    with pytest.raises(EvidenceError, match="not in canonical JSON"):
        verify_result(dataclasses.replace(file, rows_json=spaced), PINNED)
    assert encode_rows(split_rows(file.rows())) == file.rows_json


def test_events_and_prefixes_keep_their_order_key() -> None:
    event = FIRST.entries[0]
    assert isinstance(event, SourceEvent)
    assert event.order([SECOND.name, FIRST.name]) == (1, FIRST.hub.hub_id, 0, 1)
    assert isinstance(FIRST.entries[4], EntryKind)
    assert isinstance(FIRST.prefix, Prefix)
