"""Reading the log: pages, receipts, proofs, checkpoints; what was pruned; control label (§10.4, §10.5)."""

from __future__ import annotations

import http.client
import json
import time
from types import SimpleNamespace

import cbor2
import pytest

from veen_core import cbor, hub_identity, stream
from veen_core.api import (
    CheckpointRequest,
    CheckpointResponse,
    ConsistencyRequest,
    ConsistencyResponse,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamRequest,
    StreamResponse,
)
from veen_core.cap import CapToken
from veen_core.checkpoint import Checkpoint
from veen_core.consistency import verify_consistency
from veen_core.entry import authorize_leaf
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.limits import Limits
from veen_core.mmr import Mmr
from veen_core.profile import PROFILES
from veen_core.proof import verify_inclusion
from veen_core.receipt import Receipt
from veen_core.status import CheckpointsResponse
from veen_hub.pipeline import sequencer
from veen_storage.commit.ledger import Prune

from .conftest import StartHub
from .following import Follower
from .people import Writer
from .serving import JSON, PATIENCE, RunningHub, SetClock

SOME = 10


def seq(n: int) -> StreamSeq:
    return StreamSeq(n)


@pytest.fixture
def log(hub: RunningHub, alice: Writer) -> list[Receipt]:
    """Ten entries of alice's label."""
    return [hub.accept(alice.next()) for _ in range(SOME)]


def page(hub: RunningHub, label: Label, from_seq: int = 1, **more: object) -> StreamResponse:
    asked = StreamRequest(label=label, from_seq=seq(from_seq), **more)  # type: ignore[arg-type]
    return hub.ask("/v1/stream", asked, StreamResponse)


def seqs(response: StreamResponse) -> list[int]:
    return [item.stream_seq for item in response.items]


# --- pages


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("asked", "found", "following"),
    [
        ({"from_seq": 1}, range(1, 11), None),
        ({"from_seq": 0}, range(1, 11), None),
        ({"from_seq": 4}, range(4, 11), None),
        ({"from_seq": 4, "to_seq": 6}, range(4, 7), None),
        ({"from_seq": 4, "to_seq": 4}, range(4, 5), None),
        ({"from_seq": 6, "to_seq": 4}, range(0), None),
        ({"from_seq": 4, "to_seq": 99}, range(4, 11), None),
        ({"from_seq": 1, "max_items": 3}, range(1, 4), 4),
        ({"from_seq": 8, "max_items": 3}, range(8, 11), None),
        ({"from_seq": 1, "to_seq": 3, "max_items": 3}, range(1, 4), None),
        ({"from_seq": 1, "to_seq": 5, "max_items": 3}, range(1, 4), 4),
        ({"from_seq": 1, "cursor": 7}, range(7, 11), None),
        ({"from_seq": 9, "cursor": 2, "max_items": 2}, range(2, 4), 4),
        ({"from_seq": 1, "cursor": 4, "to_seq": 5}, range(4, 6), None),
        ({"from_seq": 11}, range(0), None),
        ({"from_seq": 2**63}, range(0), None),
        ({"from_seq": 1, "max_items": 2**63}, range(1, 11), None),
    ],
    ids=str,
)
def test_a_page_has_the_requested_range_and_the_cursor_of_the_next_page(
    hub: RunningHub, alice: Writer, asked: dict[str, int], found: range, following: int | None
) -> None:
    response = page(hub, alice.label, **asked)
    assert seqs(response) == list(found)
    assert response.next_cursor == following
    assert response.from_seq == max(1, asked.get("cursor", asked["from_seq"]))
    assert response.to_seq == asked.get("to_seq")


def test_pages_in_a_row_are_the_whole_log(hub: RunningHub, alice: Writer, log: list[Receipt]) -> None:
    found: list[int] = []
    cursor: int | None = 1
    while cursor is not None:
        response = page(hub, alice.label, cursor=seq(cursor), max_items=3)
        found += seqs(response)
        cursor = response.next_cursor
    assert found == [receipt.stream_seq for receipt in log]


def test_the_server_caps_the_size_of_a_page(start_hub: StartHub) -> None:
    hub = start_hub(max_page_items=4)
    alice = hub.writer()
    for _ in range(6):
        hub.accept(alice.next())
    for most in (None, 4, 100):
        response = page(hub, alice.label, max_items=most)
        assert (seqs(response), response.next_cursor) == ([1, 2, 3, 4], 5)
    assert hub.status().max_page_items == 4


