"""The hub log: its cadence, its tiles and proofs over HTTP, and its last checkpoint when the hub drains."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from veen_core.api import ProofRequest, ProofResponse
from veen_core.hub_log import (
    HubConsistencyRequest,
    HubConsistencyResponse,
    HubProofRequest,
    HubProofResponse,
    note_key,
    verify_hub_checkpoint,
)
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.proof import verify_inclusion as verify_in_label
from veen_core.tlog.note import NoteKey, NoteSignature, verified_signatures
from veen_core.tlog.tiles import ENTRIES, TILE_WIDTH, Tile, check_bundle, decode_bundle, tile_hashes
from veen_core.tlog.tree import leaf_hash, verify_consistency, verify_inclusion
from veen_core.tlog.tree_head import parse_signed_head
from veen_storage import rotate

from .certificates import Certificates
from .conftest import StartHub, StartProcess
from .hub_logs import AT_ONCE, ORIGIN, published, published_size, read_tile, read_tree, wait_for_size
from .independent_witness import IndependentWitness
from .people import BORN, Writer, signing_key
from .serving import JSON, RunningHub, SetClock, make_directory, request, until

NEVER = {"hub_log__interval_sec": 2**31 - 1, "hub_log__max_entries": 2**31 - 1}


def grow(hub: RunningHub, labels: int, messages: int = 1) -> list[Writer]:
    """Write to so many labels, and wait until the hub log covers all of it."""
    writers = [Writer(f"writer {n}", hub.hub_id, hub.profile, to=f"stream {n}") for n in range(labels)]
    for _ in range(messages):
        for writer in writers:
            hub.accept(writer.next())
    until(lambda: hub.store.hub_log.moved == 0, "the hub log covers every label")
    wait_for_size(hub, hub.store.hub_log.size)
    return writers


# --- cadence


def test_a_hub_that_changed_publishes_a_checkpoint_within_its_interval(start_hub: StartHub) -> None:
    hub = start_hub(gating=False)
    assert hub.get("/log/checkpoint").status == 404
    alice = Writer("alice", hub.hub_id)
    receipt = hub.accept(alice.next())
    signed = wait_for_size(hub, 1)
    (head,) = read_tree(hub, 1)
    assert (head.label, head.upto_seq, head.mmr_root) == (alice.label, 1, receipt.mmr_root)
    assert signed.head.origin == ORIGIN
    assert hub.metric("veen_hub_checkpoints_total") == 1
    assert hub.metric("veen_hub_log_entries") == 1
    assert hub.metric("veen_hub_log_moved_labels") == 0


def test_a_hub_that_did_not_change_makes_no_checkpoint(start_hub: StartHub) -> None:
    clock = SetClock()
    hub = start_hub(gating=False, clock=clock)
    grow(hub, 1)
    clock.time += 30
    made = hub.metric("veen_hub_checkpoints_total")
    time.sleep(2.5)  # nothing happens in two intervals: there is no event to wait for
    assert hub.metric("veen_hub_checkpoints_total") == made
    assert hub.metric("veen_hub_checkpoint_age_seconds") >= 30


def test_many_entries_make_a_checkpoint_before_the_interval_ends(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, hub_log__interval_sec=2**31 - 1, hub_log__max_entries=5)
    alice = Writer("alice", hub.hub_id)
    for _ in range(4):
        hub.accept(alice.next())
    assert hub.store.hub_log.moved == 1
    hub.accept(alice.next())
    wait_for_size(hub, 1)
    (head,) = read_tree(hub, 1)
    assert head.upto_seq == 5


def test_labels_that_moved_since_the_last_checkpoint_are_added_in_their_order(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, **NEVER)
    writers = [Writer(f"writer {n}", hub.hub_id, to=f"stream {n}") for n in range(9)]
    for writer in (*writers, *writers[:4]):
        hub.accept(writer.next())
    assert hub.metric("veen_hub_log_moved_labels") == 9
    hub.stop()
    again = start_hub(gating=False)
    heads = read_tree(again, 9)
    assert [head.label for head in heads] == sorted(writer.label for writer in writers)
    assert sum(head.upto_seq for head in heads) == 13


def test_a_hub_that_drains_covers_every_label_with_its_last_checkpoint(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, **NEVER)
    writers = [Writer(f"writer {n}", hub.hub_id, to=f"stream {n}") for n in range(3)]
    receipts = [hub.accept(writer.next()) for writer in writers]
    assert published(hub) is None
    hub.stop()
    again = start_hub(gating=False, **NEVER)
    assert again.store.hub_log.moved == 0
    assert {head.mmr_root for head in read_tree(again, 3)} == {receipt.mmr_root for receipt in receipts}
    assert again.metric("veen_hub_checkpoint_age_seconds") == 0  # the clock of this hub stands still


def test_a_hub_goes_on_where_its_hub_log_ended(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, **AT_ONCE)
    writers = grow(hub, 3)
    before = published(hub)
    assert before is not None
    hub.stop()
    again = start_hub(gating=False, **AT_ONCE)
    assert published(again) == before
    again.accept(writers[0].next())
    after = wait_for_size(again, before.head.size + 1)
    asked = HubConsistencyRequest(old_size=before.head.size)
    proof = again.ask("/v1/hublog/consistency", asked, HubConsistencyResponse).proof
    verify_consistency(before.head.size, after.head.size, proof, before.head.root, after.head.root)


def test_a_killed_hub_publishes_what_it_had_signed(start_process: StartProcess, tmp_path: Path) -> None:
    config = tmp_path / "hub.yaml"
    config.write_text("hub_log: {max_entries: 1}\n")
    hub = start_process("data", "--open", f"--config={config}")
    alice = Writer("alice", hub.status().identity.hub_id)
    for _ in range(20):
        hub.accept(alice.next())
    hub.kill()
    again = start_process("data", "--open", f"--config={config}")
    until(lambda: published_size(again), "a hub checkpoint is published")
    until(lambda: read_tree(again, published_size(again))[-1].upto_seq == 20, "it covers everything")


# --- reading


def test_tiles_and_bundles_of_more_than_one_tile_lead_to_the_signed_root(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, **NEVER)
    many = TILE_WIDTH + 44
    for n in range(many):
        hub.accept(Writer("alice", hub.hub_id, to=f"stream {n}").next())
    hub.stop()
    hub = start_hub(gating=False, **NEVER)
    heads = read_tree(hub, many)
    assert len({head.label for head in heads}) == many
    full = Tile(0, 0)
    check_bundle(decode_bundle(read_tile(hub, Tile(ENTRIES, 0))), tile_hashes(full, read_tile(hub, full)))
    part = Tile(0, 0, 3)
    assert read_tile(hub, part) == read_tile(hub, full)[: 3 * 32]
    above = Tile(1, 0, 1)
    assert len(read_tile(hub, above)) == 32


@pytest.mark.parametrize(
    "path",
    [
        "0/000.p/4",  # the tree has three leaves
        "0/000",
        "0/001.p/1",
        "1/000.p/1",
        "entries/000",
        "entries/000.p/4",
        "0/000.p/0",
        "0/000.p/256",
        "0/0",
        "64/000",
        "-1/000",
        "0/x000/000",
        "0/../checkpoint",
        "0/000.p/03",
    ],
)
def test_a_tile_that_does_not_exist_is_not_found(start_hub: StartHub, path: str) -> None:
    hub = start_hub(gating=False, **NEVER)
    for n in range(3):
        hub.accept(Writer("alice", hub.hub_id, to=f"stream {n}").next())
    hub.stop()
    hub = start_hub(gating=False, **NEVER)
    assert hub.get("/log/tile/0/000.p/3").status == 200
    answer = hub.get(f"/log/tile/{path}")
    assert (answer.status, answer.error.code) == (404, "E.NOT_FOUND")


def test_a_tile_may_be_cached_for_ever_and_the_checkpoint_for_a_second(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, **AT_ONCE)
    grow(hub, 1)
    checkpoint, tile = hub.get("/log/checkpoint"), hub.get("/log/tile/0/000.p/1")
    assert checkpoint.headers["content-type"] == "text/plain; charset=utf-8"
    assert checkpoint.headers["cache-control"] == "public, max-age=1"
    assert tile.headers["content-type"] == "application/octet-stream"
    assert tile.headers["cache-control"] == "public, max-age=31536000, immutable"
    for absent in ("/log/tile/0/000.p/2", "/log/tile/0/000"):  # it may exist a second later
        assert hub.get(absent).headers["cache-control"] == "no-store"
    head = hub.call("HEAD", "/log/tile/0/000.p/1")
    assert (head.status, head.body) == (200, b"")


def test_a_head_is_proved_from_the_message_to_the_hub_checkpoint(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, **AT_ONCE)
    alice, bob = grow(hub, 2, messages=5)
    asked = HubProofRequest(label=alice.label, stream_seq=StreamSeq(3))
    found = hub.ask("/v1/hublog/proof", asked, HubProofResponse)
    signed = parse_signed_head(found.checkpoint)
    verify_hub_checkpoint(hub.hub.identity, signed)
    verify_inclusion(
        leaf_hash(found.head.encode()), found.index, signed.head.size, found.proof, signed.head.root
    )
    assert found.head.label == alice.label
    assert found.head.upto_seq >= 3
    wanted = ProofRequest(label=alice.label, stream_seq=StreamSeq(3), tree_size=found.head.upto_seq)
    proof = hub.ask("/v1/proof", wanted, ProofResponse).mmr_proof
    leaf = hub.store.read.receipt(alice.label, StreamSeq(3)).leaf_hash
    verify_in_label(proof, found.head.mmr_root, StreamSeq(3), leaf, found.head.upto_seq)
    newest = hub.ask("/v1/hublog/proof", HubProofRequest(label=bob.label), HubProofResponse)
    assert newest.head.upto_seq == 5
    assert hub.metric("veen_proof_latency_ms_count") >= 3


def test_proofs_are_served_in_json_too(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, **AT_ONCE)
    (alice,) = grow(hub, 1, messages=2)
    asked = HubProofRequest(label=alice.label)
    answer = hub.post("/v1/hublog/proof", asked.to_json().encode(), JSON)
    assert answer.headers["content-type"].startswith(JSON)
    assert answer.read(HubProofResponse) == hub.ask("/v1/hublog/proof", asked, HubProofResponse)
    sizes = HubConsistencyRequest(old_size=0, new_size=1)
    text = hub.post("/v1/hublog/consistency", sizes.to_json().encode(), JSON).read(HubConsistencyResponse)
    assert (text.old_size, text.new_size, text.proof) == (0, 1, ())


def test_what_the_published_tree_does_not_have_is_not_found(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, **AT_ONCE)
    alice = Writer("alice", hub.hub_id)
    before = hub.post("/v1/hublog/proof", HubProofRequest(label=alice.label))
    assert before.error.code == "E.NOT_FOUND"
    assert "no hub checkpoint yet" in str(before.error.message)
    hub.accept(alice.next())
    wait_for_size(hub, 1)
    for path, asked in (
        ("proof", HubProofRequest(label=Label(b"\x07" * 32))),
        ("proof", HubProofRequest(label=alice.label, stream_seq=StreamSeq(2))),
        ("consistency", HubConsistencyRequest(old_size=0, new_size=2)),
    ):
        assert hub.post(f"/v1/hublog/{path}", asked).error.code == "E.NOT_FOUND"
    swapped = hub.post("/v1/hublog/consistency", HubConsistencyRequest(old_size=2))
    assert swapped.error.code == "E.BAD_REQUEST"


def test_reading_the_hub_log_needs_the_certificate_that_reading_needs(
    start_hub: StartHub, certificates: Certificates
) -> None:
    cert, key = certificates.hub
    tls = {
        "cert": str(cert),
        "key": str(key),
        "client_ca": str(certificates.authority),
        "client_certificate": "reading",
    }
    hub = start_hub(gating=False, tls=tls, **NEVER)
    without = ssl.create_default_context(cafile=certificates.authority)
    for path in ("/log/checkpoint", "/log/tile/0/000.p/1"):
        assert request(hub.port, "GET", path, context=without).error.code == "E.UNAUTHORIZED"
    holding = ssl.create_default_context(cafile=certificates.authority)
    holding.load_cert_chain(*certificates.client)
    assert request(hub.port, "GET", "/log/checkpoint", context=holding).error.code == "E.NOT_FOUND"


# --- keys and names


def test_during_a_key_rotation_both_keys_sign(start_hub: StartHub, place: Path) -> None:
    root, clock = place / "data", SetClock()
    make_directory(root)
    identity = rotate(root, signing_key("hub/1"), UnixTime(BORN + 10), 100)
    clock.time = BORN + 20
    hub = start_hub(gating=False, clock=clock, **AT_ONCE)
    alice = Writer("alice", hub.hub_id)
    hub.accept(alice.next())
    until(lambda: hub.get("/log/checkpoint").status == 200, "a hub checkpoint is published")
    signed = parse_signed_head(hub.get("/log/checkpoint").body)
    keys = [note_key(key, ORIGIN) for key in identity.hub_keys]
    assert set(verified_signatures(signed.note, keys)) == set(keys)
    clock.time = BORN + 200
    hub.accept(alice.next())
    until(lambda: hub.store.hub_log.published != signed, "the next one is published")
    later = parse_signed_head(hub.get("/log/checkpoint").body)
    assert set(verified_signatures(later.note, keys)) == {keys[1]}


def test_a_key_that_becomes_active_signs_a_hub_log_that_does_not_grow(start_hub: StartHub) -> None:
    clock = SetClock()
    hub = start_hub(gating=False, clock=clock, **AT_ONCE)
    hub.accept(Writer("alice", hub.hub_id).next())
    before = wait_for_size(hub, 1)
    hub.stop()
    identity = rotate(hub.root, signing_key("hub/1"), UnixTime(clock.time + 10), 100)
    old, new = (note_key(key, ORIGIN) for key in identity.hub_keys)
    hub = start_hub(gating=False, clock=clock, **AT_ONCE)
    clock.time += 20
    until(lambda: set(signers(hub, old, new)) == {old, new}, "the running hub signs with both keys")
    after = published(hub)
    assert after is not None
    assert after.head == before.head
    hub.stop()
    clock.time += 200
    hub = start_hub(gating=False, clock=clock, **AT_ONCE)
    assert set(signers(hub, old, new)) == {old, new}, "what was signed stays signed"


def test_a_witness_that_knows_only_the_new_key_lets_an_idle_hub_sign_after_a_rotation(
    start_hub: StartHub,
) -> None:
    clock = SetClock()
    hub = start_hub(gating=False, clock=clock, **AT_ONCE)
    alice = Writer("alice", hub.hub_id)
    hub.accept(alice.next())
    before = wait_for_size(hub, 1)
    hub.stop()
    identity = rotate(hub.root, signing_key("hub/1"), UnixTime(clock.time + 10), 5)
    clock.time += 20
    with IndependentWitness("witness.example/w1", [note_key(identity.hub_keys[1], ORIGIN).text]) as witness:
        settings = {"hub_log__witnesses": [{"key": witness.vkey, "url": witness.url}]}
        hub = start_hub(gating=False, clock=clock, **AT_ONCE, **settings)
        until(lambda: hub.status().not_signing is None, "the witness has answered")
        hub.accept(alice.next())
        until(lambda: hub.store.hub_log.published != before, "the hub log has grown")
        assert set(witness.answered) == {200}


def signers(hub: RunningHub, *keys: NoteKey) -> dict[NoteKey, NoteSignature]:
    """Return which of the keys signed the published hub checkpoint."""
    signed = published(hub)
    return verified_signatures(signed.note, keys) if signed is not None else {}


def test_the_name_of_the_hub_log_can_be_configured_and_is_in_the_status(start_hub: StartHub) -> None:
    hub = start_hub(gating=False, hub_log__origin="hub.example/log", **AT_ONCE)
    assert hub.status().hub_log_origin == "hub.example/log"
    hub.accept(Writer("alice", hub.hub_id).next())
    assert wait_for_size(hub, 1).head.origin == "hub.example/log"


def test_the_status_of_a_hub_without_a_hub_log_section_has_no_new_keys(start_hub: StartHub) -> None:
    """Clients of an earlier version refuse unknown keys."""
    status = start_hub(gating=False).status()
    assert (status.hub_log_origin, status.memories, status.not_signing) == (None, None, None)
    assert any("no memory is configured" in rule for rule in status.cannot_enforce)
