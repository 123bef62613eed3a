"""Signed and sealed objects: any changed bit is refused, and only the right key and binding open them.

``SPECIMENS`` lists one small fixed example of each object with the verification a receiver does;
every bit flip, truncation and extension of each is tried.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from veen_core import attachment, ciphertext, hpke
from veen_core.cap import CapToken, Rate, mint, resign, verify_token
from veen_core.card import IdentityCard, sign_card, sign_prekey, verify_card
from veen_core.checkpoint import Checkpoint, sign_checkpoint, verify_signature, verify_witnesses
from veen_core.ciphertext import Binding, Sealer
from veen_core.client import LabelClient, Trust
from veen_core.client_state import ClientState, RatchetKey
from veen_core.consistency import MmrConsistency, prove_consistency, verify_consistency
from veen_core.entry import FLAG_AUTHORIZE, Entry, authorize_leaf, split_frames, unframe
from veen_core.equivocation import Equivocation, Statement, evidence_of, verify_evidence
from veen_core.errors import DecodeError, OpenError, ProofError, VeenError, VerificationError
from veen_core.hashing import U64_MAX, H
from veen_core.hub_identity import (
    HubIdentity,
    new_identity,
    rotate,
    sign_identity,
    verify_identity,
    verify_identity_signature,
)
from veen_core.ids import (
    AuthRef,
    ClientId,
    ClientSeq,
    Epoch,
    HubPk,
    Label,
    LeafHash,
    MmrRoot,
    ProfileId,
    SchemaId,
    Signature,
    StreamId,
    StreamSeq,
    UnixTime,
)
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.keystore import MIN_COST, Keystore, KeystoreNonce, Salt, Secrets, open_keystore, seal_keystore
from veen_core.limits import DEFAULT_LIMITS
from veen_core.mmr import Mmr
from veen_core.msg import SealedMsg, seal_msg, verify_msg
from veen_core.payload import PayloadHeader
from veen_core.profile import PROFILES, Profile
from veen_core.proof import MmrProof, prove_inclusion, verify_inclusion
from veen_core.receipt import Receipt, sign_receipt, verify_receipt
from veen_core.stream import control_label, routing_key

from .strategies import steady, strategy_for

pytestmark = pytest.mark.no_cover  # tracing would double the time, and the other tests cover the package

NOW = UnixTime(1_700_000_000)
BULK = PROFILES["bulk"]


def seed(name: str) -> bytes:
    return H(b"properties of objects: " + name.encode())


def signer(name: str) -> SigningKey:
    return SigningKey(SigningSeed(seed(name)))


def reader(name: str) -> DhKey:
    return DhKey(DhSecret(seed(name)))


HUB, CLIENT, READER = signer("hub"), signer("client"), reader("reader")
LABEL = control_label(routing_key(new_identity(HUB, NOW).hub_id))
"""The control label, on which both messages and tokens are accepted here (H5)."""
HEADER = PayloadHeader(schema=SchemaId(seed("schema")))


def bound(**changes: Any) -> Binding:
    fields: dict[str, Any] = {
        "profile_id": BULK.profile_id,
        "label": LABEL,
        "client_id": ClientId(CLIENT.public),
        "client_seq": ClientSeq(1),
        "prev_ack": StreamSeq(0),
    }
    return Binding(**fields | changes)


def sealed(
    body: bytes = b"hello", header: PayloadHeader = HEADER, profile: Profile = BULK, **more: Any
) -> SealedMsg:
    binding = more.pop("binding", bound(profile_id=profile.profile_id))
    ephemeral = DhSecret(seed("ephemeral"))
    return seal_msg(
        CLIENT, READER.public, binding, header, body, profile=profile, ephemeral=ephemeral, **more
    )


def receipt(leaf: bytes, *, seq: int = 1, root: bytes | None = None, key: SigningKey = HUB) -> Receipt:
    return sign_receipt(
        key,
        Receipt(
            label=LABEL,
            stream_seq=StreamSeq(seq),
            leaf_hash=LeafHash(leaf),
            mmr_root=MmrRoot(leaf if root is None else root),
            hub_ts=NOW,
        ),
    )


# --- one example of each object, and what a receiver does with its bytes


@dataclass(frozen=True)
class Specimen:
    name: str
    wire: bytes
    verify: Callable[[bytes], object]


def a_msg() -> Specimen:
    return Specimen("msg", sealed().wire, verify_msg)


def a_msg_with_auth_ref() -> Specimen:
    binding = bound(auth_ref=AuthRef(seed("auth_ref")), client_seq=ClientSeq(300), prev_ack=StreamSeq(70_000))
    return Specimen("msg-with-auth-ref", sealed(binding=binding).wire, verify_msg)


def a_receipt() -> Specimen:
    wire = receipt(seed("leaf")).encode()
    return Specimen("receipt", wire, lambda data: verify_receipt(Receipt.decode(data), HubPk(HUB.public)))


def a_checkpoint(*witnesses: str) -> Specimen:
    keys = [signer(name) for name in witnesses]
    unsigned = Checkpoint(
        label_prev=LABEL,
        label_curr=LABEL,
        upto_seq=StreamSeq(9),
        mmr_root=MmrRoot(seed("root")),
        epoch=Epoch(0),
    )

    def verify(data: bytes) -> None:
        checkpoint = Checkpoint.decode(data)
        verify_signature(checkpoint, HubPk(HUB.public))
        verify_witnesses(checkpoint, [key.public for key in keys])

    name = "checkpoint-with-witnesses" if witnesses else "checkpoint"
    return Specimen(name, sign_checkpoint(HUB, unsigned, keys).encode(), verify)


def _log(size: int) -> tuple[dict[tuple[int, int], bytes], list[MmrRoot]]:
    nodes, roots, log = {}, [], Mmr()
    for position in range(size):
        nodes |= {(n.height, n.index): n.hash for n in log.append(seed(f"leaf {position}"))}
        roots.append(log.root)
    return nodes, roots


def an_mmr_proof() -> Specimen:
    nodes, roots = _log(13)
    proof = prove_inclusion(lambda h, i: nodes[h, i], StreamSeq(3), 13)
    leaf = LeafHash(seed("leaf 2"))
    return Specimen(
        "mmr-proof",
        proof.encode(),
        lambda data: verify_inclusion(MmrProof.decode(data), roots[12], StreamSeq(3), leaf, 13),
    )


def an_mmr_consistency() -> Specimen:
    nodes, roots = _log(13)
    proof = prove_consistency(lambda h, i: nodes[h, i], StreamSeq(5), StreamSeq(13))

    def verify(data: bytes) -> None:
        shown = MmrConsistency.decode(data)
        if (shown.from_seq, shown.to_seq) != (5, 13):  # the sizes are those of the two roots (B11)
            raise ProofError("a proof about other sizes")
        verify_consistency(shown, roots[4], roots[12])

    return Specimen("mmr-consistency", proof.encode(), verify)


def _token() -> CapToken:
    issuer = signer("issuer")
    streams = [StreamId(seed("stream")), StreamId(seed("other stream"))]
    return mint(issuer, ClientId(CLIENT.public), streams, 3_600, Rate(per_sec=10, burst=20))


def a_cap_token() -> Specimen:
    token = resign(signer("issuer"), _token())
    return Specimen("cap-token", token.encode(), lambda data: verify_token(CapToken.decode(data)))


def an_identity_card() -> Specimen:
    prekeys = [sign_prekey(CLIENT, reader(name).public, UnixTime(NOW + 60)) for name in ("one", "two")]
    card = sign_card(CLIENT, READER.public, prekeys)
    return Specimen(
        "identity-card",
        card.encode(),
        lambda data: verify_card(IdentityCard.decode(data), pinned=CLIENT.public),
    )


def _identity() -> HubIdentity:
    return rotate(new_identity(HUB, NOW), HUB, HubPk(signer("next").public), UnixTime(NOW + 60), 600)


def a_hub_identity() -> Specimen:
    identity = _identity()
    signature = sign_identity(signer("next"), identity)

    def verify(data: bytes) -> None:
        shown = HubIdentity.decode(data)
        verify_identity(shown, pinned=identity.hub_id)
        verify_identity_signature(shown, signature)

    return Specimen("hub-identity", identity.encode(), verify)


def a_hub_identity_signature() -> Specimen:
    identity = _identity()
    signature = sign_identity(signer("next"), identity)
    return Specimen(
        "hub-identity-sig",
        bytes(signature),
        lambda data: verify_identity_signature(identity, Signature(data)),
    )


def an_equivocation() -> Specimen:
    one, two = (Statement(hub_pk=HubPk(HUB.public), receipt=receipt(seed(leaf))) for leaf in ("this", "that"))
    return Specimen(
        "equivocation",
        evidence_of(one, two).encode(),
        lambda data: verify_evidence(Equivocation.decode(data)),
    )


def a_keystore() -> Specimen:
    secrets = Secrets(
        id_sign=SigningSeed(seed("client")), id_dh=DhSecret(seed("reader")), created_at=NOW, prekeys=()
    )
    keystore = seal_keystore(
        secrets,
        b"passphrase",
        salt=Salt(seed("salt")[:16]),
        nonce=KeystoreNonce(seed("nonce")[:24]),
        cost=MIN_COST,
    )
    return Specimen(
        "keystore", keystore.encode(), lambda data: open_keystore(Keystore.decode(data), b"passphrase")
    )


def _page_of_one(data: bytes) -> None:
    """Verify an entry as a client does: frame, both signatures, rules, root."""
    state = ClientState(
        label=LABEL,
        profile_id=BULK.profile_id,
        client_id=ClientId(CLIENT.public),
        created_at=NOW,
        rk=RatchetKey(seed("rk")),
    )
    client = LabelClient(state, Trust(identity=new_identity(HUB, NOW), profile=BULK))
    client.accept_page([unframe(data)])
    assert client.state.last_stream_seq == 1


def an_entry() -> Specimen:
    msg = sealed()
    promise = receipt(msg.msg.leaf_hash).encode()
    return Specimen("entry", Entry(LABEL, StreamSeq(1), msg.wire, promise).encode(), _page_of_one)


def an_authorize_entry() -> Specimen:
    token = _token()
    wire = token.encode()
    promise = receipt(authorize_leaf(token.auth_ref, wire)).encode()
    entry = Entry(LABEL, StreamSeq(1), wire, promise, FLAG_AUTHORIZE)
    return Specimen("authorize-entry", entry.encode(), _page_of_one)


SPECIMENS = [
    a_msg(),
    a_msg_with_auth_ref(),
    a_receipt(),
    a_checkpoint(),
    a_checkpoint("one witness", "another witness"),
    an_mmr_proof(),
    an_mmr_consistency(),
    a_cap_token(),
    an_identity_card(),
    a_hub_identity(),
    a_hub_identity_signature(),
    an_equivocation(),
    a_keystore(),
    an_entry(),
    an_authorize_entry(),
]
every_object = pytest.mark.parametrize("specimen", SPECIMENS, ids=[s.name for s in SPECIMENS])


def _assert_refused(specimen: Specimen, wrong: bytes, what: str) -> None:
    try:
        specimen.verify(wrong)
    except VeenError:
        return
    pytest.fail(f"{specimen.name} with {what} was accepted: {wrong.hex()}")


@every_object
def test_an_unchanged_object_is_accepted(specimen: Specimen) -> None:
    specimen.verify(specimen.wire)


@every_object
def test_any_flipped_bit_is_refused(specimen: Specimen) -> None:
    for bit in range(8 * len(specimen.wire)):
        flipped = bytearray(specimen.wire)
        flipped[bit // 8] ^= 1 << bit % 8
        _assert_refused(specimen, bytes(flipped), f"bit {bit} flipped")


@every_object
def test_any_truncation_is_refused(specimen: Specimen) -> None:
    for length in range(len(specimen.wire)):
        _assert_refused(specimen, specimen.wire[:length], f"only {length} bytes")
        _assert_refused(specimen, specimen.wire[length + 1 :], f"the first {length + 1} bytes missing")


@every_object
def test_any_added_byte_is_refused(specimen: Specimen) -> None:
    for byte in range(256):
        _assert_refused(specimen, specimen.wire + bytes([byte]), f"{byte:#x} appended")
        _assert_refused(specimen, bytes([byte]) + specimen.wire, f"{byte:#x} in front")
    for at in range(1, len(specimen.wire)):
        _assert_refused(specimen, specimen.wire[:at] + b"\0" + specimen.wire[at:], f"a zero at {at}")


@every_object
def test_any_missing_byte_is_refused(specimen: Specimen) -> None:
    for at in range(len(specimen.wire)):
        _assert_refused(specimen, specimen.wire[:at] + specimen.wire[at + 1 :], f"byte {at} missing")


@pytest.mark.parametrize("order", ["signed-first", "swapped"])
def test_witness_signatures_count_once_and_in_any_order(order: str) -> None:
    keys = [signer("one witness"), signer("another witness")]
    checkpoint = Checkpoint.decode(a_checkpoint("one witness", "another witness").wire)
    sigs = checkpoint.witness_sigs or ()
    shown = dataclasses.replace(checkpoint, witness_sigs=sigs if order == "signed-first" else sigs[::-1])
    verify_witnesses(shown, [key.public for key in keys])
    doubled = dataclasses.replace(checkpoint, witness_sigs=(sigs[0], sigs[0]))
    with pytest.raises(VeenError):
        verify_witnesses(doubled, [], known=[key.public for key in keys])


def test_a_control_entry_carries_the_token_its_receipt_is_for() -> None:
    promised = unframe(an_authorize_entry().wire)
    other = mint(signer("issuer"), ClientId(CLIENT.public), [StreamId(seed("stream"))], 999)
    swapped = dataclasses.replace(promised, msg_bytes=other.encode())
    with pytest.raises(VerificationError):
        _page_of_one(swapped.encode())


def test_a_chunk_damaged_anywhere_is_refused_as_a_whole() -> None:
    """Entries before the damage are yielded; the damaged one and those after it are not (§4.8.2)."""
    wire = an_entry().wire
    chunk = wire * 3
    assert len(list(split_frames(chunk))) == 3
    for at in (*range(len(wire), 2 * len(wire), 7), len(wire) + 2):
        damaged = bytearray(chunk)
        damaged[at] ^= 0x80
        intact: list[Entry] = []
        with pytest.raises(DecodeError):
            intact.extend(split_frames(bytes(damaged)))
        assert len(intact) == 1


# --- sealing and opening

bindings = st.builds(
    bound,
    label=st.binary(min_size=32, max_size=32).map(Label),
    client_seq=st.integers(1, U64_MAX),
    prev_ack=st.integers(0, U64_MAX),
    auth_ref=st.none() | st.binary(min_size=32, max_size=32).map(AuthRef),
)
headers = strategy_for(PayloadHeader).map(
    lambda header: dataclasses.replace(header, cap_ref=None, att_root=None)
)
bodies = st.one_of(st.binary(max_size=600), st.integers(0, 5_000).map(bytes))
pad_blocks = st.one_of(st.sampled_from([0, 1, 16, 256, 4096]), st.integers(0, 2_000))
secrets = st.binary(min_size=32, max_size=32).map(DhSecret)


@steady(100)
@given(binding=bindings, header=headers, body=bodies, pad_block=pad_blocks, ours=secrets, once=secrets)
def test_an_opened_message_has_the_sealed_header_and_body(
    *, binding: Binding, header: PayloadHeader, body: bytes, pad_block: int, ours: DhSecret, once: DhSecret
) -> None:
    profile = Profile(epoch_sec=0, pad_block=pad_block)
    binding = dataclasses.replace(binding, profile_id=profile.profile_id)
    to = DhKey(ours)
    sent = seal_msg(CLIENT, to.public, binding, header, body, profile=profile, ephemeral=once)
    msg, leaf = verify_msg(sent.wire)
    opened = msg.open(to)
    assert (opened.header, opened.body) == (header, body)
    assert (msg, leaf, msg.binding) == (sent.msg, sent.msg.leaf_hash, binding)
    assert msg.ct_hash == H(msg.ciphertext)
    if pad_block:
        assert len(msg.ciphertext) % pad_block == 0
    parts = ciphertext.split(msg.ciphertext)
    needed = ciphertext.PREFIX_SIZE + len(parts.header) + len(parts.body)
    assert needed <= len(msg.ciphertext) < needed + max(pad_block, 1)
    again = seal_msg(CLIENT, to.public, binding, header, body, profile=profile, ephemeral=once)
    assert again == sent


@steady(100)
@given(st.data(), bindings, bindings, st.sampled_from([0, 256]))
def test_a_ciphertext_opens_under_no_other_binding(
    data: st.DataObject, binding: Binding, other: Binding, pad_block: int
) -> None:
    other = dataclasses.replace(
        other, profile_id=ProfileId(seed("profile")), client_id=ClientId(signer("other").public)
    )
    wire = Sealer(READER.public, binding, DhSecret(seed("once"))).seal(HEADER, b"body", pad_block=pad_block)
    assert ciphertext.open_ciphertext(READER, binding, wire).body == b"body"
    changed = data.draw(
        st.sets(st.sampled_from([f.name for f in dataclasses.fields(Binding)]), min_size=1, max_size=3)
    )
    elsewhere = dataclasses.replace(binding, **{name: getattr(other, name) for name in sorted(changed)})
    assume(elsewhere != binding)
    assume((elsewhere.auth_ref or bytes(32)) != (binding.auth_ref or bytes(32)) or changed != {"auth_ref"})
    with pytest.raises(OpenError):
        ciphertext.open_ciphertext(READER, elsewhere, wire)


@steady(60)
@given(secrets, secrets, bodies)
def test_a_message_opens_for_no_other_reader(ours: DhSecret, theirs: DhSecret, body: bytes) -> None:
    meant, curious = DhKey(ours), DhKey(theirs)
    assume(meant.public != curious.public)
    wire = Sealer(meant.public, bound(), DhSecret(seed("once"))).seal(HEADER, body, pad_block=256)
    with pytest.raises(OpenError):
        ciphertext.open_ciphertext(curious, bound(), wire)


@pytest.mark.parametrize("pad_block", [0, 64], ids=["unpadded", "padded"])
def test_a_ciphertext_with_any_bit_flipped_does_not_open(pad_block: int) -> None:
    """Prefix, lengths, header, body and padding alike."""
    wire = Sealer(READER.public, bound(), DhSecret(seed("once"))).seal(HEADER, b"body", pad_block=pad_block)
    for bit in range(8 * len(wire)):
        flipped = bytearray(wire)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((OpenError, DecodeError)):
            ciphertext.open_ciphertext(READER, bound(), bytes(flipped))


def test_a_ciphertext_cut_anywhere_does_not_open() -> None:
    wire = Sealer(READER.public, bound(), DhSecret(seed("once"))).seal(HEADER, b"body", pad_block=0)
    for length in range(len(wire)):
        with pytest.raises(DecodeError):
            ciphertext.open_ciphertext(READER, bound(), wire[:length])
    assert ciphertext.open_ciphertext(READER, bound(), wire + bytes(100)).body == b"body"


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17])
def test_a_body_that_its_sender_did_not_seal_does_not_open(length: int) -> None:
    """The header is genuine, but the body is shorter than an authentication tag."""
    context = hpke.SealContext(READER.public, DhSecret(seed("once")))
    sealed_header = context.seal(HEADER.encode(), bound().aad)
    lengths = len(sealed_header).to_bytes(4, "big") + length.to_bytes(4, "big")
    wire = context.enc + lengths + sealed_header + bytes(length)
    with pytest.raises(OpenError):
        ciphertext.open_ciphertext(READER, bound(), wire)


@steady(40)
@given(st.binary(max_size=80))
def test_a_decrypted_header_that_does_not_decode_is_refused(content: bytes) -> None:
    context = hpke.SealContext(READER.public, DhSecret(seed("once")))
    sealed_header = context.seal(content, bound().aad)
    lengths = len(sealed_header).to_bytes(4, "big") + bytes(4)
    with pytest.raises((OpenError, DecodeError)):
        ciphertext.open_ciphertext(READER, bound(), context.enc + lengths + sealed_header)


@steady(40)
@given(st.binary(min_size=32, max_size=32).map(AuthRef), st.none() | st.binary(min_size=32, max_size=32))
def test_cap_ref_must_equal_the_auth_ref_of_its_message(cap_ref: AuthRef, auth_ref: bytes | None) -> None:
    header = dataclasses.replace(HEADER, cap_ref=cap_ref)
    binding = bound(auth_ref=cap_ref)
    wire = Sealer(READER.public, binding, DhSecret(seed("once"))).seal(header, b"", pad_block=0)
    assert ciphertext.open_ciphertext(READER, binding, wire).header == header
    assume(auth_ref != cap_ref)
    other = bound(auth_ref=None if auth_ref is None else AuthRef(auth_ref))
    with pytest.raises(OpenError):
        Sealer(READER.public, other, DhSecret(seed("once"))).seal(header, b"", pad_block=0)


# --- attachments


@steady(30)
@given(st.lists(st.binary(max_size=100), min_size=1, max_size=5), bindings)
def test_attachments_open_at_their_own_index_of_their_own_message_only(
    contents: list[bytes], binding: Binding
) -> None:
    sent = sealed(binding=binding, attachments=contents)
    other = sealed(binding=dataclasses.replace(binding, client_seq=ClientSeq(binding.client_seq % 9 + 10)))
    opened, elsewhere = sent.msg.open(READER), other.msg.open(READER)
    assert opened.header.att_root == attachment.att_root([a.coid for a in sent.attachments])
    for at, (one, content) in enumerate(zip(sent.attachments, contents, strict=True)):
        assert one.coid == H(one.ciphertext)
        assert opened.attachment(at, one.ciphertext) == content
        for wrong in (*range(at), *range(at + 1, len(contents) + 1)):
            with pytest.raises(OpenError):
                opened.attachment(wrong, one.ciphertext)
        with pytest.raises(OpenError):
            elsewhere.attachment(at, one.ciphertext)


def test_an_attachment_with_any_bit_flipped_or_byte_missing_does_not_open() -> None:
    sent = sealed(attachments=[b"attachment"])
    wire, opened = sent.attachments[0].ciphertext, sent.msg.open(READER)
    for bit in range(8 * len(wire)):
        flipped = bytearray(wire)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(OpenError):
            opened.attachment(0, bytes(flipped))
    for length in range(len(wire)):
        with pytest.raises(OpenError):
            opened.attachment(0, wire[:length])


@steady(60)
@given(
    st.lists(st.binary(min_size=32, max_size=32).map(attachment.Coid), max_size=12, unique=True), st.data()
)
def test_att_root_commits_to_every_coid_and_their_order(
    coids: list[attachment.Coid], data: st.DataObject
) -> None:
    root = attachment.att_root(coids)
    shuffled = data.draw(st.permutations(coids))
    assert (attachment.att_root(shuffled) == root) == (shuffled == coids)
    assert attachment.att_root([*coids, attachment.Coid(bytes(32))]) != root
    if coids:
        assert attachment.att_root(coids[:-1]) != root


# --- bounds


@steady(40)
@given(st.integers(17, 400))
def test_body_is_bounded_exactly_at_the_limit(most: int) -> None:
    """body_len counts the authentication tag (§14.2)."""
    limits = DEFAULT_LIMITS.lowered({"max_body_bytes": most})
    fits = sealed(bytes(most - hpke.TAG_SIZE), limits=limits)
    assert len(fits.msg.open(READER, limits).body) == most - hpke.TAG_SIZE
    verify_msg(fits.wire, limits)
    with pytest.raises(DecodeError):
        sealed(bytes(most - hpke.TAG_SIZE + 1), limits=limits)
    tighter = limits.lowered({"max_body_bytes": most - 1})
    with pytest.raises(DecodeError):
        fits.msg.open(READER, tighter)
    with pytest.raises(DecodeError):
        verify_msg(fits.wire, tighter)


def test_header_is_bounded_exactly_at_the_limit() -> None:
    exact = len(HEADER.encode()) + hpke.TAG_SIZE
    limits = DEFAULT_LIMITS.lowered({"max_hdr_bytes": exact})
    tighter = DEFAULT_LIMITS.lowered({"max_hdr_bytes": exact - 1})
    fits = sealed(limits=limits)
    verify_msg(fits.wire, limits)
    assert fits.msg.open(READER, limits).header == HEADER
    for refuse in (
        lambda: sealed(limits=tighter),
        lambda: verify_msg(fits.wire, tighter),
        lambda: fits.msg.open(READER, tighter),
    ):
        with pytest.raises(DecodeError):
            refuse()


@pytest.mark.parametrize("pad_block", [0, 256], ids=["unpadded", "padded"])
def test_msg_is_bounded_exactly_at_the_limit(pad_block: int) -> None:
    profile = Profile(epoch_sec=0, pad_block=pad_block)
    exact = len(sealed(profile=profile).wire)
    limits = DEFAULT_LIMITS.lowered({"max_msg_bytes": exact})
    tighter = DEFAULT_LIMITS.lowered({"max_msg_bytes": exact - 1})
    verify_msg(sealed(profile=profile, limits=limits).wire, limits)
    with pytest.raises(DecodeError):
        sealed(profile=profile, limits=tighter)
    with pytest.raises(DecodeError):
        verify_msg(sealed(profile=profile).wire, tighter)


@pytest.mark.parametrize("limit", ["max_attachments_per_msg", "max_attachment_bytes"])
def test_attachments_are_bounded_exactly_at_the_limit(limit: str) -> None:
    contents = [bytes(100)] * 3
    exact = {"max_attachments_per_msg": 3, "max_attachment_bytes": 100 + hpke.TAG_SIZE}[limit]
    sealed(attachments=contents, limits=DEFAULT_LIMITS.lowered({limit: exact}))
    with pytest.raises(OpenError):
        sealed(attachments=contents, limits=DEFAULT_LIMITS.lowered({limit: exact - 1}))


def test_a_message_of_exactly_the_largest_size_is_sent_and_opened() -> None:
    """1 MiB; the largest body of §14 would need a larger MSG and is refused with it."""
    most = DEFAULT_LIMITS.max_msg_bytes
    overhead = len(sealed(bytes(most // 2)).wire) - most // 2
    msg, _ = verify_msg(sealed(bytes(most - overhead)).wire)
    assert len(msg.encode()) == most
    assert len(msg.open(READER).body) == most - overhead
    with pytest.raises(DecodeError):
        sealed(bytes(most - overhead + 1))
