"""Fuzzing: for any bytes, a decoder quickly returns a value or raises a ``VeenError``.

Inputs come from fixed seeds, so that a run in CI is a few seconds long and the same every time. To
fuzz for longer, say for how long; further seeds are then tried until the time is over::

    VEEN_FUZZ_SECONDS=600 pytest packages/veen-core/tests/test_fuzz.py

The time is shared between the tests that take part. ``VEEN_FUZZ_SEED`` (default 0) starts from
other seeds. A failure names the decoder, the seed and the input in hex.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen_core import (
    api,
    cap,
    card,
    cbor,
    checkpoint,
    ciphertext,
    hub_evidence,
    hub_fork,
    hub_identity,
    ids,
    msg,
    receipt,
)
from veen_core.checkpoint import LabelOrigin
from veen_core.client import LabelClient, Trust
from veen_core.client_state import ClientBounds, ClientState
from veen_core.consistency import MmrConsistency, verify_consistency
from veen_core.entry import (
    FRAME_SIZE,
    Entry,
    decode_frame,
    split_frames,
    unframe,
)
from veen_core.equivocation import verify_evidence
from veen_core.errors import KeystoreError, VeenError
from veen_core.hashing import H
from veen_core.ids import FixedBytes, HubPk, LeafHash, MmrRoot, Signature, StreamSeq, UnixTime
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.keystore import (
    MAX_COST,
    MIN_COST,
    Keystore,
    KeystoreNonce,
    Salt,
    Secrets,
    open_keystore,
    seal_keystore,
)
from veen_core.log_rules import LogTerms, verify_alone
from veen_core.log_verifier import LogVerifier
from veen_core.mmr import Mmr, subtrees
from veen_core.msg import Msg, seal_msg
from veen_core.payload import PayloadHeader
from veen_core.pow import verify_cookie
from veen_core.profile import PROFILES
from veen_core.proof import verify_inclusion
from veen_core.receipt import Receipt, sign_receipt
from veen_core.strict_json import parse_json
from veen_core.tlog import add_checkpoint, note, policy, tiles, tree_head
from veen_core.wire import Wire

from .strategies import JSON_CLASSES, WIRE_CLASSES, head, steady, strategy_for

pytestmark = pytest.mark.no_cover  # tracing would double the time, and the other tests cover the package

SECONDS = float(os.environ.get("VEEN_FUZZ_SECONDS", "0"))
FIRST_SEED = int(os.environ.get("VEEN_FUZZ_SEED", "0"))
SHARES = 2 * len(WIRE_CLASSES) + 8
"""Roughly how many tests share ``VEEN_FUZZ_SECONDS``."""

KEY = SigningKey(SigningSeed(bytes(range(32))))
READER = DhKey(DhSecret(bytes(range(32, 64))))
BULK = PROFILES["bulk"]


def rounds(count: int) -> Iterator[random.Random]:
    """``count`` generators with seeds of their own, or as many as fit into the time that was given."""
    until = time.monotonic() + SECONDS / SHARES
    seed = FIRST_SEED
    while seed < FIRST_SEED + count or time.monotonic() < until:
        rng = random.Random(seed)
        rng.name = f"seed {seed}"  # type: ignore[attr-defined]
        yield rng
        seed += 1


def survives(name: str, decode: Callable[[bytes], object], data: bytes, rng: random.Random) -> Any:
    """The value, or None if it was refused as it should be."""
    try:
        return decode(data)
    except VeenError:
        return None
    except Exception as exc:  # noqa: BLE001 - any of them is the bug that is looked for
        pytest.fail(f"{name}, {rng.name}: {exc!r} on {data[:4096].hex()}")  # type: ignore[attr-defined]


# --- sources of garbage


def random_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 2, 9, 40, 100, 300)))


def random_cbor(rng: random.Random, depth: int = 0) -> bytes:
    """CBOR that is well-formed more often than not, with everything in it that we refuse."""
    pick = rng.randrange(12 if depth < rng.choice((3, 6, 40)) else 7)
    if pick < 2:
        return _random_head(rng, rng.randrange(2), rng.choice((0, 1, 23, 24, 255, 2**32, 2**63, 2**64 - 1)))
    if pick < 4:
        raw = rng.choice((bytes, rng.randbytes))(rng.choice((0, 1, 16, 24, 32, 64)))
        return _random_head(rng, rng.choice((2, 2, 3)), len(raw)) + raw
    if pick == 4:
        return bytes([rng.choice((0xF4, 0xF5, 0xF6, 0xF7, 0xE0, 0xF8, 0xFF, 0x1C, 0xFC))])
    if pick == 5:
        number = rng.choice((0.0, -0.0, 1.0, 1.5, math.nan, math.inf, -math.inf, 5e-324, 1e300))
        return b"\xfb" + struct.pack(">d", number)
    if pick == 6:
        number = rng.choice((0.0, 1.0, math.nan, math.inf))
        return rng.choice((b"\xf9" + struct.pack(">e", number), b"\xfa" + struct.pack(">f", number)))
    if pick < 9:
        parts = [random_cbor(rng, depth + 1) for _ in range(rng.randrange(5))]
        return _random_container(rng, 4, len(parts), b"".join(parts))
    if pick < 11:
        pairs = [_random_key(rng, at) + random_cbor(rng, depth + 1) for at in range(1, rng.randrange(1, 7))]
        return _random_container(rng, 5, len(pairs), b"".join(pairs))
    tag = rng.choice(
        (0, 1, 2, 3, 4, 5, 24, 25, 28, 29, 30, 35, 36, 37, 100, 256, 258, 260, 1004, 43000, 55799)
    )
    return head(6, tag) + random_cbor(rng, depth + 1)


def _random_head(rng: random.Random, major: int, argument: int) -> bytes:
    """Mostly the shortest, sometimes too long."""
    shortest = head(major, argument)
    width = rng.choice((1, 2, 4, 8))
    return head(major, argument, width) if rng.random() < 0.05 and width >= len(shortest) else shortest


def _random_key(rng: random.Random, at: int) -> bytes:
    return head(0, at) if rng.random() < 0.8 else random_cbor(rng, 50)


def _random_container(rng: random.Random, major: int, length: int, content: bytes) -> bytes:
    """Mostly as long as it says; sometimes indefinite, sometimes lying."""
    chance = rng.random()
    if chance < 0.05:
        return bytes([major << 5 | 31]) + content + b"\xff"
    if chance < 0.1:
        return head(major, rng.choice((length + 1, 2**16, 2**32 - 1, 2**63, 2**64 - 1))) + content
    return _random_head(rng, major, length) + content


INTERESTING = (
    b"",
    b"\x00",
    b"\xff",
    b"\xf6",
    b"\x80",
    b"\xa0",
    b"\x40",
    b"\x01",
    b"\x1b" + b"\xff" * 8,
    b"\x5b" + b"\xff" * 8,
    b"\x9b" + b"\x7f" * 8,
    b"\xbb" + b"\x7f" * 8,
    b"\x3b" + b"\xff" * 8,
    b"\xc2\x49" + b"\xff" * 9,
    b"\xf9\x7e\x00",
    b"\x58\x20" + bytes(32),
    b"\x81" * 40,
    b"\xff" * 4,
)


def mutated(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Flips, splices, truncations and duplications of something valid."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((0, 1, 1, 2, 8, 33, 66)))
        match rng.randrange(7):
            case 0 if data:
                at = rng.randrange(len(data))
                data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            case 1:
                data = data[:at] + rng.choice(INTERESTING) + data[end:]
            case 2:
                data = data[:at] + data[end:]
            case 3:
                data = data[:end] + data[at:end] * rng.choice((1, 2, 50)) + data[end:]
            case 4:
                other = rng.choice(others)
                cut = rng.randrange(len(other) + 1)
                data = data[:at] + other[cut : cut + rng.choice((1, 34, 10_000))] + data[end:]
            case 5:
                data = data[:at]
            case _:
                data = data[:at] + rng.randbytes(rng.choice((1, 4, 32))) + data[end:]
    return data


@functools.cache
def corpus() -> dict[str, list[bytes]]:
    """Canonical bytes of a dozen values of each class, from the same declarations as the decoders."""
    found = {cls.__name__: _some_of(cls) for cls in WIRE_CLASSES}
    found["Msg"].append(genuine_msg().encode())
    found["Keystore"].append(genuine_keystore().encode())
    return found


def _some_of(cls: type[Wire]) -> list[bytes]:
    values: list[bytes] = []

    @steady(12)
    @given(strategy_for(cls))
    def collect(value: Wire) -> None:
        values.append(value.encode())

    collect()
    return values


@functools.cache
def everything() -> list[bytes]:
    return [wire for wires in corpus().values() for wire in wires]


@functools.cache
def genuine_msg() -> Msg:
    binding = ciphertext.Binding(
        profile_id=BULK.profile_id,
        label=ids.Label(H(b"label")),
        client_id=ids.ClientId(KEY.public),
        client_seq=ids.ClientSeq(1),
        prev_ack=StreamSeq(0),
    )
    header = PayloadHeader(schema=ids.SchemaId(H(b"schema")))
    ephemeral = DhSecret(H(b"ephemeral"))
    return seal_msg(KEY, READER.public, binding, header, b"body", profile=BULK, ephemeral=ephemeral).msg


@functools.cache
def genuine_keystore() -> Keystore:
    secrets = Secrets(id_sign=KEY.seed, id_dh=READER.secret, created_at=UnixTime(0))
    salt, nonce = Salt(bytes(16)), KeystoreNonce(bytes(24))
    return seal_keystore(secrets, b"passphrase", salt=salt, nonce=nonce, cost=MIN_COST)


@functools.cache
def genuine_entry() -> bytes:
    sent = genuine_msg()
    unsigned = Receipt(
        label=sent.label,
        stream_seq=StreamSeq(1),
        leaf_hash=sent.leaf_hash,
        mmr_root=MmrRoot(sent.leaf_hash),
        hub_ts=UnixTime(1),
    )
    return Entry(sent.label, StreamSeq(1), sent.encode(), sign_receipt(KEY, unsigned).encode()).encode()


# --- what garbage is fed to


def _frame_then_verify(data: bytes) -> object:
    entry = unframe(data)
    verify_alone(entry)
    return LogVerifier(_terms(entry)).accept(entry)


def _terms(entry: Entry) -> LogTerms:
    return LogTerms(label=entry.label, identity=IDENTITY, profile=BULK, origin=ORIGIN)


def _answer(promise: Receipt) -> object:
    """Verify the genuine message with any RECEIPT."""
    entry = Entry(promise.label, promise.stream_seq, genuine_msg().encode(), promise.encode())
    return LogVerifier(_terms(entry)).accept(entry)


def _open_as_ciphertext(data: bytes) -> object:
    return dataclasses.replace(genuine_msg(), ciphertext=data).open(READER)


RAW_DECODERS: dict[str, Callable[[bytes], object]] = {
    "cbor.decode": cbor.decode,
    "cbor.decode_items": cbor.decode_items,
    "cbor.split_sequence": lambda data: list(cbor.split_sequence(data)),
    "decode_frame": decode_frame,
    "unframe": _frame_then_verify,
    "split_frames": lambda data: list(split_frames(data)),
    "ciphertext.split": ciphertext.split,
    "Msg.open": _open_as_ciphertext,
    "unwrap_submit": api.unwrap_submit,
    "unwrap_submit-then-verify_msg": lambda data: msg.verify_msg(api.unwrap_submit(data)),
    "verify_msg": msg.verify_msg,
    "parse_json": parse_json,
    "FixedBytes": FixedBytes,
    "Signature": Signature,
    "FixedBytes.from_hex": lambda data: FixedBytes.from_hex(data.decode("latin-1")),
    "FixedBytes.from_hex-of-hex": lambda data: FixedBytes.from_hex(data.hex()),
    "parse_evidence": hub_evidence.parse_evidence,
    "parse_policy": policy.parse_policy,
}


# --- the text formats of C2SP


HEAD = tree_head.TreeHead("log.example/one", 5, bytes(32))
NOTE = note.Note(
    HEAD.text,
    (
        note.sign_note(KEY, HEAD.origin, HEAD.text),
        note.cosign(KEY, "witness.example/w", HEAD.text, UnixTime(1)),
    ),
)
EARLIER_HEAD = tree_head.TreeHead("log.example/one", 3, bytes(32))
EARLIER = note.Note(
    EARLIER_HEAD.text, (note.sign_note(KEY, EARLIER_HEAD.origin, EARLIER_HEAD.text),)
).encode()
SIGNED_HEAD = tree_head.SignedHead(HEAD, NOTE)
VKEY = note.NoteKey("witness.example/w", note.COSIGNATURE, KEY.public)
TEXTS: dict[str, tuple[Callable[[bytes], bytes], bytes]] = {
    "parse_note": (lambda data: note.parse_note(data).encode(), NOTE.encode()),
    "parse_signed_head": (lambda data: tree_head.parse_signed_head(data).encode(), NOTE.encode()),
    "parse_add_checkpoint": (
        lambda data: add_checkpoint.parse_add_checkpoint(data).encode(),
        add_checkpoint.AddCheckpoint(3, (bytes(32), bytes(32)), SIGNED_HEAD).encode(),
    ),
    "parse_signatures": (
        lambda data: "".join(line.line for line in note.parse_signatures(data)).encode(),
        "".join(line.line for line in NOTE.signatures).encode(),
    ),
    "parse_key": (lambda data: note.parse_key(_text(data)).text.encode("latin-1"), VKEY.text.encode()),
    "parse_path": (lambda data: tiles.parse_path(_text(data)).path.encode(), b"3/x001/x234/067.p/8"),
    "decode_bundle": (
        lambda data: tiles.encode_bundle(tiles.decode_bundle(data)),
        tiles.encode_bundle([b"", b"entry", bytes(300)]),
    ),
}
"""For each parser: parsing and encoding again, and a genuine input."""
SPICE = [
    b"\n",
    b"\n\n",
    b" ",
    b"+",
    b"=",
    b"\x00",
    b"\xe2\x80\x94 ",
    b"old ",
    b"0",
    b"\xff",
    b"9" * 30,
    b"\xc2\xa0",
]


def _text(data: bytes) -> str:
    return data.decode("latin-1")


@pytest.mark.parametrize("name", TEXTS)
def test_a_damaged_text_is_refused_or_parses_to_exactly_its_bytes(name: str) -> None:
    decode, genuine = TEXTS[name]
    assert decode(genuine) == genuine
    for rng in rounds(400):
        data = mutated(rng, genuine, SPICE) if rng.random() < 0.9 else random_bytes(rng)
        value = survives(name, decode, data, rng)
        assert value is None or value == data


every_class = pytest.mark.parametrize("cls", WIRE_CLASSES, ids=[cls.__name__ for cls in WIRE_CLASSES])
every_raw_decoder = pytest.mark.parametrize("name", RAW_DECODERS)


@every_class
def test_damaged_objects_are_refused_or_decode_to_exactly_their_bytes(cls: type[Wire]) -> None:
    own = corpus()[cls.__name__]
    for rng in rounds(400):
        data = mutated(rng, rng.choice(own), everything())
        value = survives(cls.__name__, cls.decode, data, rng)
        if value is not None:
            assert value.encode() == data
            if cls in JSON_CLASSES:
                assert cls.from_json(value.to_json()) == value


@pytest.mark.parametrize("cls", JSON_CLASSES, ids=[cls.__name__ for cls in JSON_CLASSES])
def test_damaged_json_is_refused_or_decodes_to_a_value_that_encodes(cls: type[Wire]) -> None:
    own = [cls.decode(wire).to_json().encode() for wire in corpus()[cls.__name__]]
    spice = [
        b'"\\ud800"',
        b"null",
        b"-0",
        b"1e9",
        b"NaN",
        b"[" * 3000,
        b"{}",
        b"9" * 5000,
        b'"',
        b"\xff",
        b",",
    ]
    for rng in rounds(120):
        data = mutated(rng, rng.choice(own), spice)
        value = survives(f"{cls.__name__}.from_json", cls.from_json, data, rng)
        if value is not None:
            assert cls.decode(value.encode()) == value


def test_random_cbor_and_random_bytes_are_refused_by_every_object() -> None:
    for rng in rounds(700):
        data = random_cbor(rng) if rng.random() < 0.9 else random_bytes(rng)
        for cls in rng.sample(WIRE_CLASSES, 12):
            value = survives(cls.__name__, cls.decode, data, rng)
            assert value is None or value.encode() == data


@every_raw_decoder
def test_no_raw_decoder_fails_on_random_input(name: str) -> None:
    for rng in rounds(300):
        source = rng.choice((random_cbor, random_bytes))
        survives(name, RAW_DECODERS[name], source(rng), rng)


@every_raw_decoder
def test_no_raw_decoder_fails_on_damaged_objects(name: str) -> None:
    valid = [
        genuine_entry(),
        genuine_entry() * 2,
        genuine_msg().ciphertext,
        genuine_msg().encode(),
        api.wrap_submit(genuine_msg().encode()),
        b"".join(everything()[::40]),
        f"log {note.NoteKey('l', note.ED25519, KEY.public).text}\nwitness w {VKEY.text}\nquorum w\n".encode(),
    ]
    for rng in rounds(300):
        survives(name, RAW_DECODERS[name], mutated(rng, rng.choice(valid), everything()), rng)


def test_a_frame_that_announces_more_than_there_is_fails_at_once() -> None:
    frame = bytearray(genuine_entry())
    frame[42:50] = b"\xff" * 8
    for decode in (unframe, lambda data: list(split_frames(data))):
        with pytest.raises(VeenError):
            decode(bytes(frame))
        with pytest.raises(VeenError):
            decode(bytes(frame[:FRAME_SIZE]))


def test_damaged_keystores_do_not_open() -> None:
    own = corpus()["Keystore"]
    for rng in rounds(500):
        keystore = survives("Keystore", Keystore.decode, mutated(rng, rng.choice(own), own), rng)
        if keystore is None or keystore == genuine_keystore():
            continue
        cheap = dataclasses.replace(keystore, passes=MIN_COST.passes, memory=MIN_COST.memory)
        if cheap != genuine_keystore():
            opened = survives("open_keystore", lambda _, k=cheap: open_keystore(k, b"passphrase"), b"", rng)
            assert opened is None


@pytest.mark.parametrize(
    ("passes", "memory"),
    [
        (0, MIN_COST.memory),
        (MIN_COST.passes, 0),
        (MIN_COST.passes, MIN_COST.memory - 1),
        (MAX_COST.passes + 1, MIN_COST.memory),
        (MIN_COST.passes, MAX_COST.memory + 1),
        (2**64 - 1, 2**64 - 1),
    ],
    ids=["no-passes", "no-memory", "little-memory", "many-passes", "much-memory", "everything"],
)
def test_a_keystore_with_an_excessive_cost_is_refused_before_any_work(passes: int, memory: int) -> None:
    with pytest.raises(KeystoreError, match="out of bounds"):
        open_keystore(dataclasses.replace(genuine_keystore(), passes=passes, memory=memory), b"passphrase")


def test_a_keystore_with_less_than_a_tag_does_not_open() -> None:
    for length in range(40):
        with pytest.raises(KeystoreError):
            open_keystore(dataclasses.replace(genuine_keystore(), sealed=bytes(length)), b"passphrase")


# --- well-formed garbage into everything that verifies


ORIGIN = LabelOrigin(
    routing_key=ids.RoutingKey(bytes(32)), stream_id=ids.StreamId(bytes(32)), epoch_sec=60, max_skew_sec=60
)
IDENTITY = hub_identity.new_identity(KEY, UnixTime(0))
HUB_PK = HubPk(KEY.public)
ROOT = MmrRoot(bytes(32))
SIG = Signature(bytes(64))


def _client(state: ClientState) -> None:
    trust = Trust(identity=IDENTITY, profile=BULK, origin=ORIGIN)
    client = LabelClient(dataclasses.replace(state, profile_id=BULK.profile_id), trust)
    ClientBounds().exhausted(state, UnixTime(0))
    if state.head is not None:
        client.accept_receipt(state.head)


VERIFIERS: dict[str, list[Callable[[Any], object]]] = {
    "Msg": [
        lambda m: msg.verify_msg(m.encode()),
        lambda m: m.open(READER),
        lambda m: msg.verify_signature(m, m.encode()),
        lambda m: m.binding.draft_id,
    ],
    "Receipt": [
        lambda r: receipt.verify_receipt(r, HUB_PK),
        lambda r: hub_identity.verify_receipt(IDENTITY, r),
        _answer,
    ],
    "Checkpoint": [
        lambda c: checkpoint.verify_signature(c, HUB_PK),
        lambda c: checkpoint.verify_witnesses(c, [KEY.public]),
        lambda c: checkpoint.check_transition(c, Mmr(), origin=ORIGIN),
        lambda c: checkpoint.check_transition(c, Mmr(), origin=ORIGIN, hub_ts=UnixTime(c.upto_seq)),
        lambda c: hub_identity.verify_checkpoint(IDENTITY, c, 60),
        lambda c: hub_identity.verify_checkpoint(IDENTITY, c, 0),
    ],
    "MmrProof": [
        lambda p: verify_inclusion(p, ROOT, StreamSeq(0), p.leaf_hash),
        lambda p: verify_inclusion(p, ROOT, StreamSeq(5), p.leaf_hash, 7),
        lambda p: verify_inclusion(p, ROOT, StreamSeq(2**64 - 1), p.leaf_hash),
        lambda p: verify_inclusion(p, ROOT, StreamSeq(1), LeafHash(bytes(32)), 2**64),
    ],
    "MmrConsistency": [lambda p: verify_consistency(p, ROOT, ROOT)],
    "CapToken": [
        cap.verify_token,
        lambda t: cap.verify_ttl(t, UnixTime(0), UnixTime(2**64)),
        lambda t: cap.resign(KEY, t),
    ],
    "IdentityCard": [card.verify_card, lambda c: c.recipient_at(UnixTime(0))],
    "HubIdentity": [
        hub_identity.verify_identity,
        lambda i: hub_identity.verify_identity_signature(i, SIG),
        lambda i: hub_identity.verify_successor(i, i, SIG),
        lambda i: hub_identity.verify_successor(IDENTITY, i, SIG),
        lambda i: Trust(identity=i, profile=BULK),
        lambda i: i.signing_key_at(UnixTime(0)),
        lambda i: hub_identity.rotate(i, KEY, HUB_PK, UnixTime(0), 0),
        lambda i: hub_identity.verify_receipt(i, Receipt.decode(corpus()["Receipt"][0])),
    ],
    "Equivocation": [verify_evidence, lambda e: verify_evidence(e, IDENTITY)],
    "HubEvidence": [
        hub_evidence.verify_evidence,
        lambda e: hub_evidence.verify_evidence(dataclasses.replace(e, checkpoint=SIGNED_HEAD.encode())),
        lambda e: hub_evidence.parse_evidence(e.encode()),
    ],
    "HubLogFork": [
        hub_fork.verify_hub_log_fork,
        lambda f: hub_fork.verify_hub_log_fork(
            dataclasses.replace(
                f, identity=IDENTITY, origin=HEAD.origin, earlier=EARLIER, later=NOTE.encode()
            )
        ),
    ],
    "LabelFork": [
        hub_fork.verify_label_fork,
        lambda f: hub_fork.verify_label_fork(dataclasses.replace(f, identity=IDENTITY)),
    ],
    "PowCookie": [
        lambda c: verify_cookie(c, c.challenge, 0),
        lambda c: verify_cookie(c, b"", 2**64),
    ],
    "ClientState": [_client, lambda s: LabelClient(s, Trust(identity=IDENTITY, profile=BULK)).unanswered],
}


@pytest.mark.parametrize("name", VERIFIERS)
def test_well_formed_garbage_never_breaks_a_verifier(name: str) -> None:
    cls = next(cls for cls in WIRE_CLASSES if cls.__name__ == name)
    here = random.Random(0)
    here.name = "hypothesis"  # type: ignore[attr-defined]

    @steady(60)
    @given(strategy_for(cls))
    def check(value: Any) -> None:
        for at, verify in enumerate(VERIFIERS[name]):
            survives(f"{name}, verifier {at}", lambda _, v=verify: v(value), value.encode(), here)

    check()


@steady(150)
@given(st.data(), st.integers(1, 2**64 - 1), st.integers(1, 2**64 - 1))
def test_a_well_formed_but_false_proof_is_refused(data: st.DataObject, one: int, two: int) -> None:
    """Return as many hashes as the sizes require, so that the later checks are reached."""
    from_seq, to_seq = sorted((one, two))
    hashes = st.binary(min_size=32, max_size=32).map(ids.NodeHash)
    count = len(subtrees(from_seq, to_seq))
    proof = MmrConsistency(
        from_seq=StreamSeq(from_seq),
        to_seq=StreamSeq(to_seq),
        peaks_from=tuple(
            data.draw(st.lists(hashes, min_size=from_seq.bit_count(), max_size=from_seq.bit_count()))
        ),
        path=tuple(data.draw(st.lists(hashes, min_size=count, max_size=count))),
    )
    tree = Mmr(from_seq, proof.peaks_from)
    with pytest.raises(VeenError):
        verify_consistency(proof, tree.root, ROOT)


# --- hostile lengths

MANY = 250_000
HOSTILE = {
    "array-of-2^63": head(4, 2**63),
    "map-of-2^63": head(5, 2**63),
    "bytes-of-2^63": head(2, 2**63),
    "text-of-2^63": head(3, 2**63),
    "array-of-2^64": head(4, 2**64 - 1),
    "bytes-of-2^32": head(2, 2**32) + b"x",
    "array-of-2^31": head(4, 2**31) + b"\x00" * 9,
    "map-of-2^31": head(5, 2**31) + b"\x00\x00",
    "array-of-arrays-of-2^40": head(4, 2**40) * 30,
    "deep-arrays": b"\x81" * MANY,
    "deep-maps": b"\xa1\x00" * MANY,
    "deep-map-keys": b"\xa1" * MANY,
    "deep-tags": b"\xc1" * MANY,
    "bignum": b"\xc2" + head(2, 10**6) + b"\xff" * 10**6,
    "exponent": bytes.fromhex("c4821a7fffffff01"),
    "regular-expression": b"\xd8\x23" + head(3, 20) + b"(a+)+" * 4,
    "shared-reference-to-itself": bytes.fromhex("d81c81d81d00"),
    "indefinite-chunks": b"\x5f" + b"\x41x" * 300_000,
    "many-items": head(4, MANY) + b"\x00" * MANY,
    "many-items-and-one-too-few": head(4, MANY) + b"\x00" * (MANY - 1),
    "many-keys": head(5, 2**16) + b"".join(head(0, n) + b"\x00" for n in range(2**16)),
    "array-keys": head(5, 40_000) + b"".join(b"\x82" + head(0, n) + b"\x00\x00" for n in range(40_000)),
    "colliding-keys": head(5, 40_000) + b"".join(head(0, n << 44) + b"\x00" for n in range(40_000)),
}

_WITHIN_LIMITS = """
import resource, sys
from veen_core import api, cbor
from veen_core.entry import split_frames
from veen_core.errors import VeenError
from veen_core.msg import Msg, verify_msg
from veen_core.wire import parse_json

data = sys.stdin.buffer.read()
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27, used + 2**27))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
decoders = [
    cbor.decode, Msg.decode, verify_msg, parse_json, api.unwrap_submit, api.StreamResponse.decode,
    lambda data: sum(1 for _ in cbor.split_sequence(data)), lambda data: list(split_frames(data)),
]
sizes = [int(size) for size in sys.argv[1:]]
for size in sizes:
    item, data = data[:size], data[size:]
    for decode in decoders:
        try:
            decode(item)
        except VeenError:
            pass
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")
def test_hostile_lengths_cost_neither_memory_nor_time() -> None:
    """A process with 128 MiB to spare and 20 s of CPU decodes them all; the kernel counts."""
    sizes = [str(len(item)) for item in HOSTILE.values()]
    done = subprocess.run(
        [sys.executable, "-c", _WITHIN_LIMITS, *sizes],
        input=b"".join(HOSTILE.values()),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize(
    "name", [name for name in HOSTILE if not name.startswith(("many-items", "many-keys", "coll"))]
)
def test_hostile_bytes_are_not_an_item(name: str) -> None:
    with pytest.raises(VeenError):
        cbor.decode(HOSTILE[name])
