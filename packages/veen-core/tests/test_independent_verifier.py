"""The independent verifier accepts what veen_core makes and refuses the failing vectors."""

from __future__ import annotations

import ast
import base64
import dataclasses
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest

from veen_core import (
    PROFILES,
    Binding,
    CapToken,
    Checkpoint,
    ClientId,
    DhKey,
    DhSecret,
    Entry,
    Mmr,
    Msg,
    PayloadHeader,
    Receipt,
    SigningKey,
    SigningSeed,
    StreamSeq,
    mint,
    prove_consistency,
    prove_inclusion,
    seal_msg,
    stream_id,
)
from veen_core.cap import Rate, resign
from veen_core.checkpoint import sign_checkpoint
from veen_core.entry import FLAG_AUTHORIZE, authorize_leaf
from veen_core.errors import VeenError
from veen_core.hashing import H
from veen_core.hub_evidence import parse_evidence
from veen_core.hub_evidence import verify_evidence as verify_hub_evidence
from veen_core.ids import ClientSeq, Epoch, Label, LeafHash, MmrRoot, SchemaId, UnixTime
from veen_core.receipt import sign_receipt
from veen_core.tlog.note import COSIGNATURE, NoteKey
from veen_core.tlog.policy import parse_policy

from .simulator import WITNESSES, Hub, HubLog, signing_key

HERE = Path(__file__).parent
MAY_IMPORT = {
    "independent_verifier": {"hashlib", "cbor2", "nacl.exceptions", "nacl.signing"},
    "independent_hub_verifier": {"base64", "hashlib", "cbor2", "independent_verifier"},
}

SIZE = 20
HUB, WITNESS, CLIENT, ISSUER = (SigningKey(SigningSeed(bytes([n]) * 32)) for n in range(1, 5))
READER = DhKey(DhSecret(bytes([5]) * 32))
LABEL = Label(H(b"label"))


def load(name: str) -> Any:
    """Load a verifier by its path, under a name by which another can import it."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


other = load("independent_verifier")
other_hub = load("independent_hub_verifier")


class Log:
    """Twenty messages, every third padded, every fifth under a token; their receipts; every node."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.token = mint(ISSUER, ClientId(CLIENT.public), [stream_id("a"), stream_id("b")], 60)
        self.msgs: list[Msg] = []
        self.receipts: list[Receipt] = []
        tree = Mmr()
        for seq in range(1, SIZE + 1):
            msg = self._seal(seq)
            self.nodes.update({(n.height, n.index): n.hash for n in tree.append(msg.leaf_hash)})
            self.msgs.append(msg)
            self.receipts.append(receipt(seq, msg.leaf_hash, tree.root))

    def _seal(self, seq: int) -> Msg:
        profile = PROFILES["default" if seq % 3 == 0 else "bulk"]
        bound = Binding(
            profile_id=profile.profile_id,
            label=LABEL,
            client_id=ClientId(CLIENT.public),
            client_seq=ClientSeq(seq),
            prev_ack=StreamSeq(seq - 1),
            auth_ref=self.token.auth_ref if seq % 5 == 0 else None,
        )
        sealed = seal_msg(
            CLIENT,
            READER.public,
            bound,
            PayloadHeader(schema=SchemaId(H(b"schema"))),
            b"body %d" % seq,
            profile=profile,
            ephemeral=DhSecret(H(b"ephemeral %d" % seq)),
            attachments=[b"attached"] if seq % 4 == 0 else [],
        )
        return sealed.msg

    def lookup(self, height: int, index: int) -> bytes:
        return self.nodes[height, index]

    def proof(self, seq: int, size: int) -> bytes:
        return prove_inclusion(self.lookup, StreamSeq(seq), size).encode()

    def consistency(self, start: int, end: int) -> bytes:
        return prove_consistency(self.lookup, StreamSeq(start), StreamSeq(end)).encode()

    def leaf(self, seq: int) -> LeafHash:
        return self.receipts[seq - 1].leaf_hash

    def root(self, size: int) -> MmrRoot:
        return self.receipts[size - 1].mmr_root

    def entry(self, seq: int) -> Entry:
        return Entry(LABEL, StreamSeq(seq), self.msgs[seq - 1].encode(), self.receipts[seq - 1].encode())

    def checkpoint(self, size: int, witnesses: tuple[SigningKey, ...] = ()) -> Checkpoint:
        unsigned = Checkpoint(
            label_prev=LABEL,
            label_curr=LABEL,
            upto_seq=StreamSeq(size),
            mmr_root=self.root(size),
            epoch=Epoch(0),
        )
        return sign_checkpoint(HUB, unsigned, witnesses)


