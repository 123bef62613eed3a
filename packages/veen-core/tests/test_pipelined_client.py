"""The client that sends in batches and reads from any entry, against a simulated hub (§9)."""

import dataclasses

import pytest

from veen_core import ClientId, MmrRoot, StreamSeq, keys, seal_msg
from veen_core.client import Gap
from veen_core.client_state import ClientState
from veen_core.errors import (
    CheckpointError,
    DivergenceError,
    ProofError,
    SignatureError,
    StateError,
    UnprovenError,
)
from veen_core.hashing import H
from veen_core.ids import ClientSeq, NodeHash, Signature, UnixTime
from veen_core.keys import DhSecret
from veen_core.msg import SealedMsg
from veen_core.payload import PayloadHeader
from veen_core.pipelined_client import MAX_TREES_KEPT, CheckedReceipt, PipelinedClient

from .simulator import BORN, READER, SCHEMA, Hub, person, signing_key


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def alice(hub: Hub) -> PipelinedClient:
    plain = person("alice", hub).client
    return PipelinedClient(plain.state, plain.trust, plain.bounds)


def batch(client: PipelinedClient, count: int) -> list[SealedMsg]:
    """Seal consecutive messages."""
    first, made = client.next_binding(BORN), []
    for number in range(count):
        binding = dataclasses.replace(first, client_seq=ClientSeq(first.client_seq + number))
        made.append(
            seal_msg(
                signing_key("alice"),
                READER.public,
                binding,
                PayloadHeader(schema=SCHEMA),
                b"hello",
                profile=client.trust.profile,
                ephemeral=DhSecret(H(b"ephemeral" + binding.aad)),
            )
        )
    return made


def test_a_batch_is_accepted_in_one_step(hub: Hub, alice: PipelinedClient) -> None:
    sealed = batch(alice, 3)
    alice.submit_all(sealed)
    assert alice.pending_leaves == [one.msg.leaf_hash for one in sealed]
    receipts = [hub.append(one.msg) for one in sealed]
    assert alice.accept_receipts(receipts[:2]) is None
    assert alice.accept_receipts(receipts[2:]) is None
    assert alice.accept_receipts([]) is None
    assert (alice.size, alice.root, alice.state.pending) == (3, hub.log.root, ())
    assert alice.tree == hub.log
    alice.submit_all(batch(alice, 1))


def test_a_checked_receipt_changes_nothing_before_it_is_accepted(hub: Hub, alice: PipelinedClient) -> None:
    (sealed,) = batch(alice, 1)
    with pytest.raises(StateError, match="answers no pending MSG"):
        alice.check_receipt(hub.append(sealed.msg), [])
    alice.submit_all([sealed])
    before, claims = (alice.state, alice.tree), []
    checked = alice.check_receipt(hub.entries[0].receipt, claims)
    assert (alice.state, alice.tree) == before
    assert [claim.signature for claim in claims] == [hub.entries[0].receipt.hub_sig]
    assert isinstance(checked, CheckedReceipt)
    alice.accept_checked(checked)
    assert (alice.size, alice.root, alice.state.pending) == (1, hub.log.root, ())


def test_a_receipt_that_breaks_a_rule_is_not_checked(hub: Hub, alice: PipelinedClient) -> None:
    first, second = batch(alice, 2)
    alice.submit_all([first, second])
    receipt = hub.append(first.msg)
    with pytest.raises(DivergenceError):
        alice.check_receipt(dataclasses.replace(receipt, mmr_root=MmrRoot(H(b"another"))), [])
    with pytest.raises(StateError, match="has no receipt yet"):
        alice.check_receipt(hub.append(second.msg), [])
    ahead = dataclasses.replace(receipt, stream_seq=StreamSeq(3))
    assert alice.check_receipt(ahead, []) == Gap(StreamSeq(0), StreamSeq(3))
    assert alice.accept_receipts([receipt]) is None


def test_messages_out_of_order_cannot_be_submitted(alice: PipelinedClient) -> None:
    before = alice.state.encode()
    with pytest.raises(StateError, match="client_seq 2 is not the next one, which is 1"):
        alice.submit_all(batch(alice, 2)[::-1])
    assert alice.state.encode() == before


def test_at_a_gap_no_receipt_of_the_batch_is_accepted(hub: Hub, alice: PipelinedClient) -> None:
    sealed = batch(alice, 2)
    alice.submit_all(sealed)
    first = hub.append(sealed[0].msg)
    hub.write("bob")
    second = hub.append(sealed[1].msg)
    before = alice.state.encode()
    assert alice.accept_receipts([first, second]) == Gap(StreamSeq(1), StreamSeq(3))
    assert alice.state.encode() == before
    alice.accept_page(hub.page(1))
    assert alice.state.pending == ()


