"""MSG: a sealed and signed message for a label (§4.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final, Literal

from veen_core import attachment, cbor, ciphertext, keys
from veen_core.attachment import Attachment
from veen_core.ciphertext import Binding, Opened, Sealer, open_ciphertext, open_with
from veen_core.errors import DecodeError, DecodeFault, VerificationError
from veen_core.hashing import H, Ht
from veen_core.hpke import TAG_SIZE
from veen_core.ids import (
    AuthRef,
    ClientId,
    ClientSeq,
    CtHash,
    DhPublicKey,
    Label,
    LeafHash,
    OperationId,
    ProfileId,
    Signature,
    StreamSeq,
)
from veen_core.keys import DhKey, DhSecret, SigningKey, verify
from veen_core.kinds import UINT
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.payload import PayloadHeader
from veen_core.profile import Profile
from veen_core.signatures import SignatureClaim
from veen_core.wire import Wire, array

_SIG_TAG: Final = b"veen/sig\x00"
_NINE: Final = b"\x89"  # CBOR array of nine: MSG without sig
_TEN: Final = b"\x8a"
_BSTR_64: Final = b"\x58\x40"
_SIG_ITEM_SIZE: Final = 2 + Signature.SIZE
_SIG_NAME: Final = ("MSG.sig", "core §4.1")
"""The name of the signature in errors."""


@array("MSG", section="4.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class Msg(Wire):
    """A MSG, fields in wire order; an absent ``auth_ref`` is null."""

    ver: Literal[1] = 1
    profile_id: ProfileId
    label: Label
    client_id: ClientId
    client_seq: ClientSeq
    prev_ack: StreamSeq
    auth_ref: AuthRef | None
    ct_hash: CtHash
    ciphertext: bytes
    sig: Signature

    @property
    def leaf_hash(self) -> LeafHash:
        """The leaf of this message in its log, which is also its MsgID (§2)."""
        return ciphertext.leaf_hash(
            self.label, self.profile_id, self.ct_hash, self.client_id, self.client_seq
        )

    @property
    def binding(self) -> Binding:
        """The fields that this message's ciphertext must be bound to."""
        return Binding(
            profile_id=self.profile_id,
            label=self.label,
            client_id=self.client_id,
            client_seq=self.client_seq,
            prev_ack=self.prev_ack,
            auth_ref=self.auth_ref,
        )

    def open(self, reader: DhKey, limits: Limits = DEFAULT_LIMITS) -> Opened:
        """Decrypt header and body; raise ``OpenError`` if the message is sealed for another reader."""
        return open_ciphertext(reader, self.binding, self.ciphertext, limits)

    def open_with(self, disclosure: bytes, limits: Limits = DEFAULT_LIMITS) -> Opened:
        """Open with the secret that a reader has disclosed (``Opened.disclosure``)."""
        return open_with(disclosure, self.binding, self.ciphertext, limits)


def signing_digest(wire: bytes) -> bytes:
    """Return ``Ht("veen/sig", CBOR(MSG without sig))`` of an encoded MSG (§4.1).

    A canonical MSG is ``8a item… sig``, and without its last item ``89 item…``. Cutting the bytes saves a
    second encoding.
    """
    return sha256(_SIG_TAG + _NINE + wire[1:-_SIG_ITEM_SIZE]).digest()


def operation_id(msg_id: bytes) -> OperationId:
    """Return the id by which application records refer to a message, from its leaf hash (spec-3 §1)."""
    return OperationId(Ht("veen/operation-id", msg_id))


def sign_msg(key: SigningKey, binding: Binding, sealed: bytes) -> Msg:
    """Return the signed MSG of a ciphertext and the fields that it is bound to (§4.1)."""
    return _sign(key, binding, sealed)[0]


