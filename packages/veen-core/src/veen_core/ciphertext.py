"""The ciphertext of a MSG: the fields it is bound to, and how to seal, split and open it (§4.2).

    ciphertext = enc || hdr_len || body_len || hpke_ct_hdr || aead_ct_body || zeros

Lengths are checked against the limits before any decryption (§14.2, SH0.4). The bytes after the body are
padding: any number of zeros, and no other byte. ``ct_hash``, and with it the sender's signature, covers the
padding too.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from nacl import bindings
from nacl.exceptions import CryptoError

from veen_core import attachment, hpke
from veen_core.attachment import Attachment
from veen_core.errors import DecodeError, DecodeFault, OpenError, StateError
from veen_core.hashing import ZERO_32, Ht, trunc_24, u64be
from veen_core.ids import (
    AuthRef,
    ClientId,
    ClientSeq,
    CtHash,
    DhPublicKey,
    Label,
    LeafHash,
    ProfileId,
    StreamSeq,
)
from veen_core.keys import DhKey, DhSecret
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.payload import PayloadHeader, check_cap_ref

BODY_KEY: Final = b"veen/body-k"
_LENGTHS: Final = struct.Struct(">II")
PREFIX_SIZE: Final = hpke.ENC_SIZE + _LENGTHS.size


def leaf_hash(
    label: Label, profile_id: ProfileId, ct_hash: CtHash, client_id: ClientId, client_seq: ClientSeq
) -> LeafHash:
    """Return the leaf hash of a message, which is also its MsgID (§2, §4.2 step 13)."""
    return LeafHash(Ht("veen/leaf", b"".join((label, profile_id, ct_hash, client_id, u64be(client_seq)))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The MSG fields that a ciphertext is bound to: with other values, it does not open."""

    profile_id: ProfileId
    label: Label
    client_id: ClientId
    client_seq: ClientSeq
    prev_ack: StreamSeq
    auth_ref: AuthRef | None = None

    @property
    def aad(self) -> bytes:
        """The additional authenticated data of header and body (§4.2 step 3)."""
        counters = u64be(self.client_seq) + u64be(self.prev_ack)
        return Ht(
            "veen/aad", self.profile_id + self.label + self.client_id + counters + (self.auth_ref or ZERO_32)
        )

    @property
    def nonce(self) -> bytes:
        """The nonce of the body (§4.2 step 6)."""
        return trunc_24(
            Ht("veen/nonce", self.label + u64be(self.prev_ack) + self.client_id + u64be(self.client_seq))
        )

    @property
    def draft_id(self) -> LeafHash:
        """The leaf hash with a zero ct_hash, from which attachment nonces are derived (B5)."""
        return leaf_hash(self.label, self.profile_id, CtHash(ZERO_32), self.client_id, self.client_seq)


class Sealer:
    """Seals one message: attachments first, because the header commits to them, then header and body.

    A Sealer seals once. A second body under the same key and nonce would reveal both bodies.
    """

    __slots__ = ("_attached", "_binding", "_context", "_used")

    def __init__(self, recipient: DhPublicKey, binding: Binding, ephemeral: DhSecret) -> None:
        self._context = hpke.SealContext(recipient, ephemeral)
        self._binding = binding
        self._attached = 0
        self._used = False

    def attach(self, plaintext: bytes) -> Attachment:
        """Seal the next attachment; ``att_root`` must include its coid (§4.6)."""
        self._check_unused()
        index = self._attached
        self._attached += 1
        key = self._context.export(attachment.key_context(index))
        return attachment.seal(key, self._binding.draft_id, index, plaintext)

    def seal(
        self, header: PayloadHeader, body: bytes, *, pad_block: int, limits: Limits = DEFAULT_LIMITS
    ) -> bytes:
        """Seal header and body and return the padded ciphertext (§4.2 steps 3 to 11)."""
        self._check_unused()
        check_cap_ref(header, self._binding.auth_ref)
        if pad_block > limits.max_msg_bytes:
            raise _fail(f"pad_block = {pad_block} exceeds max_msg_bytes = {limits.max_msg_bytes}")
        self._used = True
        aad = self._binding.aad
        sealed_header = self._context.seal(header.encode(), aad)
        sealed_body = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
            body, aad, self._binding.nonce, self._context.export(BODY_KEY)
        )
        _check_lengths(len(sealed_header), len(sealed_body), limits)
        lengths = _LENGTHS.pack(len(sealed_header), len(sealed_body))
        return pad(self._context.enc + lengths + sealed_header + sealed_body, pad_block)

    def _check_unused(self) -> None:
        if self._used:
            raise StateError(
                "a Sealer seals one message (core §4.2): make a new one with a fresh ephemeral key"
            )