def test_a_page_of_zero_items_is_a_bad_request(hub: RunningHub, alice: Writer, log: list[Receipt]) -> None:
    assert log
    for wrong in ({"max_items": 0}, {"cursor": 0}):
        asked = StreamRequest(label=alice.label, from_seq=seq(1), **wrong)  # type: ignore[arg-type]
        assert hub.post("/v1/stream", asked).error.code == "E.BAD_REQUEST"


def test_a_label_without_entries_is_not_found(hub: RunningHub) -> None:
    asked = StreamRequest(label=Label(bytes(32)), from_seq=seq(1))
    answer = hub.post("/v1/stream", asked)
    assert (answer.status, answer.error.code) == (404, "E.NOT_FOUND")


def test_receipts_come_with_the_messages_where_they_are_asked_for(
    hub: RunningHub, alice: Writer, log: list[Receipt]
) -> None:
    assert [item.receipt for item in page(hub, alice.label, with_receipts=True).items] == log
    assert {item.receipt for item in page(hub, alice.label, with_receipts=False).items} == {None}
    assert [item.msg.leaf_hash for item in page(hub, alice.label).items] == [r.leaf_hash for r in log]


def test_the_proof_of_a_page_proves_its_last_item(hub: RunningHub, alice: Writer, log: list[Receipt]) -> None:
    for last in (1, 3, 8, 10):
        response = page(hub, alice.label, to_seq=seq(last), with_mmr_proof=True)
        assert response.mmr_proof is not None
        receipt = log[last - 1]
        verify_inclusion(response.mmr_proof, receipt.mmr_root, receipt.stream_seq, receipt.leaf_hash)
    assert page(hub, alice.label, from_seq=11, with_mmr_proof=True).mmr_proof is None


def test_a_log_that_was_read_rebuilds_every_root(hub: RunningHub, alice: Writer, log: list[Receipt]) -> None:
    tree, identity = Mmr(), hub.status().identity
    for item, receipt in zip(page(hub, alice.label, with_receipts=True).items, log, strict=True):
        tree.append(item.msg.leaf_hash)
        assert item.receipt == receipt
        assert tree.root == receipt.mmr_root
        hub_identity.verify_receipt(identity, receipt)


# --- receipts, proofs, consistency


def test_a_fetched_receipt_equals_the_one_that_the_writer_got(
    hub: RunningHub, alice: Writer, log: list[Receipt]
) -> None:
    for receipt in log:
        asked = ReceiptRequest(label=alice.label, stream_seq=receipt.stream_seq)
        assert hub.ask("/v1/receipt", asked, ReceiptResponse).receipt == receipt
    newest = ReceiptRequest(label=alice.label, stream_seq=seq(0))
    assert hub.ask("/v1/receipt", newest, ReceiptResponse).receipt == log[-1]
    for n in (SOME + 1, 2**64 - 1):
        answer = hub.post("/v1/receipt", ReceiptRequest(label=alice.label, stream_seq=seq(n)))
        assert (answer.status, answer.error.code) == (404, "E.NOT_FOUND")


def test_a_proof_verifies_against_its_own_receipt_and_any_later_one(
    hub: RunningHub, alice: Writer, log: list[Receipt]
) -> None:
    for receipt in log:
        for size in (None, *range(receipt.stream_seq, SOME + 1)):
            asked = ProofRequest(
                label=alice.label,
                stream_seq=receipt.stream_seq,
                tree_size=seq(size) if size is not None else None,
            )
            proof = hub.ask("/v1/proof", asked, ProofResponse).mmr_proof
            root = log[(size or receipt.stream_seq) - 1].mmr_root
            verify_inclusion(proof, root, receipt.stream_seq, receipt.leaf_hash, size)


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("stream_seq", "tree_size", "code"),
    [
        (0, None, "E.BAD_REQUEST"),
        (5, 4, "E.BAD_REQUEST"),
        (5, 0, "E.BAD_REQUEST"),
        (11, None, "E.NOT_FOUND"),
        (5, 11, "E.NOT_FOUND"),
        (2**64 - 1, None, "E.NOT_FOUND"),
        (1, 2**64 - 1, "E.NOT_FOUND"),
    ],
)
def test_an_impossible_proof_is_refused_with_the_reason(
    hub: RunningHub, alice: Writer, stream_seq: int, tree_size: int | None, code: str
) -> None:
    size = seq(tree_size) if tree_size is not None else None
    asked = ProofRequest(label=alice.label, stream_seq=seq(stream_seq), tree_size=size)
    assert hub.post("/v1/proof", asked).error.code == code


