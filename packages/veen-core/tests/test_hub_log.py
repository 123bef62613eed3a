"""The hub log: label heads, the hub checkpoint and its keys, what a hub may not contradict (P1)."""

from __future__ import annotations

import dataclasses

import pytest

from veen_core import StreamSeq
from veen_core.errors import InvariantError, ProofError, SignatureError
from veen_core.hashing import H
from veen_core.hub_log import (
    HeadTable,
    LabelHead,
    check_uncovered,
    hashes,
    note_key,
    origin_of,
    verify_hub_checkpoint,
)
from veen_core.ids import Label, MmrRoot, NodeHash, UnixTime
from veen_core.tlog import tree
from veen_core.tlog.note import NoteSignature, parse_key
from veen_core.tlog.tree_head import SignedHead

from .simulator import BORN, Hub, HubLog, person, signing_key

LABEL, OTHER = sorted([Label(H(b"a")), Label(H(b"b"))])


def head(upto_seq: int, hub_ts: int = BORN, label: Label = LABEL) -> LabelHead:
    return LabelHead(
        label=label, upto_seq=StreamSeq(upto_seq), mmr_root=MmrRoot(bytes(32)), hub_ts=UnixTime(hub_ts)
    )


@pytest.fixture
def log(hub: Hub) -> HubLog:
    """The log of a hub with one message and four heads."""
    person("writer", hub).send()
    made = HubLog(hub)
    made.add_others(2)
    made.add_own()
    made.add_others(1)
    return made


# --- the entry


def test_a_label_head_is_the_array_of_p1() -> None:
    wire = head(5, 1_000).encode()
    assert wire == b"\x85\x01\x58\x20" + LABEL + b"\x05\x58\x20" + bytes(32) + b"\x19\x03\xe8"
    assert LabelHead.decode(wire) == head(5, 1_000)
    assert tree.leaf_hash(wire) != tree.leaf_hash(head(6, 1_000).encode())


# --- the hub checkpoint


def test_the_name_of_the_log_contains_the_hub_id(hub: Hub) -> None:
    assert origin_of(hub.identity.hub_id) == f"veen.hub/{hub.identity.hub_id.hex()}"


def test_the_key_of_the_hub_is_a_verifier_key_with_the_name_of_the_log(hub: Hub) -> None:
    name = origin_of(hub.identity.hub_id)
    key = note_key(hub.identity.newest, name)
    assert key.text.startswith(f"{name}+")
    assert parse_key(key.text).public == hub.hub_pk


def test_a_hub_checkpoint_verifies_under_the_identity_of_its_hub(log: HubLog) -> None:
    verify_hub_checkpoint(log.hub.identity, log.checkpoint())
    own = log.checkpoint(origin="logs.example/hub")
    verify_hub_checkpoint(log.hub.identity, own, origin="logs.example/hub")


def test_a_hub_checkpoint_with_another_origin_is_refused(log: HubLog) -> None:
    with pytest.raises(SignatureError, match=r"its origin is 'logs.example/hub', not 'veen.hub/"):
        verify_hub_checkpoint(log.hub.identity, log.checkpoint(origin="logs.example/hub"))
    with pytest.raises(SignatureError, match=r"not 'logs.example/hub'"):
        verify_hub_checkpoint(log.hub.identity, log.checkpoint(), origin="logs.example/hub")


def test_a_hub_checkpoint_of_another_key_is_refused(log: HubLog) -> None:
    stranger = log.checkpoint(keys=(signing_key("stranger"),))
    with pytest.raises(SignatureError, match=r"at size 4 .*no key of the hub signed it"):
        verify_hub_checkpoint(log.hub.identity, stranger)


def test_a_hub_checkpoint_with_a_changed_signature_is_refused(log: HubLog) -> None:
    signed = log.checkpoint()
    line = signed.note.signatures[0]
    changed = NoteSignature(line.name, line.key_id, bytes([line.signature[0] ^ 1]) + line.signature[1:])
    bad = SignedHead(signed.head, signed.note.with_signatures([changed]))
    with pytest.raises(SignatureError, match="does not verify"):
        verify_hub_checkpoint(log.hub.identity, bad)