def receipt(seq: int, leaf: LeafHash, root: MmrRoot) -> Receipt:
    unsigned = Receipt(
        label=LABEL, stream_seq=StreamSeq(seq), leaf_hash=leaf, mmr_root=root, hub_ts=UnixTime(1_000 + seq)
    )
    return sign_receipt(HUB, unsigned)


@pytest.fixture(scope="module")
def log() -> Log:
    return Log()


def flipped(data: bytes, at: int) -> bytes:
    bent = bytearray(data)
    bent[at] ^= 1 << at % 8
    return bytes(bent)


# --- the page itself


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_the_verifier_fits_a_page_of_under_150_lines(name: str) -> None:
    assert len((HERE / f"{name}.py").read_text().splitlines()) < 150


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_the_verifier_imports_nothing_of_the_project(name: str) -> None:
    text, imported = (HERE / f"{name}.py").read_text(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module or "")
    assert imported == MAY_IMPORT[name]
    assert "__import__" not in text


# --- it accepts what veen_core produces


def test_it_accepts_every_message_and_finds_the_same_leaf(log: Log) -> None:
    assert [other.verify_msg(msg.encode()) for msg in log.msgs] == [(LABEL, m.leaf_hash) for m in log.msgs]


def test_it_accepts_every_receipt_and_entry(log: Log) -> None:
    for seq in range(1, SIZE + 1):
        said = [LABEL, seq, log.leaf(seq), log.root(seq)]
        assert other.verify_receipt(log.receipts[seq - 1].encode(), HUB.public) == said
        assert other.verify_entry(log.entry(seq).encode(), HUB.public) == said


@pytest.mark.parametrize("size", range(1, SIZE + 1), ids="of_{}_leaves".format)
def test_it_accepts_every_leaf_in_a_tree_of_this_size(log: Log, size: int) -> None:
    for seq in range(1, size + 1):
        other.verify_inclusion(log.proof(seq, size), log.root(size), seq, log.leaf(seq), size)


@pytest.mark.parametrize("end", range(2, SIZE + 1), ids="of_{}_leaves".format)
def test_it_accepts_every_smaller_tree_as_a_prefix_of_this_one(log: Log, end: int) -> None:
    for start in range(1, end):
        other.verify_consistency(log.consistency(start, end), log.root(start), log.root(end))


def test_it_accepts_checkpoints_with_and_without_a_witness(log: Log) -> None:
    said = [LABEL, 13, log.root(13)]
    assert other.verify_checkpoint(log.checkpoint(13).encode(), HUB.public, []) == said
    witnessed = log.checkpoint(13, (WITNESS,)).encode()
    assert other.verify_checkpoint(witnessed, HUB.public, [WITNESS.public]) == said


def test_it_accepts_tokens_with_chains_and_rates(log: Log) -> None:
    limited = mint(ISSUER, ClientId(CLIENT.public), [stream_id("a")], 60, Rate(per_sec=1, burst=2))
    for token in (log.token, limited, resign(ISSUER, limited), resign(ISSUER, resign(ISSUER, log.token))):
        assert other.verify_cap_token(token.encode()) == token.auth_ref


def authorized(token: CapToken, leaf: LeafHash) -> bytes:
    issued = receipt(1, leaf, MmrRoot(leaf))
    return Entry(LABEL, StreamSeq(1), token.encode(), issued.encode(), FLAG_AUTHORIZE).encode()


def test_it_accepts_an_authorisation_and_only_with_the_leaf_of_its_token(log: Log) -> None:
    leaf = authorize_leaf(log.token.auth_ref, log.token.encode())
    assert other.verify_entry(authorized(log.token, leaf), HUB.public)[2] == leaf
    with pytest.raises(other.Refused, match="another's"):
        other.verify_entry(authorized(log.token, log.leaf(1)), HUB.public)


# --- it refuses what was tampered with


TARGETS: dict[str, tuple[Callable[[Log], bytes], Callable[[Log, bytes], object]]] = {
    "msg": (lambda log: log.msgs[4].encode(), lambda _log, wire: other.verify_msg(wire)),
    "receipt": (
        lambda log: log.receipts[4].encode(),
        lambda _log, wire: other.verify_receipt(wire, HUB.public),
    ),
    "checkpoint": (
        lambda log: log.checkpoint(11, (WITNESS,)).encode(),
        lambda _log, wire: other.verify_checkpoint(wire, HUB.public, [WITNESS.public]),
    ),
    "inclusion": (
        lambda log: log.proof(5, 11),
        lambda log, wire: other.verify_inclusion(wire, log.root(11), 5, log.leaf(5), 11),
    ),
    "consistency": (
        lambda log: log.consistency(6, 13),
        lambda log, wire: other.verify_consistency(wire, log.root(6), log.root(13)),
    ),
    "cap_token": (lambda log: log.token.encode(), lambda _log, wire: other.verify_cap_token(wire)),
    "entry": (lambda log: log.entry(5).encode(), lambda _log, wire: other.verify_entry(wire, HUB.public)),
}