def _sign(key: SigningKey, binding: Binding, sealed: bytes) -> tuple[Msg, bytes]:
    """Return the MSG and its encoding, which signing computes anyway."""
    if key.public != binding.client_id:
        raise VerificationError(f"key {key.public.hex()} cannot sign for client_id {binding.client_id.hex()}")
    ct_hash = CtHash(H(sealed))
    ids = (binding.profile_id, binding.label, binding.client_id)
    counters = (UINT.write(binding.client_seq), UINT.write(binding.prev_ack))
    nine = cbor.encode_items((1, *ids, *counters, binding.auth_ref, ct_hash, sealed))
    sig = key.sign(Ht("veen/sig", nine))
    msg = Msg(
        profile_id=binding.profile_id,
        label=binding.label,
        client_id=binding.client_id,
        client_seq=binding.client_seq,
        prev_ack=binding.prev_ack,
        auth_ref=binding.auth_ref,
        ct_hash=ct_hash,
        ciphertext=sealed,
        sig=sig,
    )
    return msg, b"".join((_TEN, nine[1:], _BSTR_64, sig))


@dataclass(frozen=True, slots=True)
class SealedMsg:
    """A message ready to submit, with its attachments, which are uploaded separately."""

    msg: Msg
    wire: bytes
    """The encoded ``msg``."""
    attachments: tuple[Attachment, ...]


def seal_msg(
    key: SigningKey,
    recipient: DhPublicKey,
    binding: Binding,
    header: PayloadHeader,
    body: bytes,
    *,
    profile: Profile,
    ephemeral: DhSecret,
    attachments: Sequence[bytes] = (),
    limits: Limits = DEFAULT_LIMITS,
) -> SealedMsg:
    """Seal and sign a message and its attachments (§4.2); ``header.att_root`` is computed here."""
    if binding.profile_id != profile.profile_id:
        raise VerificationError("profile_id in the binding is not the id of the given profile (core §3.2)")
    if binding.client_seq < 1:
        raise VerificationError("client_seq starts at 1 (B16)")
    if not attachments and header.att_root not in (None, attachment.EMPTY_ATT_ROOT):
        raise VerificationError(
            "payload_hdr.att_root (core §4.6): is set, but the message has no attachments"
        )
    sealer = Sealer(recipient, binding, ephemeral)
    attachment.check_bounds([len(plaintext) + TAG_SIZE for plaintext in attachments], limits)
    sealed = tuple(sealer.attach(plaintext) for plaintext in attachments)
    if sealed:
        header = dataclasses.replace(header, att_root=attachment.att_root([a.coid for a in sealed]))
    msg, wire = _sign(key, binding, sealer.seal(header, body, pad_block=profile.pad_block, limits=limits))
    check_size(len(wire), limits)
    return SealedMsg(msg, wire, sealed)


def check_size(length: int, limits: Limits) -> None:
    """Check ``len(MSG) <= max_msg_bytes``, which bounds the ciphertext too (§14.2)."""
    if length > limits.max_msg_bytes:
        raise DecodeError(
            f"{length} bytes exceed max_msg_bytes = {limits.max_msg_bytes} (core §14.2)",
            fault=DecodeFault.SIZE,
            where="MSG (core §4.1)",
        )


def check_ct_hash(msg: Msg) -> None:
    """Check that ct_hash is the hash of the ciphertext (I1)."""
    if H(msg.ciphertext) != msg.ct_hash:
        raise VerificationError("MSG.ct_hash (core §4.2): is not the hash of the ciphertext")


def verify_signature(msg: Msg, wire: bytes) -> None:
    """Verify ``MSG.sig``; ``wire`` are the bytes that ``msg`` was decoded from (§4.1)."""
    verify(msg.client_id, signing_digest(wire), msg.sig, *_SIG_NAME)


def signature_claim(msg: Msg, wire: bytes) -> SignatureClaim:
    """Return ``MSG.sig`` to be verified together with others; it is valid if ``verify_signature`` passes."""
    return SignatureClaim(
        (msg.client_id,), signing_digest(wire), msg.sig, partial(keys.refused, msg.client_id, *_SIG_NAME)
    )


def verify_msg(wire: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[Msg, LeafHash]:
    """Decode and verify a MSG by itself: size, canonical form, ciphertext bounds, ct_hash, signature."""
    check_size(len(wire), limits)
    msg = Msg.decode(wire)
    ciphertext.check_layout(msg.ciphertext, limits)
    check_ct_hash(msg)
    leaf = msg.leaf_hash
    verify_signature(msg, wire)
    return msg, leaf
