"""Evidence is fetched once and verified without the hub; also inspect, explain and pow."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from veen_cli.evidence import verification
from veen_cli.frame.exits import Exit
from veen_core.card import IdentityCard
from veen_core.checkpoint import Checkpoint, sign_checkpoint
from veen_core.hub_identity import HubIdentity, new_identity, rotate
from veen_core.ids import Epoch, HubId, HubPk, Label, LeafHash, MmrRoot, NodeHash, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt, sign_receipt
from veen_core.rejection import TABLE, Code
from veen_hub.client import FileStateStore
from veen_hub.client.blocking import connect
from veen_hub.client.state.records import HubCheckpointRecord, LabelRecord
from veen_hub.web.verifier_page import verifier_page
from veen_storage import Layout
from veen_storage.chunks.compression import compress
from veen_storage.disk.hub_keys import read_keys

from .conftest import STREAM, Town
from .running import veen

FILES = (
    "receipt.cbor",
    "proof.cbor",
    "checkpoint.cbor",
    "consistency.cbor",
    "hub-identity.cbor",
    "receipt-3.cbor",
)


@pytest.fixture(scope="session")
def case(town: Town) -> Path:
    """A folder with all evidence about message 1; the log has at least three messages."""
    folder = town / "case"
    folder.mkdir()
    for n in range(3):
        town.as_("alice", "send", f"evidence {n}", "-s", STREAM).ok()
    town.as_("admin", "hub", "checkpoint", "-s", STREAM).ok()
    who = ("bob",)
    checkpoint = town.as_(
        *who, "checkpoint", "get", "-s", STREAM, "--out", folder / "checkpoint.cbor", "--json"
    ).json
    upto = checkpoint["value"]["upto_seq"]
    town.as_(*who, "receipt", "get", 1, "-s", STREAM, "--out", folder / "receipt.cbor").ok()
    town.as_(*who, "receipt", "get", 3, "-s", STREAM, "--out", folder / "receipt-3.cbor").ok()
    against = ("--against", upto)
    town.as_(*who, "proof", "get", 1, *against, "-s", STREAM, "--out", folder / "proof.cbor").ok()
    town.as_(*who, "consistency", "get", 1, 3, "-s", STREAM, "--out", folder / "consistency.cbor").ok()
    veen("hub", "keys", "--data-dir", town / "hub", "--out", folder / "hub-identity.cbor").ok()
    return folder


def test_all_evidence_verifies_without_the_hub(town: Town, case: Path) -> None:
    told = veen("verify", *(case / name for name in FILES), "--trust", town.hub_id, "--json").json
    assert told["holds"] is True
    assert [each["kind"] for each in told["verdicts"]] == [
        "RECEIPT",
        "mmr_proof",
        "CHECKPOINT",
        "mmr_consistency",
        "hub-identity",
        "RECEIPT",
    ]


def test_hub_keys_fetches_the_identity_from_a_running_hub(town: Town, case: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.cbor"
    told = veen("hub", "keys", "--hub", town.url, "--trust", town.hub_id, "--out", file, "--json").json
    assert (told["hub_id"], told["pinned"]) == (town.hub_id, True)
    assert file.read_bytes() == (case / "hub-identity.cbor").read_bytes()
    unpinned = veen("hub", "keys", "--hub", town.url)
    assert (unpinned.code, unpinned.err.startswith("note: not pinned")) == (0, True)
    veen("hub", "keys", "--hub", town.url, "--trust", "ab" * 32).failed(Exit.PROTOCOL)
    veen("hub", "keys", "--hub", town.url, "--data-dir", town / "hub").failed(Exit.USAGE)
    assert "--data-dir is missing" in veen("hub", "keys").failed(Exit.USAGE)


def test_hub_keys_takes_its_hub_from_a_variable_or_the_context(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("hub", "keys", "--trust", town.hub_id, "--json")
    veen("context", "add", "work", "--hub", town.url).ok()
    assert veen(*asked).json["hub_id"] == town.hub_id
    monkeypatch.setenv("VEEN_HUB", "http://127.0.0.1:1")
    veen(*asked).failed(Exit.NETWORK)
    assert veen(*asked, "--hub", town.url).json["pinned"]
    assert veen(*asked, "--data-dir", town / "hub").json["hub_id"] == town.hub_id
    monkeypatch.setenv("VEEN_DATA_DIR", str(town / "hub"))
    assert veen(*asked).json["hub_id"] == town.hub_id


def test_an_undecided_verdict_names_only_what_is_missing(town: Town, case: Path) -> None:
    receipt, keys = case / "receipt.cbor", case / "hub-identity.cbor"
    assert "--trust HUB_ID" in veen("verify", receipt, keys).failed(Exit.PROTOCOL)
    told = veen("verify", receipt, "--trust", town.hub_id).failed(Exit.PROTOCOL)
    assert "veen hub keys --hub" in told
    assert "--trust HUB_ID" not in told
    proof, consistency = case / "proof.cbor", case / "consistency.cbor"
    for name in (proof, consistency):
        unpinned = veen("verify", name, receipt, case / "receipt-3.cbor", keys, "--json")
        assert "--trust HUB_ID" in json.loads(unpinned.out)["verdicts"][0]["why"]
    alone = veen("verify", proof, keys, "--trust", town.hub_id).failed(Exit.PROTOCOL)
    assert "give the receipt" in alone
    wrong = veen("verify", receipt, keys, "--trust", "ab" * 32)
    assert "belongs to hub" in wrong.failed(Exit.PROTOCOL)
    assert "64 hex digits" in veen("verify", receipt, "--trust", "zz").failed(Exit.USAGE)


def test_in_a_rotation_window_a_checkpoint_needs_both_signatures(
    tmp_path: Path,
) -> None:
    """KEX0.1: a covered receipt shows that the checkpoint was made after the second key became valid."""
    old, new = (SigningKey(SigningSeed(bytes([n] * 32))) for n in (1, 2))
    began = UnixTime(1_700_000_000)
    identity = rotate(new_identity(old, began), old, HubPk(new.public), UnixTime(began + 100), window_sec=800)
    label, root = Label(bytes(32)), MmrRoot(bytes([7] * 32))

    def receipt(at: int) -> Receipt:
        unsigned = Receipt(
            label=label, stream_seq=StreamSeq(1), leaf_hash=LeafHash(root), mmr_root=root, hub_ts=UnixTime(at)
        )
        return sign_receipt(old if at < began + 100 else new, unsigned)

    unsigned = Checkpoint(
        label_prev=label, label_curr=label, upto_seq=StreamSeq(1), mmr_root=root, epoch=Epoch(0)
    )
    objects = {
        "before": receipt(began + 50),
        "within": receipt(began + 500),
        "alone": sign_checkpoint(new, unsigned),
        "old": sign_checkpoint(old, unsigned),
        "both": sign_checkpoint(new, unsigned, [old, new]),
        "keys": identity,
    }
    for name, each in objects.items():
        (tmp_path / name).write_bytes(each.encode())

    def holds(*names: str) -> bool:
        done = veen(
            "verify", *(tmp_path / n for n in (*names, "keys")), "--trust", identity.hub_id.hex(), "--json"
        )
        return json.loads(done.out)["holds"] is True

    assert holds("both", "within")
    assert not holds("old", "within")
    assert holds("old", "before"), "it may have been made before the window"
    assert holds("old")


def test_one_entry_is_one_entry(tmp_path: Path) -> None:
    key, label = SigningKey(SigningSeed(bytes([1] * 32))), Label(bytes(32))
    identity = new_identity(key, UnixTime(1_700_000_000))
    one = Checkpoint(
        label_prev=label,
        label_curr=label,
        upto_seq=StreamSeq(1),
        mmr_root=MmrRoot(bytes([7] * 32)),
        epoch=Epoch(0),
    )
    for name, each in (("one.cbor", sign_checkpoint(key, one)), ("keys.cbor", identity)):
        (tmp_path / name).write_bytes(each.encode())
    found = veen("verify", tmp_path / "one.cbor", tmp_path / "keys.cbor", "--trust", identity.hub_id.hex())
    assert "signed the root of 1 entry of label" in found.ok().out


def test_a_client_that_knows_the_hub_needs_no_identity_file(town: Town, case: Path) -> None:
    flags = ("--trust", town.hub_id, "--client", town / "bob", "--allow-partial")
    assert "✓" in veen("verify", case / "receipt.cbor", *flags).ok().out
    identity = case / "hub-identity.cbor"
    pk = veen("hub", "keys", "--data-dir", town / "hub", "--json").json["keys"][0]["hub_pk"]
    veen("verify", case / "receipt.cbor", identity, "--trust", pk).ok()


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_byte_fails_verification(town: Town, case: Path, name: str, tmp_path: Path) -> None:
    for each in FILES:
        (tmp_path / each).write_bytes((case / each).read_bytes())
    content = bytearray((case / name).read_bytes())
    for at in range(0, len(content), 7):
        bent = content.copy()
        bent[at] ^= 0x01
        (tmp_path / name).write_bytes(bent)
        done = veen("verify", *(tmp_path / each for each in FILES), "--trust", town.hub_id)
        assert done.code == Exit.PROTOCOL, (name, at, done)


def test_nothing_verifies_without_a_pin(town: Town, case: Path) -> None:
    assert "--trust" in veen("verify", case / "receipt.cbor", case / "hub-identity.cbor").failed(
        Exit.PROTOCOL
    )
    other = veen("verify", case / "receipt.cbor", case / "hub-identity.cbor", "--trust", "ab" * 32)
    assert "but abab" in other.out
    assert other.code == Exit.PROTOCOL
    assert town.hub_id in other.out


def test_a_receipt_of_another_hub_does_not_verify(town: Town, case: Path, tmp_path: Path) -> None:
    stranger = SigningKey(SigningSeed(os.urandom(32)))
    receipt = Receipt.decode((case / "receipt.cbor").read_bytes())
    (tmp_path / "forged.cbor").write_bytes(sign_receipt(stranger, receipt).encode())
    forged = veen("verify", tmp_path / "forged.cbor", case / "hub-identity.cbor", "--trust", town.hub_id)
    assert "no key of the hub" in forged.failed(Exit.PROTOCOL)
    theirs = new_identity(stranger, UnixTime(0))
    (tmp_path / "their-identity.cbor").write_bytes(theirs.encode())
    veen(
        "verify", tmp_path / "forged.cbor", tmp_path / "their-identity.cbor", "--trust", theirs.hub_id.hex()
    ).ok()
    assert HubPk(stranger.public) == theirs.newest.hub_pk


def test_two_receipts_for_one_position_convict_the_hub(town: Town, case: Path, tmp_path: Path) -> None:
    layout = Layout(town / "hub")
    identity = HubIdentity.decode((case / "hub-identity.cbor").read_bytes())
    (key,) = read_keys(layout.keys, identity).values()
    receipt = Receipt.decode((case / "receipt.cbor").read_bytes())
    lie = sign_receipt(key, dataclasses.replace(receipt, leaf_hash=LeafHash(bytes(32))))
    (tmp_path / "lie.cbor").write_bytes(lie.encode())
    files = (case / "receipt.cbor", tmp_path / "lie.cbor", case / "hub-identity.cbor")
    assert "convict" in veen("verify", *files, "--trust", town.hub_id).failed(Exit.PROTOCOL)


@pytest.fixture
def bobs(town: Town, case: Path) -> Receipt:
    """Return the newest receipt that Bob has verified."""
    seq = town.as_("bob", "resync", "-s", STREAM, "--json").json["stream_seq"]
    town.as_("bob", "receipt", "get", seq, "-s", STREAM, "--out", case / "newest.cbor").ok()
    return Receipt.decode((case / "newest.cbor").read_bytes())


def hub_key(town: Town, case: Path) -> SigningKey:
    identity = HubIdentity.decode((case / "hub-identity.cbor").read_bytes())
    (key,) = read_keys(Layout(town / "hub").keys, identity).values()
    return key


@pytest.mark.usefixtures("bobs")
def test_evidence_agrees_with_the_clients_verified_state(town: Town, case: Path) -> None:
    files = (case / "newest.cbor", "--trust", town.hub_id, "--client", town / "bob")
    assert f"as {town / 'bob'} has verified" in veen("verify", *files).ok().out


def test_a_checkpoint_that_contradicts_the_clients_state_fails(
    town: Town, case: Path, bobs: Receipt, tmp_path: Path
) -> None:
    unsigned = Checkpoint(
        label_prev=bobs.label,
        label_curr=bobs.label,
        upto_seq=bobs.stream_seq,
        mmr_root=MmrRoot(bytes([9] * 32)),
        epoch=Epoch(0),
    )
    lie = tmp_path / "lie.cbor"
    lie.write_bytes(sign_checkpoint(hub_key(town, case), unsigned).encode())
    trust = ("--trust", town.hub_id)
    veen("verify", lie, case / "hub-identity.cbor", *trust).ok()
    found = veen("verify", lie, *trust, "--client", town / "bob", "--json")
    assert found.code == Exit.PROTOCOL
    assert json.loads(found.out)["holds"] is False
    assert f"contradicts what {town / 'bob'} has verified" in found.err
    veen("checkpoint", "verify", lie, *trust, "--client", town / "bob").failed(Exit.PROTOCOL)


def test_a_receipt_that_contradicts_the_clients_state_fails(
    town: Town, case: Path, bobs: Receipt, tmp_path: Path
) -> None:
    lie = tmp_path / "lie.cbor"
    other = dataclasses.replace(bobs, leaf_hash=LeafHash(bytes(32)), mmr_root=MmrRoot(bytes([9] * 32)))
    lie.write_bytes(sign_receipt(hub_key(town, case), other).encode())
    trust = ("--trust", town.hub_id)
    veen("verify", lie, case / "hub-identity.cbor", *trust).ok()
    veen("verify", lie, *trust, "--client", town / "bob").failed(Exit.PROTOCOL)


def test_a_root_that_cannot_be_compared_with_the_client_does_not_hold(
    town: Town, case: Path, bobs: Receipt, tmp_path: Path
) -> None:
    """Bob's state has no root of the log of one entry, so that a false one does not contradict it."""
    lie, proof = tmp_path / "lie.cbor", tmp_path / "proof.cbor"
    true = Receipt.decode((case / "receipt.cbor").read_bytes())
    false = dataclasses.replace(true, leaf_hash=LeafHash(bytes(32)), mmr_root=MmrRoot(bytes([9] * 32)))
    lie.write_bytes(sign_receipt(hub_key(town, case), false).encode())
    with_bob = ("--trust", town.hub_id, "--client", town / "bob")
    for name in (lie, case / "receipt.cbor"):
        shown = veen("verify", name, *with_bob)
        assert shown.out.startswith("? ")
        assert "NOT COMPARED" in shown.failed(Exit.PROTOCOL)
        assert f"veen consistency get 1 {bobs.stream_seq}" in shown.err
        assert veen("verify", name, *with_bob, "--allow-partial").ok().out.startswith("✓ ")
    town.as_("bob", "consistency", "get", 1, bobs.stream_seq, "-s", STREAM, "--out", proof).ok()
    assert (
        f"as {town / 'bob'} has verified" in veen("verify", case / "receipt.cbor", proof, *with_bob).ok().out
    )
    veen("verify", lie, proof, *with_bob).failed(Exit.PROTOCOL)