@pytest.mark.parametrize("target", TARGETS)
def test_it_refuses_a_flipped_bit_at_any_byte(log: Log, target: str) -> None:
    make, verify = TARGETS[target]
    wire = make(log)
    verify(log, wire)
    for at in range(len(wire)):
        with pytest.raises(other.Refused):
            verify(log, flipped(wire, at))


@pytest.mark.parametrize("target", TARGETS)
def test_it_refuses_an_added_byte_and_a_missing_byte(log: Log, target: str) -> None:
    make, verify = TARGETS[target]
    for wire in (make(log) + b"\x00", make(log)[:-1], b""):
        with pytest.raises(other.Refused):
            verify(log, wire)


def test_it_refuses_a_proof_at_every_other_position_and_size(log: Log) -> None:
    proof, root, leaf = log.proof(5, 11), log.root(11), log.leaf(5)
    for seq in range(SIZE + 1):
        for size in range(SIZE + 1):
            # 5 of 11 has the same path and peaks as 5 of any tree with this peak in this place:
            # the size is what the caller took from the receipt, so only the root can tell then.
            if (seq, size) != (5, 11) and (seq != 5 or log.proof(5, max(5, size)) != proof):
                with pytest.raises(other.Refused):
                    other.verify_inclusion(proof, log.root(size) if size else root, seq, leaf, size)


def test_it_refuses_keys_that_did_not_sign(log: Log) -> None:
    with pytest.raises(other.Refused, match="does not verify"):
        other.verify_receipt(log.receipts[0].encode(), WITNESS.public)
    with pytest.raises(other.Refused, match="witness_sigs"):
        other.verify_checkpoint(log.checkpoint(3).encode(), HUB.public, [WITNESS.public])
    moved = dataclasses.replace(log.token, issuer_pk=CLIENT.public)
    with pytest.raises(other.Refused, match="sig_chain"):
        other.verify_cap_token(moved.encode())


def test_it_refuses_a_receipt_that_answers_another_message(log: Log) -> None:
    swapped = dataclasses.replace(log.entry(5), msg_bytes=log.msgs[5].encode())
    with pytest.raises(other.Refused, match="another's"):
        other.verify_entry(swapped.encode(), HUB.public)


# --- it agrees with veen_core on hub evidence


@pytest.fixture
def hub_log(hub: Hub) -> HubLog:
    """The log of a hub with five messages, in which the third entry is the head of its label."""
    made = HubLog(hub)
    made.add_others(2)
    hub.write("writer", *(b"message %d" % number for number in range(5)))
    made.add_own()
    made.add_others(4)
    return made


def test_it_accepts_hub_evidence_and_what_it_says_is_the_same(hub_log: HubLog) -> None:
    pinned = hub_log.hub.identity.hub_id
    keys = [(name, signing_key(name).public) for name in WITNESSES]
    for size in range(3, 8):
        checkpoint = hub_log.checkpoint(*WITNESSES[:2], size=size)
        for stream_seq in range(1, 6):
            made = hub_log.evidence(stream_seq, 2, checkpoint)
            said = other_hub.verify_hub_evidence(made.encode(), pinned, keys, 2, [])
            assert said == cbor2.loads(made.receipt.encode())[1:5]
            with pytest.raises(other.Refused, match="too few witnesses"):
                other_hub.verify_hub_evidence(made.encode(), pinned, keys, 3, [])


def test_it_accepts_hub_evidence_of_a_hub_that_has_changed_its_key(hub_log: HubLog) -> None:
    hub = hub_log.hub
    hub.now = UnixTime(hub.now + 100)
    hub.rotate_key()
    hub.write("writer")
    made = hub_log.evidence(6, hub_log.add_own(), hub_log.checkpoint(keys=tuple(hub.keys)))
    verify_hub_evidence(made, pinned=hub.identity.hub_id)
    assert other_hub.verify_hub_evidence(made.encode(), hub.identity.hub_id, [], 0, [])[1] == 6


def test_both_verifiers_agree_on_flipped_bits_of_hub_evidence(hub_log: HubLog) -> None:
    pinned = hub_log.hub.identity.hub_id
    wire = hub_log.evidence(4, 2, hub_log.checkpoint(WITNESSES[0])).encode()
    key = NoteKey(WITNESSES[0], COSIGNATURE, signing_key(WITNESSES[0]).public)
    policy = parse_policy(f"witness w {key.text}\nquorum w\n".encode())
    for at in range(0, len(wire), 3):
        changed = flipped(wire, at)
        try:
            verify_hub_evidence(parse_evidence(changed), pinned=pinned, policy=policy)
        except VeenError:
            with pytest.raises(other.Refused):
                other_hub.verify_hub_evidence(changed, pinned, [(key.name, key.public)], 1, [])
        else:
            other_hub.verify_hub_evidence(changed, pinned, [(key.name, key.public)], 1, [])