def test_receipts_answer_the_oldest_messages_in_order(hub: Hub, alice: PipelinedClient) -> None:
    sealed = batch(alice, 2)
    alice.submit_all(sealed)
    receipts = [hub.append(one.msg) for one in sealed]
    with pytest.raises(StateError, match="client_seq 1 has no receipt yet; accept its receipt first"):
        alice.accept_receipts(receipts[1:])
    with pytest.raises(StateError, match="answers no pending MSG"):
        alice.accept_receipts([*receipts, receipts[0]])


def test_a_forged_root_within_a_batch_is_a_divergence(hub: Hub, alice: PipelinedClient) -> None:
    sealed = batch(alice, 2)
    alice.submit_all(sealed)
    first, second = (hub.append(one.msg) for one in sealed)
    forged = hub.forged(second, mmr_root=MmrRoot(bytes(32)))
    before = alice.state.encode()
    with pytest.raises(DivergenceError, match="I3") as caught:
        alice.accept_receipts([first, forged])
    assert caught.value.shown == forged.encode()
    assert alice.state.encode() == before


def test_messages_that_have_not_left_are_withdrawn_and_those_before_them_stay(
    hub: Hub, alice: PipelinedClient
) -> None:
    first = batch(alice, 2)
    alice.submit_all(first)
    before = alice.state.encode()
    alice.submit_all(batch(alice, 3))
    alice.withdraw(3)
    assert alice.state.encode() == before
    assert alice.accept_receipts([hub.append(one.msg) for one in first]) is None
    assert not alice.pending_leaves
    with pytest.raises(StateError, match="0 MSGs are pending, not 1"):
        alice.withdraw(1)


@pytest.mark.parametrize("count", [1, 2])
def test_a_receipt_with_a_forged_signature_changes_nothing(
    hub: Hub, alice: PipelinedClient, count: int
) -> None:
    sealed = batch(alice, count)
    alice.submit_all(sealed)
    receipts = [hub.append(one.msg) for one in sealed]
    before, root = alice.state.encode(), alice.root
    forged = dataclasses.replace(receipts[-1], hub_sig=Signature(bytes(64)))
    with pytest.raises(SignatureError):
        alice.accept_receipts([*receipts[:-1], forged])
    assert (alice.state.encode(), alice.root) == (before, root)
    assert alice.accept_receipts(receipts) is None


def test_a_client_id_is_switched_only_when_nothing_is_pending(alice: PipelinedClient) -> None:
    other = ClientId(signing_key("other").public)
    alice.submit_all(batch(alice, 1))
    with pytest.raises(StateError, match="wait for its receipt before changing client_id"):
        alice.switch(other, BORN, ClientSeq(7))
    alice.refused()
    alice.switch(other, BORN, ClientSeq(7))
    assert alice.next_binding(BORN).client_seq == 8


def test_the_prefix_is_extended_by_proofs_alone(hub: Hub, alice: PipelinedClient) -> None:
    hub.write("bob", b"1", b"2", b"3")
    alice.accept_page(hub.page(1, 1))
    alice.verify_own(hub.receipt(3))
    alice.extend(hub.receipt(3), hub.proof(3), hub.consistency(1, 3))
    assert alice.root == hub.log.root
    with pytest.raises(StateError, match="within the verified prefix"):
        alice.extend(hub.receipt(3), hub.proof(3), None)


def test_a_receipt_within_the_prefix_is_verified_by_proofs(hub: Hub, alice: PipelinedClient) -> None:
    hub.write("bob", b"1", b"2", b"3")
    alice.accept_page(hub.page(1))
    alice.verify_within(hub.receipt(2), hub.proof(2), hub.consistency(2, 3))
    with pytest.raises(ProofError):
        alice.verify_within(hub.receipt(2), hub.proof(3), hub.consistency(2, 3))


@pytest.mark.parametrize("size", [0, 2, 3])
def test_a_reader_starts_at_any_entry_of_the_prefix(hub: Hub, alice: PipelinedClient, size: int) -> None:
    hub.write("bob", b"1", b"2", b"3")
    alice.accept_page(hub.page(1))
    proof = hub.consistency(size, 3) if 0 < size < 3 else None
    reader = alice.at(StreamSeq(size), proof)
    reader.accept_page(hub.page(size + 1))
    assert (reader.size, reader.root) == (3, alice.root)


def test_a_reader_within_the_prefix_needs_a_valid_proof(hub: Hub, alice: PipelinedClient) -> None:
    hub.write("bob", b"1", b"2", b"3")
    alice.accept_page(hub.page(1))
    with pytest.raises(StateError, match="needs a consistency proof from 2 to 3"):
        alice.at(StreamSeq(2), None)
    forged = dataclasses.replace(hub.consistency(2, 3), path=(NodeHash(bytes(32)),))
    with pytest.raises(UnprovenError):
        alice.at(StreamSeq(2), forged)