def test_during_a_rotation_either_key_is_enough_and_afterwards_only_the_new_one(log: HubLog) -> None:
    hub = log.hub
    old = hub.key
    hub.now = UnixTime(hub.now + 1_000)
    hub.rotate_key(600)
    ends = hub.identity.hub_keys[0].valid_until
    assert ends is not None
    for keys in ((old,), (hub.key,), (old, hub.key)):
        verify_hub_checkpoint(hub.identity, log.checkpoint(keys=keys), since=UnixTime(ends - 1))
    verify_hub_checkpoint(hub.identity, log.checkpoint(keys=(old, hub.key)), since=ends)
    with pytest.raises(SignatureError, match="no key of the hub signed it"):
        verify_hub_checkpoint(hub.identity, log.checkpoint(keys=(old,)), since=ends)


def test_without_the_time_of_an_entry_a_retired_key_still_verifies(log: HubLog) -> None:
    old = log.hub.key
    log.hub.now = UnixTime(log.hub.now + 1_000)
    log.hub.rotate_key(0)
    verify_hub_checkpoint(log.hub.identity, log.checkpoint(keys=(old,)))


# --- what a hub may not contradict


def test_the_table_holds_the_newest_head_of_every_label() -> None:
    table = HeadTable()
    for each in (head(1), head(3, label=OTHER), head(2, BORN + 5), head(4, BORN + 3, OTHER)):
        table.add(each)
    assert table.newest == {LABEL: head(2, BORN + 5), OTHER: head(4, BORN + 3, OTHER)}
    assert table.hub_ts == BORN + 5


@pytest.mark.parametrize("upto_seq", [0, 1, 4, 5])
def test_a_label_that_does_not_grow_is_refused(upto_seq: int) -> None:
    table = HeadTable()
    table.add(head(5))
    with pytest.raises(
        InvariantError, match=f"P1: upto_seq of label .* does not grow in the hub log: 5, then {upto_seq}"
    ):
        table.add(head(upto_seq, BORN + 1))
    assert table.newest[LABEL] == head(5)


def test_a_first_head_before_the_first_entry_is_refused() -> None:
    with pytest.raises(InvariantError, match="0, then 0"):
        HeadTable().add(head(0))


def test_a_time_that_decreases_within_a_label_is_refused() -> None:
    table = HeadTable()
    table.add(head(1))
    table.add(head(1, BORN - 5, OTHER))  # another label has its own time
    table.add(head(2))
    with pytest.raises(InvariantError, match=r"hub_ts of label .* decreases at 3"):
        table.add(head(3, BORN - 1))


def test_an_entry_that_is_older_than_the_newest_head_must_be_covered() -> None:
    for newer in (BORN, BORN + 1):
        check_uncovered(LABEL, StreamSeq(7), UnixTime(newer), UnixTime(BORN))
    with pytest.raises(
        InvariantError, match=f"P1: the hub log does not cover entry 7 of label {LABEL.hex()}"
    ):
        check_uncovered(LABEL, StreamSeq(7), UnixTime(BORN - 1), UnixTime(BORN))


def test_the_hashes_of_a_proof_have_the_type_of_the_api(log: HubLog) -> None:
    proof = tree.prove_inclusion(log.lookup, 2, 4)
    assert hashes(proof) == tuple(proof)
    assert all(type(each) is NodeHash for each in hashes(proof))


def test_a_changed_head_does_not_lead_to_the_root_of_the_log(log: HubLog) -> None:
    proof, own = tree.prove_inclusion(log.lookup, 2, 4), log.heads[2]
    tree.verify_inclusion(tree.leaf_hash(own.encode()), 2, 4, proof, log.tree.root)
    for changes in ({"upto_seq": 2}, {"hub_ts": own.hub_ts + 1}, {"mmr_root": MmrRoot(bytes(32))}):
        leaf = tree.leaf_hash(dataclasses.replace(own, **changes).encode())
        with pytest.raises(ProofError, match="does not lead to the root"):
            tree.verify_inclusion(leaf, 2, 4, proof, log.tree.root)