# --- it agrees with veen_core on every vector of these objects


def unhex(context: dict[str, Any], name: str) -> bytes:
    return bytes.fromhex(context[name])


def witnesses(context: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(key) for key in context["witnesses"]]


def rules_of(context: dict[str, Any]) -> tuple[list[tuple[str, bytes]], int, list[str]]:
    """Return the witnesses, the size of the quorum and the names of logs of a simple policy."""
    lines = [line.split(" ") for line in context.get("policy", "").splitlines()]
    keys = [line[2].split("+", 2) for line in lines if line[0] == "witness"]
    witnesses = [(name, base64.b64decode(key)[1:]) for name, _, key in keys]
    quorum = {"all": len(witnesses), "any": 1}
    return (
        witnesses,
        next((quorum[line[2]] for line in lines if line[0] == "group"), 0),
        [line[1].partition("+")[0] for line in lines if line[0] == "log"],
    )


ON_VECTORS: dict[str, Callable[[bytes, dict[str, Any]], object]] = {
    "msg": lambda wire, _given: other.verify_msg(wire),
    "receipt": lambda wire, given: other.verify_receipt(wire, unhex(given, "hub_pk")),
    "checkpoint": lambda wire, given: other.verify_checkpoint(wire, unhex(given, "hub_pk"), witnesses(given)),
    "mmr_proof": lambda wire, given: other.verify_inclusion(
        wire, unhex(given, "root"), given["stream_seq"], unhex(given, "leaf_hash"), given["tree_size"]
    ),
    "mmr_consistency": lambda wire, given: other.verify_consistency(
        wire, unhex(given, "from_root"), unhex(given, "to_root")
    ),
    "cap_token": lambda wire, _given: other.verify_cap_token(wire),
    "entry": lambda wire, given: other.verify_entry(wire, unhex(given, "hub_pk")),
    "hub_evidence": lambda wire, given: other_hub.verify_hub_evidence(
        wire, unhex(given, "pinned"), *rules_of(given)
    ),
}
BEYOND_IT = {
    "msg": {"over_max_msg_bytes"},  # a deployment's lower limit
    "checkpoint": {  # §4.4.1 against a rebuilt log and a known stream; and an order of witnesses
        "upto_seq_zero",
        "upto_seq_back",
        "upto_seq_not_aligned",
        "mmr_root_other",
        "epoch_not_of_hub_ts",
        "epoch_without_epochs",
        "label_of_another_stream",
        "label_prev_two_epochs_back",
        "label_curr_outside_the_skew",
        "witnesses_in_another_order",
    },
    "cap_token": {"rate_over_limit", "burst_over_limit"},  # a deployment's limits
    "entry": {  # invariants against the log before
        "stream_seq_skipped",
        "client_seq_repeated",
        "client_seq_skipped",
        "profile_unknown",
        "prev_ack_ahead",
    },
}
CASES = sorted(
    f"{name}/{folder.name}"
    for name in ON_VECTORS
    for folder in (HERE / "vectors" / name).iterdir()
    if folder.name.removesuffix("_fail") not in BEYOND_IT.get(name, ())
)


BENT_FROM = {
    "receipt": "first",
    "checkpoint": "eight_items",
    "mmr_proof": "5_in_11",
    "mmr_consistency": "6_to_13",
    "entry": "sixth",
}
"""A failing case without a context was derived from this good case and uses its context."""


def context_of(name: str, folder: Path) -> dict[str, Any]:
    for source in (folder, folder.parent / BENT_FROM.get(name, "")):
        if (source / "context.json").exists():
            return json.loads((source / "context.json").read_bytes())
    return {}


@pytest.mark.parametrize("case", CASES)
def test_it_agrees_with_the_vector(case: str) -> None:
    name, _, _ = case.partition("/")
    folder = HERE / "vectors" / case
    given, wire = context_of(name, folder), bytes.fromhex((folder / "wire.hex").read_text())
    if case.endswith("_fail"):
        with pytest.raises(other.Refused):
            ON_VECTORS[name](wire, given)
    else:
        ON_VECTORS[name](wire, given)


def test_every_case_excluded_from_the_comparison_exists() -> None:
    for name, cases in BEYOND_IT.items():
        there = {folder.name.removesuffix("_fail") for folder in (HERE / "vectors" / name).iterdir()}
        assert cases <= there