def test_a_reader_starts_before_an_own_message_without_a_proof(hub: Hub, alice: PipelinedClient) -> None:
    for _ in range(MAX_TREES_KEPT + 2):
        sealed = batch(alice, 1)
        alice.submit_all(sealed)
        alice.accept_receipts([hub.append(sealed[0].msg)])
    size = alice.size
    reader = alice.at(StreamSeq(size - 1), None)
    reader.accept_page(hub.page(size))
    assert reader.root == alice.root
    assert alice.known_tree(size - MAX_TREES_KEPT) is not None
    assert alice.known_tree(size - MAX_TREES_KEPT - 1) is None, "only the last trees are kept"


def test_an_own_message_is_read_with_the_signature_that_was_sent(hub: Hub, alice: PipelinedClient) -> None:
    (sealed,) = batch(alice, 1)
    alice.submit_all([sealed])
    hub.append(sealed.msg)
    (entry,) = hub.page(1)
    changed = dataclasses.replace(sealed.msg, sig=Signature(bytes(64)))
    with pytest.raises(SignatureError):
        alice.accept_page([dataclasses.replace(entry, msg_bytes=changed.encode())])
    assert alice.pending_leaves
    alice.accept_page([entry])
    assert not alice.pending_leaves


def test_a_follower_verifies_no_signature_twice_unless_the_bytes_differ(
    hub: Hub, alice: PipelinedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send() -> None:
        (sealed,) = batch(alice, 1)
        alice.submit_all([sealed])
        alice.accept_receipts([hub.append(sealed.msg)])

    verified: list[bytes] = []
    verify = keys.bindings.crypto_sign_open
    monkeypatch.setattr(
        keys.bindings, "crypto_sign_open", lambda sm, key: (verified.append(sm), verify(sm, key))[1]
    )
    send()
    reader = alice.at(StreamSeq(0), None)
    reader.accept_page(hub.page(1))
    send()
    send()
    verified.clear()
    (entry,) = hub.page(2)[:1]
    unsigned = Signature(bytes(64))
    msg = dataclasses.replace(entry.msg, sig=unsigned)
    receipt = dataclasses.replace(entry.receipt, hub_sig=unsigned)
    for altered in (
        dataclasses.replace(entry, msg_bytes=msg.encode()),
        dataclasses.replace(entry, receipt_bytes=receipt.encode()),
    ):
        with pytest.raises(SignatureError):
            reader.accept_page([altered])
    assert len(verified) == 2
    reader.accept_page(hub.page(2))
    assert (len(verified), reader.root) == (2, alice.root)
    hub.write("bob")
    reader.accept_page(hub.page(4))
    assert len(verified) == 4, "another writer's MSG and RECEIPT"


def test_a_loaded_state_replaces_the_prefix(hub: Hub, alice: PipelinedClient) -> None:
    saved = alice.state.encode()
    hub.write("bob")
    alice.accept_page(hub.page(1))
    alice.adopt(ClientState.decode(saved))
    assert alice.size == 0
    alice.accept_page(hub.page(1))


def test_a_checkpoint_of_the_prefix_is_accepted(hub: Hub, alice: PipelinedClient) -> None:
    hub.write("bob", b"1", b"2")
    alice.accept_page(hub.page(1))
    last = hub.receipt(2)
    alice.accept_checkpoint(hub.checkpoint(2), alice.tree, last, now=BORN, seen=StreamSeq(0))
    assert alice.state.checkpointed == 2
    with pytest.raises(CheckpointError, match="before the last checkpoint at 3"):
        alice.accept_checkpoint(hub.checkpoint(2), alice.tree, last, now=BORN, seen=StreamSeq(3))


def test_in_a_rotation_window_all_active_keys_sign_a_checkpoint(hub: Hub, alice: PipelinedClient) -> None:
    hub.now = UnixTime(BORN + 10)
    hub.rotate_key(window_sec=600)
    hub.write("bob")
    alice.trust = dataclasses.replace(alice.trust, identity=hub.identity)
    alice.accept_page(hub.page(1))
    given = {"now": hub.now, "seen": StreamSeq(0)}
    with pytest.raises(SignatureError, match="the signature of witness"):
        alice.accept_checkpoint(hub.checkpoint(1), alice.tree, hub.receipt(1), **given)
    both = hub.checkpoint(1, witnesses=(hub.keys[0], hub.keys[1]))
    alice.accept_checkpoint(both, alice.tree, hub.receipt(1), **given)


def test_a_checkpoint_signed_by_a_key_retired_before_is_refused(hub: Hub, alice: PipelinedClient) -> None:
    hub.now = UnixTime(BORN + 10)
    hub.rotate_key(window_sec=5)
    hub.now = UnixTime(BORN + 100)
    hub.write("bob")
    alice.trust = dataclasses.replace(alice.trust, identity=hub.identity)
    alice.accept_page(hub.page(1))
    hub.keys.reverse()
    with pytest.raises(SignatureError, match="not active at the time of the checkpoint"):
        alice.accept_checkpoint(hub.checkpoint(1), alice.tree, hub.receipt(1), now=hub.now, seen=StreamSeq(0))