def test_every_tree_is_a_prefix_of_every_later_one(
    hub: RunningHub, alice: Writer, log: list[Receipt]
) -> None:
    for a in range(1, SOME):
        for b in range(a + 1, SOME + 1):
            asked = ConsistencyRequest(label=alice.label, from_seq=seq(a), to_seq=seq(b))
            proof = hub.ask("/v1/consistency", asked, ConsistencyResponse).mmr_consistency
            assert verify_consistency(proof, log[a - 1].mmr_root, log[b - 1].mmr_root).size == b


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("a", "b", "code"),
    [(0, 3, "E.BAD_REQUEST"), (3, 3, "E.BAD_REQUEST"), (4, 3, "E.BAD_REQUEST"), (3, 11, "E.NOT_FOUND")],
)
def test_an_impossible_consistency_proof_is_refused_with_the_reason(
    hub: RunningHub, alice: Writer, a: int, b: int, code: str
) -> None:
    asked = ConsistencyRequest(label=alice.label, from_seq=seq(a), to_seq=seq(b))
    assert hub.post("/v1/consistency", asked).error.code == code


# --- checkpoints


def test_a_checkpoint_is_made_by_count_and_found_by_upto_seq(start_hub: StartHub) -> None:
    hub = start_hub(checkpoints__every_entries=4)
    alice = hub.writer()
    receipts = [hub.accept(alice.next()) for _ in range(9)]
    identity = hub.status().identity
    for upto in (4, 8):
        asked = CheckpointRequest(label=alice.label, upto_seq=seq(upto))
        found = hub.ask("/v1/checkpoint", asked, CheckpointResponse).checkpoint
        assert (found.upto_seq, found.mmr_root) == (upto, receipts[upto - 1].mmr_root)
        hub_identity.verify_checkpoint(identity, found, hub.profile.epoch_sec)
    latest = CheckpointRequest(label=alice.label, upto_seq=seq(0))
    assert hub.ask("/v1/checkpoint", latest, CheckpointResponse).checkpoint.upto_seq == 8
    missing = hub.post("/v1/checkpoint", CheckpointRequest(label=alice.label, upto_seq=seq(5)))
    assert missing.error.code == "E.NOT_FOUND"


def test_the_checkpoint_of_a_label_without_one_is_not_found(hub: RunningHub, alice: Writer) -> None:
    hub.accept(alice.next())
    answer = hub.post("/v1/checkpoint", CheckpointRequest(label=alice.label, upto_seq=seq(0)))
    assert (answer.status, answer.error.code) == (404, "E.NOT_FOUND")