def pad(data: bytes, pad_block: int) -> bytes:
    """Right-pad with zeros to a multiple of ``pad_block`` (§4.2 step 11)."""
    return data + bytes(-len(data) % pad_block) if pad_block > 0 else data


@dataclass(frozen=True, slots=True)
class CiphertextParts:
    """The parts of a ciphertext, neither decrypted nor authenticated."""

    enc: bytes
    header: bytes
    body: bytes


def split(ciphertext: bytes, limits: Limits = DEFAULT_LIMITS) -> CiphertextParts:
    """Split a ciphertext into its parts; raise ``DecodeError`` if a length is out of bounds (§4.2, §14.2)."""
    body_at, end = check_layout(ciphertext, limits)
    return CiphertextParts(
        ciphertext[: hpke.ENC_SIZE], ciphertext[PREFIX_SIZE:body_at], ciphertext[body_at:end]
    )


def check_layout(ciphertext: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[int, int]:
    """Return where the body starts and ends; raise if a length or the padding is wrong (§14.2).

    This is all that a hub checks about a ciphertext.
    """
    if len(ciphertext) < PREFIX_SIZE:
        raise _fail(f"{len(ciphertext)} bytes are too few: enc, hdr_len and body_len take {PREFIX_SIZE}")
    hdr_len, body_len = _LENGTHS.unpack_from(ciphertext, hpke.ENC_SIZE)
    _check_lengths(hdr_len, body_len, limits)
    body_at = PREFIX_SIZE + hdr_len
    end = body_at + body_len
    if len(ciphertext) < end:
        raise _fail(f"{len(ciphertext)} bytes are fewer than the {end} that hdr_len and body_len announce")
    if ciphertext.count(0, end) != len(ciphertext) - end:
        raise _fail("the padding contains a byte that is not zero")
    return body_at, end


def _check_lengths(hdr_len: int, body_len: int, limits: Limits) -> None:
    if hdr_len > limits.max_hdr_bytes:
        raise _fail(f"hdr_len {hdr_len} exceeds max_hdr_bytes = {limits.max_hdr_bytes} (core §14.2)")
    if body_len > limits.max_body_bytes:
        raise _fail(f"body_len {body_len} exceeds max_body_bytes = {limits.max_body_bytes} (core §14.2)")


def _fail(found: str) -> DecodeError:
    return DecodeError(found, fault=DecodeFault.SIZE, where="MSG.ciphertext (core §4.2)")


class Opened:
    """An opened message: header and body are authenticated, attachments are opened on demand."""

    __slots__ = ("_binding", "_context", "body", "header")

    def __init__(
        self, header: PayloadHeader, body: bytes, context: hpke.OpenContext, binding: Binding
    ) -> None:
        self.header = header
        self.body = body
        self._context = context
        self._binding = binding

    @property
    def disclosure(self) -> bytes:
        """The secret that opens this message and no other: what to give to a third party (``open_with``)."""
        return self._context.shared

    def attachment(self, index: int, ciphertext: bytes) -> bytes:
        """Decrypt attachment ``index`` (§4.6)."""
        key = self._context.export(attachment.key_context(index))
        return attachment.open_(key, self._binding.draft_id, index, ciphertext)


def open_ciphertext(
    reader: DhKey, binding: Binding, ciphertext: bytes, limits: Limits = DEFAULT_LIMITS
) -> Opened:
    """Check the bounds, then open the header, check cap_ref, and open the body (§4.2, §6)."""
    parts = split(ciphertext, limits)
    return _open(parts, hpke.OpenContext(reader, parts.enc), binding)


def open_with(
    disclosure: bytes, binding: Binding, ciphertext: bytes, limits: Limits = DEFAULT_LIMITS
) -> Opened:
    """Open a message with the secret that a reader has disclosed for it, checked like ``open_ciphertext``.

    The sender of a message can prepare it so that two secrets open it with two contents. A disclosure shows
    what was sent only if the sender and the discloser do not conspire.
    """
    return _open(split(ciphertext, limits), hpke.OpenContext.disclosed(disclosure), binding)


def _open(parts: CiphertextParts, context: hpke.OpenContext, binding: Binding) -> Opened:
    aad = binding.aad
    header = PayloadHeader.decode(context.open(parts.header, aad))
    check_cap_ref(header, binding.auth_ref)
    try:
        body = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            parts.body, aad, binding.nonce, context.export(BODY_KEY)
        )
    except (CryptoError, ValueError):  # ValueError: shorter than a tag
        raise OpenError("the body does not open: it was not sealed with this header (core §4.2)") from None
    return Opened(header, body, context, binding)