def test_a_client_of_the_context_makes_no_receipt_fail_that_cannot_be_compared(
    town: Town, case: Path, bobs: Receipt
) -> None:
    veen("context", "add", "work", "--trust", town.hub_id, "--client", town / "bob", "--use").ok()
    assert bobs.stream_seq > 1
    assert "; not compared with" in veen("verify", case / "receipt.cbor").ok().out


def hub_checkpoint(url: str) -> bytes:
    """Return the hub checkpoint, once the hub has published one."""
    for _ in range(600):
        with (
            contextlib.suppress(HTTPError),
            urllib.request.urlopen(f"{url}/log/checkpoint", timeout=10) as answer,
        ):
            return bytes(answer.read())
        time.sleep(0.1)
    raise AssertionError("no hub checkpoint within a minute")


def test_a_hub_checkpoint_that_contradicts_the_clients_state_fails(
    town: Town, case: Path, tmp_path: Path
) -> None:
    bob, file = tmp_path / "bob", tmp_path / "checkpoint.note"
    shutil.copytree(town / "bob", bob)
    town.as_("alice", "send", "covered by the hub log", "-s", STREAM).ok()
    note = hub_checkpoint(town.url)
    file.write_bytes(note)
    with_bob = ("verify", file, case / "hub-identity.cbor", "--trust", town.hub_id, "--client", bob)
    veen(*with_bob).ok()

    origin, size, _root, *rest = note.decode().split("\n")
    other = "\n".join((origin, size, base64.b64encode(bytes(32)).decode(), *rest))
    record = HubCheckpointRecord(checkpoint=other.encode())
    FileStateStore(bob / "state").save(HubId.from_hex(town.hub_id), "hublog/checkpoint", record.encode())
    told = veen(*with_bob).failed(Exit.PROTOCOL)
    assert f"contradicts what {bob} has accepted: the hub signed two hub logs of {size} entries" in told