def test_checkpoints_are_found_by_their_epochs(start_hub: StartHub, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SetClock()
    hub = start_hub(profile=PROFILES["rotating"], clock=clock)
    first = hub.status().epoch
    for epoch in range(first, first + 4):
        clock.time = epoch * 60
        hub.accept(hub.writer("alice", epoch=epoch).next())
        assert hub.admin("/tooling/checkpoint").status == 200
    assert hub.store.settle()

    def found(query: str) -> list[int]:
        answer = hub.get(f"/v1/checkpoint{query}")
        assert answer.headers["content-type"] == "application/cbor-seq"
        made = [Checkpoint.decode(item) for item in cbor.split_sequence(answer.body)]
        return sorted({checkpoint.epoch for checkpoint in made})

    assert found("") == list(range(first, first + 4))
    assert found(f"?epoch_min={first + 1}&epoch_max={first + 2}") == [first + 1, first + 2]
    assert found(f"?epoch_min={first + 9}") == []
    everything = list(cbor.split_sequence(hub.get("/v1/checkpoint").body))
    in_json = hub.get("/v1/checkpoint", Accept=JSON).read(CheckpointsResponse)
    assert [checkpoint.encode() for checkpoint in in_json.checkpoints] == everything
    pages, query = [], "?"
    monkeypatch.setattr("veen_hub.api.reading.MAX_CHECKPOINTS", 3)
    while query:
        answer = hub.get(f"/v1/checkpoint{query}")
        page = list(cbor.split_sequence(answer.body))
        assert len(page) <= 3
        pages += page
        query = f"?{answer.headers['veen-next']}" if "veen-next" in answer.headers else ""
    assert pages == everything
    assert len(pages) > 3
    nowhere = f"?after_label={'0' * 64}&after_seq=1"
    assert hub.get(f"/v1/checkpoint{nowhere}").error.code == "E.NOT_FOUND"
    wrongs = ("?epoch_min=x", "?epoch_max=-1", "?epoch_min=1.5", "?epoch_min=99999999999999999999")
    for wrong in (*wrongs, "?after_seq=1", "?after_label=zz&after_seq=1"):
        assert hub.get(f"/v1/checkpoint{wrong}").error.code == "E.BAD_REQUEST"


# --- what was pruned


CHUNK = 8
SMALL = Limits(max_msg_bytes=2_048, max_chunk_bytes=65_536, max_checkpoint_interval=CHUNK)


@pytest.fixture
def pruned(start_hub: StartHub) -> tuple[RunningHub, Writer, list[Receipt]]:
    """Of 20 entries the payloads of the first 16 are gone."""
    clock = SetClock()
    hub = start_hub(limits=SMALL, clock=clock, retention__default={"max_age_sec": 100})
    alice = hub.writer()
    receipts = [hub.accept(alice.next()) for _ in range(20)]
    clock.time += 1_000
    assert hub.store.settle()
    assert hub.admin("/tooling/retention").status == 200
    assert hub.store.settle()
    return hub, alice, receipts


def test_a_page_that_begins_with_a_pruned_entry_says_where_entries_begin(
    pruned: tuple[RunningHub, Writer, list[Receipt]],
) -> None:
    hub, alice, _receipts = pruned
    for start in (1, 8, 9, 16):
        answer = hub.post("/v1/stream", StreamRequest(label=alice.label, from_seq=seq(start)))
        error = answer.error
        assert (answer.status, error.code) == (404, "E.NOT_FOUND")
        assert error.detail is not None
        assert (error.detail.label, error.detail.stream_seq) == (alice.label, 17)
        assert "17" in error.message
    assert seqs(page(hub, alice.label, from_seq=17)) == [17, 18, 19, 20]


def test_a_page_that_reaches_a_pruned_entry_ends_before_it_and_points_at_it(start_hub: StartHub) -> None:
    """The rule prunes the oldest first; here the chunk in the middle goes, by hand."""
    hub = start_hub(limits=SMALL)
    alice = hub.writer()
    for _ in range(3 * CHUNK):
        hub.accept(alice.next())
    assert hub.store.settle()
    gone = Prune(label=alice.label, start_seq=seq(9), end_seq=seq(16), pruned_at=UnixTime(hub.clock.time))
    hub.run(hub.hub.log.act(lambda batch: batch.prune(gone)))
    assert hub.store.settle()
    response = page(hub, alice.label)
    assert (seqs(response), response.next_cursor) == (list(range(1, 9)), 9)
    asked = StreamRequest(label=alice.label, from_seq=seq(1), cursor=response.next_cursor)
    refused = hub.post("/v1/stream", asked).error
    assert refused.detail is not None
    assert refused.detail.stream_seq == 17
    assert seqs(page(hub, alice.label, cursor=seq(17)))[0] == 17


def test_receipts_and_proofs_of_pruned_entries_remain(
    pruned: tuple[RunningHub, Writer, list[Receipt]],
) -> None:
    hub, alice, receipts = pruned
    last = receipts[-1]
    for receipt in receipts:
        asked = ReceiptRequest(label=alice.label, stream_seq=receipt.stream_seq)
        assert hub.ask("/v1/receipt", asked, ReceiptResponse).receipt == receipt
        question = ProofRequest(label=alice.label, stream_seq=receipt.stream_seq, tree_size=last.stream_seq)
        proof = hub.ask("/v1/proof", question, ProofResponse).mmr_proof
        verify_inclusion(proof, last.mmr_root, receipt.stream_seq, receipt.leaf_hash, last.stream_seq)


def test_a_follower_of_a_pruned_entry_is_refused_and_skips_nothing(
    pruned: tuple[RunningHub, Writer, list[Receipt]],
) -> None:
    hub, alice, _receipts = pruned
    refused = hub.get(f"/v1/stream/{alice.label.hex()}?from=3")
    assert refused.error.detail is not None
    assert refused.error.detail.stream_seq == 17
    with Follower(hub.port, alice.label, 17) as follower:
        assert [item[1] for item in follower.take(4)] == [17, 18, 19, 20]


def test_a_message_sent_again_after_its_payload_was_pruned_is_still_a_duplicate(
    pruned: tuple[RunningHub, Writer, list[Receipt]],
) -> None:
    hub, alice, _receipts = pruned
    assert hub.submit(alice.message(3)).detail == "DUPLICATE"


# --- the control label


def test_the_control_label_is_read_like_any_other_with_tokens_for_messages(hub: RunningHub) -> None:
    """H5: an entry of the control label holds a token; whoever reads it can replay issued_at."""
    tokens = [Writer(name, hub.hub_id).token() for name in ("alice", "bob", "carol")]
    receipts = [hub.authorize(token).receipt for token in tokens]
    control = hub.status().control_label
    asked = StreamRequest(label=control, from_seq=seq(1), with_receipts=True, with_mmr_proof=True)
    answer = hub.post("/v1/stream", asked)
    tree, found = Mmr(), cbor2.loads(answer.body)
    assert [item[1] for item in found[5]] == [1, 2, 3]
    for item, token, receipt in zip(found[5], tokens, receipts, strict=True):
        held = cbor.encode(item[2])
        assert CapToken.decode(held) == token
        assert Receipt.decode(cbor.encode(item[3])) == receipt
        assert receipt.leaf_hash == authorize_leaf(token.auth_ref, held)
        tree.append(receipt.leaf_hash)
        assert tree.root == receipt.mmr_root
    in_json = json.loads(hub.post("/v1/stream", asked, Accept=JSON).body)
    assert [item["msg"]["subject_pk"] for item in in_json["items"]] == [t.subject_pk.hex() for t in tokens]
    with Follower(hub.port, control) as follower:
        assert [CapToken.decode(cbor.encode(item[2])) for item in follower.take(3)] == tokens
        dave = Writer("dave", hub.hub_id).token()
        hub.authorize(dave)
        assert CapToken.decode(cbor.encode(follower.take(1)[0][2])) == dave


def test_the_control_label_has_receipts_proofs_and_checkpoints(hub: RunningHub) -> None:
    receipts = [hub.authorize(Writer(name, hub.hub_id).token()).receipt for name in ("alice", "bob")]
    control = hub.status().control_label
    assert control == stream.control_label(stream.routing_key(hub.hub_id))
    proof = hub.ask(
        "/v1/proof", ProofRequest(label=control, stream_seq=seq(1), tree_size=seq(2)), ProofResponse
    ).mmr_proof
    verify_inclusion(proof, receipts[1].mmr_root, seq(1), receipts[0].leaf_hash, 2)
    hub.admin("/tooling/checkpoint")
    latest = CheckpointRequest(label=control, upto_seq=seq(0))
    assert hub.ask("/v1/checkpoint", latest, CheckpointResponse).checkpoint.upto_seq == 2


# --- readers beside writers


def test_readers_pause_for_the_sequencer_and_only_then(
    hub: RunningHub, alice: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    clock = SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic, perf_counter=time.perf_counter)
    monkeypatch.setattr(sequencer, "time", clock)
    give_way = hub.hub.store.read.give_way
    monkeypatch.setattr(sequencer, "RECENT_SEC", 0)
    hub.accept(alice.next())
    give_way()
    assert pauses == []
    monkeypatch.setattr(sequencer, "RECENT_SEC", PATIENCE)
    give_way()
    assert pauses == [sequencer.PAUSE_SEC]
    hub.run(hub.hub.log.act(lambda _batch: give_way()))
    assert pauses[1:] == [sequencer.BUSY_PAUSE_SEC]


# --- damage


def test_a_damaged_entry_is_never_sent_and_none_is_skipped(hub: RunningHub, alice: Writer) -> None:
    """Entries are sent as they are on disk; each is compared with its entry hash first (core §4.8.1)."""
    for _ in range(SOME):
        hub.accept(alice.next())
    assert hub.do(hub.hub.store.settle)
    (chunk,) = hub.hub.store.layout.log.glob(f"chunk-{alice.label.hex()}-*")
    data, wire = bytearray(chunk.read_bytes()), page(hub, alice.label, 5, to_seq=seq(5)).items[0].msg.encode()
    data[data.index(wire) + len(wire) // 2] ^= 1
    chunk.write_bytes(data)
    assert seqs(page(hub, alice.label, to_seq=seq(4))) == [1, 2, 3, 4]
    assert seqs(page(hub, alice.label, 6)) == [6, 7, 8, 9, 10]
    for asked in ({"from_seq": 1}, {"from_seq": 5}, {"from_seq": 5, "to_seq": 5}):
        answer = hub.post("/v1/stream", StreamRequest(label=alice.label, **asked))  # type: ignore[arg-type]
        assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
    with Follower(hub.port, alice.label) as follower:
        assert [item[1] for item in follower.take(4)] == [1, 2, 3, 4]
        with pytest.raises((http.client.IncompleteRead, OSError)):
            follower.next()