def test_an_export_is_compared_with_what_the_client_has_verified(
    town: Town, case: Path, bobs: Receipt, tmp_path: Path
) -> None:
    bob, export = tmp_path / "bob", tmp_path / "export"
    shutil.copytree(town / "bob", bob)
    veen("hub", "export", "-d", town / "hub", "-s", STREAM, "--out", export).ok()
    with_bob = ("--trust", town.hub_id, "--client", bob)
    assert f"as {bob} has verified" in veen("verify", export, *with_bob).ok().out

    hub_id, store = HubId.from_hex(town.hub_id), FileStateStore(bob / "state")
    content = store.load(hub_id, bobs.label.hex())
    assert content is not None
    record = LabelRecord.decode(content)
    peaks = tuple(NodeHash(bytes([9] * 32)) for _ in record.state.peaks)
    other = dataclasses.replace(record.state, peaks=peaks, head=None, checkpoint=None)
    store.save(hub_id, bobs.label.hex(), dataclasses.replace(record, state=other).encode())
    told = veen("verify", export, *with_bob)
    assert f"contradicts what {bob} has verified" in told.failed(Exit.PROTOCOL)
    assert told.out.startswith("✗ ")
    veen("verify", export, case / "hub-identity.cbor", "--trust", town.hub_id).ok()


def test_receipts_for_different_positions_do_not_contradict_each_other(
    town: Town, case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comparing every pair would verify two signatures each: hours for a chunk of thousands of entries."""

    def compared(*_: object) -> None:
        pytest.fail("two receipts for different places were compared")

    monkeypatch.setattr(verification, "find_equivocation", compared)
    files = (case / "receipt.cbor", case / "receipt-3.cbor", case / "hub-identity.cbor")
    veen("verify", *files, "--trust", town.hub_id).ok()


def test_a_proof_for_a_larger_tree_than_any_signed_root_is_undecided(town: Town, case: Path) -> None:
    beside = (case / "receipt.cbor", case / "hub-identity.cbor", "--trust", town.hub_id, "--json")
    undecided = veen("verify", case / "proof.cbor", *beside)
    assert undecided.code == Exit.PROTOCOL
    assert json.loads(undecided.out)["verdicts"][0]["holds"] is None
    assert "give the receipt or checkpoint of the tree" in undecided.err


def test_a_proof_without_its_receipt_or_root_is_undecided(town: Town, case: Path) -> None:
    flags = ("--trust", town.hub_id)
    alone = veen("proof", "verify", case / "proof.cbor", *flags)
    assert "give the receipt" in alone.failed(Exit.PROTOCOL)
    half = veen(
        "consistency",
        "verify",
        case / "consistency.cbor",
        case / "receipt.cbor",
        case / "hub-identity.cbor",
        *flags,
    )
    assert "at 1 and 3" in half.failed(Exit.PROTOCOL)
    whole = (case / "receipt.cbor", case / "receipt-3.cbor", case / "hub-identity.cbor")
    veen("consistency", "verify", case / "consistency.cbor", *whole, *flags).ok()
    beside = (case / "receipt.cbor", case / "checkpoint.cbor", case / "hub-identity.cbor")
    veen("proof", "verify", case / "proof.cbor", *beside, *flags).ok()
    veen("checkpoint", "verify", case / "checkpoint.cbor", case / "hub-identity.cbor", *flags).ok()
    assert "not RECEIPT" in veen("receipt", "verify", case / "proof.cbor", *flags).failed(Exit.USAGE)


def test_cards_tokens_and_messages_verify_by_their_own_signatures(town: Town, tmp_path: Path) -> None:
    card = town / "bob/identity_card.pub"
    told = veen("verify", card, town / "alice.cap", "--json").json
    assert [each["holds"] for each in told["verdicts"]] == [True, True]
    bent = IdentityCard.decode(card.read_bytes())
    forged = dataclasses.replace(bent, id_dh=type(bent.id_dh)(bytes(32)))
    (tmp_path / "forged.pub").write_bytes(forged.encode())
    veen("verify", tmp_path / "forged.pub").failed(Exit.PROTOCOL)
    sealed = veen("verify", town / "bob/secrets.cbor")
    assert "not evidence" in sealed.failed(Exit.PROTOCOL)


@pytest.mark.parametrize(
    ("noun", "kind"), [("receipt", Receipt), ("checkpoint", Checkpoint), ("proof", MmrProof)]
)
def test_show_names_the_kind_of_object(case: Path, noun: str, kind: type[Receipt]) -> None:
    told = veen(noun, "show", case / f"{noun}.cbor", "--json").json
    assert told["kind"] == kind.codec.name
    assert veen(noun, "show", case / f"{noun}.cbor").ok().out.startswith(kind.codec.name)
    assert "veen inspect" in veen(noun, "show", case / "hub-identity.cbor").failed(Exit.PROTOCOL)


def test_a_compressed_chunk_is_decompressed_and_read(town: Town, tmp_path: Path) -> None:
    deadline = time.monotonic() + 30
    while not (chunks := list((town / "hub/log").glob("chunk-*.open"))):  # the hub applies a moment later
        assert time.monotonic() < deadline
        time.sleep(0.05)
    chunk = chunks[0]
    squeezed = tmp_path / "chunk.log"
    squeezed.write_bytes(b"".join(compress(chunk, 3)))
    plain, told = (veen("inspect", path, "--json").json["objects"] for path in (chunk, squeezed))
    assert [each["value"] for each in told] == [each["value"] for each in plain]
    squeezed.write_bytes(squeezed.read_bytes()[:-3])
    assert "seek table" in veen("inspect", squeezed).failed(Exit.PROTOCOL)


def test_inspect_reads_every_kind_of_file_and_shows_no_secret(town: Town, case: Path, tmp_path: Path) -> None:
    for name in FILES:
        veen("inspect", case / name).ok()
    secrets = (town / "alice/secrets.cbor").read_bytes()
    shown = veen("inspect", town / "alice/secrets.cbor").ok().out
    assert "not shown" in shown
    assert secrets[6:38].hex() not in shown
    told = veen("inspect", town / "alice/secrets.cbor", "--json").json
    assert told["objects"][0]["value"]["id_sign"] == "(secret, not shown)"
    hexed = veen("inspect", "-", stdin=(case / "receipt.cbor").read_bytes().hex().encode()).ok()
    assert "RECEIPT (core §4.3)" in hexed.out
    (tmp_path / "sequence").write_bytes((case / "receipt.cbor").read_bytes() + b"\xa1\x01\x82\x01\x02")
    assert [each["kind"] for each in veen("inspect", tmp_path / "sequence", "--json").json["objects"]] == [
        "RECEIPT",
        "CBOR of an unknown kind",
    ]
    (tmp_path / "noise").write_bytes(b"\xff\xff")
    assert "not a VEEN file" in veen("inspect", tmp_path / "noise").failed(Exit.PROTOCOL)
    (tmp_path / "empty").write_bytes(b"")
    veen("inspect", tmp_path / "empty").failed(Exit.PROTOCOL)
    veen("inspect", tmp_path / "nowhere").failed(Exit.USAGE)


def test_fetching_missing_evidence_is_an_error(town: Town) -> None:
    assert "NOT_FOUND" in town.as_("bob", "receipt", "get", 10**9, "-s", STREAM).failed(Exit.REFUSED)
    assert "veen hub checkpoint" in town.as_("bob", "checkpoint", "get", "-s", "unused").failed(Exit.REFUSED)
    town.as_("bob", "consistency", "get", 3, 2, "-s", STREAM).failed(Exit.USAGE)


@pytest.mark.parametrize("name", [*(code.value for code in Code), *(row.detail for row in TABLE), "4"])
def test_every_code_is_explained(name: str) -> None:
    told = veen("explain", name, "--json").json
    assert told["means"]
    assert name in veen("explain", name).ok().out


def test_explain_lists_all_codes_and_refuses_unknown_ones() -> None:
    assert len(veen("explain", "--json").json["codes"]) == len(Code) + len(TABLE)
    assert "expired" in veen("explain", "E.TIME / CAP_TTL").ok().out
    veen("explain", "NONSENSE").failed(Exit.USAGE)
    assert veen("explain", "").failed(Exit.USAGE).startswith("veen: there is no code (empty)")


def test_a_proof_of_work_is_found_for_a_message_and_verifies(town: Town, tmp_path: Path) -> None:
    town.as_("alice", "send", "worth some work", "-s", STREAM).ok()
    with connect(town.url, trust=town.hub_id) as hub:
        (message,) = hub.stream(STREAM).read(1, 1)
    (tmp_path / "msg.cbor").write_bytes(message.entry.msg_bytes)
    told = town.as_("alice", "pow", "solve", "--msg", tmp_path / "msg.cbor", "--difficulty", 8, "--json").json
    (tmp_path / "cookie").write_bytes(bytes.fromhex(told["cookie"]))
    veen("verify", tmp_path / "cookie", tmp_path / "msg.cbor").ok()
    (tmp_path / "not.cbor").write_bytes(b"\x01")
    town.as_("alice", "pow", "solve", "--msg", tmp_path / "not.cbor").failed(Exit.PROTOCOL)


def test_a_foreign_file_does_not_prevent_verdicts_on_the_others(town: Town, tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"\xff\x00 not ours")
    done = veen("verify", town / "bob" / "identity_card.pub", tmp_path / "noise", "--json")
    assert [each["holds"] for each in json.loads(done.out)["verdicts"]] == [True, False]
    assert "noise" in done.failed(Exit.PROTOCOL)


@pytest.mark.parametrize("noun", ["receipt", "proof", "checkpoint", "consistency"])
def test_a_damaged_file_is_reported_as_damaged_whatever_command_reads_it(
    case: Path, town: Town, tmp_path: Path, noun: str
) -> None:
    (tmp_path / "cut").write_bytes((case / f"{noun}.cbor").read_bytes()[:-3])
    beside = (case / "receipt.cbor", case / "hub-identity.cbor", "--trust", town.hub_id)
    alone = veen(noun, "verify", tmp_path / "cut").failed(Exit.PROTOCOL)
    assert "not a VEEN file" in alone
    assert "not a VEEN file" in veen(noun, "verify", tmp_path / "cut", *beside).failed(Exit.PROTOCOL)


def bent(data: bytes) -> bytes:
    """Flip a bit of the last byte; setting it to zero would leave one signature in sixteen unchanged."""
    return data[:-1] + bytes([data[-1] ^ 1])


def test_no_file_in_a_folder_of_evidence_is_skipped(case: Path, town: Town, tmp_path: Path) -> None:
    flags = ("--trust", town.hub_id)
    assert "nothing in it was verified" in veen("verify", tmp_path, *flags).failed(Exit.PROTOCOL)
    below = tmp_path / "from bob"
    below.mkdir()
    for name in ("receipt.cbor", "hub-identity.cbor"):
        (below / name).write_bytes((case / name).read_bytes())
    told = veen("verify", tmp_path, *flags, "--json").json
    assert [each["kind"] for each in told["verdicts"]] == ["hub-identity", "RECEIPT"]
    (tmp_path / "round").symlink_to(tmp_path)
    assert "round" in veen("verify", tmp_path, *flags).failed(Exit.PROTOCOL)
    (tmp_path / "round").unlink()
    (below / "receipt.cbor").write_bytes(bent((case / "receipt.cbor").read_bytes()))
    assert "from bob/receipt.cbor" in veen("verify", tmp_path, *flags).failed(Exit.PROTOCOL)


def test_an_export_among_evidence_is_verified_too(case: Path, town: Town, tmp_path: Path) -> None:
    (tmp_path / "hub-identity.cbor").write_bytes((case / "hub-identity.cbor").read_bytes())
    veen("hub", "export", "-d", town / "hub", "-s", STREAM, "--out", tmp_path / "export").ok()
    flags = ("--trust", town.hub_id)
    told = veen("verify", tmp_path, *flags, "--json").json
    assert [each["kind"] for each in told["verdicts"]] == ["hub-identity", "export"]
    receipts = tmp_path / "export" / "receipts.cborseq"
    receipts.write_bytes(bent(receipts.read_bytes()))
    veen("verify", tmp_path, *flags).failed(Exit.PROTOCOL)


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_endless_input_zeros_and_text_are_not_veen_files(command: str, tmp_path: Path) -> None:
    assert "more than" in veen(command, "/dev/zero").failed(Exit.PROTOCOL)
    (tmp_path / "zeros").write_bytes(bytes(1_000_000))
    (tmp_path / "text").write_bytes(b"veen-data 1\n")
    for name in ("zeros", "text"):
        assert "not a VEEN file" in veen(command, tmp_path / name).failed(Exit.PROTOCOL)


def test_inspect_names_every_file_of_exports_forks_and_states(town: Town, tmp_path: Path) -> None:
    veen("hub", "export", "-d", town / "hub", "-s", STREAM, "--out", tmp_path / "export").ok()
    fork = ("hub", "fork", "-d", town / "hub", "--admin", town / "admin", "--out", tmp_path / "fork")
    veen(*fork).ok()
    town.as_("bob", "stream", "-s", STREAM, "--quiet")
    files = [
        tmp_path / "export" / "receipts.index.cborseq",
        tmp_path / "fork" / "fork-cuts.cborseq",
        town / "bob" / "state" / town.hub_id / "fixed" / "profile.state",
    ]
    kinds = [veen("inspect", file, "--json").json["objects"][0]["kind"] for file in files]
    assert kinds == ["index row", "fork cut", "profile"]


def test_verifying_a_folder_verifies_its_files(case: Path, town: Town) -> None:
    assert veen("verify", case, "--trust", town.hub_id, "--quiet").code == 0


def test_a_page_carries_the_files_and_what_the_sender_trusts(case: Path, town: Town, tmp_path: Path) -> None:
    page = tmp_path / "evidence.html"
    files = [case / "receipt.cbor", case / "hub-identity.cbor"]
    done = veen("verify", *files, "--trust", town.hub_id, "--page", page).ok()
    assert f"wrote {page}: the verifier page with 2 files" in done.out
    inside = page_evidence(page)
    assert inside["hub"] == town.hub_id
    assert {each["name"]: base64.b64decode(each["data"]) for each in inside["files"]} == {
        file.name: file.read_bytes() for file in files
    }
    assert "exists" in veen("verify", *files, "--trust", town.hub_id, "--page", page).failed(Exit.USAGE)


def test_no_file_name_becomes_markup_in_a_page(case: Path, town: Town, tmp_path: Path) -> None:
    hostile = tmp_path / "<\u202eimg src=x onerror=alert(1)>&lt;script&gt;.cbor"
    hostile.write_bytes((case / "receipt.cbor").read_bytes())
    page = tmp_path / "evidence.html"
    files = [hostile, case / "hub-identity.cbor"]
    veen("verify", *files, "--trust", town.hub_id, "--page", page).ok()
    assert page_evidence(page)["files"][0]["name"] == hostile.name
    without = EVIDENCE.sub(b"", page.read_bytes())
    assert without == EVIDENCE.sub(b"", verifier_page()), "nothing of the page changes but what is base64"


def test_a_page_is_written_of_evidence_that_does_not_verify(case: Path, town: Town, tmp_path: Path) -> None:
    altered = tmp_path / "receipt.cbor"
    content = bytearray((case / "receipt.cbor").read_bytes())
    content[-1] ^= 1
    altered.write_bytes(content)
    page = tmp_path / "evidence.html"
    files = [altered, case / "hub-identity.cbor"]
    veen("verify", *files, "--trust", town.hub_id, "--page", page).failed(Exit.PROTOCOL)
    assert base64.b64decode(page_evidence(page)["files"][0]["data"]) == content


def test_version_shows_the_hash_of_the_page() -> None:
    digest = hashlib.sha256(verifier_page()).hexdigest()
    assert veen("version", "--json").json["verifier_page_sha256"] == digest
    assert f"verify.html    {digest}" in veen("version").ok().out


EVIDENCE = re.compile(rb'(?<=<script type="text/plain" id="veen-evidence">)[A-Za-z0-9+/=]*(?=</script>)')


def page_evidence(page: Path) -> Any:
    (inside,) = EVIDENCE.findall(page.read_bytes())
    return json.loads(base64.b64decode(inside, validate=True))
