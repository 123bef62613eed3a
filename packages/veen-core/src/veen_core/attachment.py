"""Attachments: sealed next to a message, addressed by content, bound to it by ``att_root`` (§4.6).

The message's id depends on ``att_root``, so an attachment's nonce cannot use it. It uses the draft id
instead: the leaf hash with a zero ``ct_hash`` (B5). ``att_root`` hashes the peaks together even if there
is only one, or none (B6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nacl import bindings
from nacl.exceptions import CryptoError

from veen_core.errors import OpenError
from veen_core.hashing import H, Ht, trunc_24, u64be
from veen_core.ids import AttRoot, Coid, LeafHash
from veen_core.limits import Limits
from veen_core.wrapped_root import wrapped_root

KEY_CONTEXT: Final = b"veen/att-k"


@dataclass(frozen=True, slots=True)
class Attachment:
    """One sealed attachment and its content id."""

    coid: Coid
    ciphertext: bytes


def key_context(index: int) -> bytes:
    """Return the HPKE exporter context of ``k_att``; the index starts at 0 (§4.6, B5)."""
    return KEY_CONTEXT + u64be(index)


def nonce(draft_id: LeafHash, index: int) -> bytes:
    """Return ``n_att``, derived from the draft id (§4.6, B5)."""
    return trunc_24(Ht("veen/att-nonce", draft_id + u64be(index)))


def seal(key: bytes, draft_id: LeafHash, index: int, plaintext: bytes) -> Attachment:
    """Encrypt one attachment under its exported key."""
    ciphertext = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        plaintext, b"", nonce(draft_id, index), key
    )
    return Attachment(Coid(H(ciphertext)), ciphertext)


def open_(key: bytes, draft_id: LeafHash, index: int, ciphertext: bytes) -> bytes:
    """Decrypt one attachment; raise ``OpenError`` for other bytes, another position or another message."""
    try:
        return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            ciphertext, b"", nonce(draft_id, index), key
        )
    except (CryptoError, ValueError):  # ValueError: shorter than a tag
        raise OpenError(
            f"attachment {index} does not open: altered, or from another message or position (core §4.6)"
        ) from None


def att_root(coids: Sequence[Coid]) -> AttRoot:
    """Return the Merkle root over coids in index order; peaks in increasing height, as in §5.1."""
    return AttRoot(wrapped_root(coids, node="veen/att-node", root="veen/att-root"))


EMPTY_ATT_ROOT: Final = att_root(())


def check_bounds(sizes: Sequence[int], limits: Limits) -> None:
    """Check the number and sizes of attachments, before any root is computed (§14.2)."""
    if len(sizes) > limits.max_attachments_per_msg:
        raise OpenError(
            f"{len(sizes)} attachments exceed max_attachments_per_msg = {limits.max_attachments_per_msg}"
        )
    if any(size > limits.max_attachment_bytes for size in sizes):
        raise OpenError(
            f"an attachment exceeds max_attachment_bytes = {limits.max_attachment_bytes} (core §14.1)"
        )


def check_attachments(
    claimed: AttRoot | None, coids: Sequence[Coid], sizes: Sequence[int], limits: Limits
) -> None:
    """Check the bounds (§14.2), then ``att_root`` of an opened message against its coids (§4.6, I5)."""
    if len(coids) != len(sizes):
        raise OpenError(f"{len(coids)} attachments, but {len(sizes)} sizes (core §4.6)")
    check_bounds(sizes, limits)
    if claimed is None:
        if coids:
            raise OpenError(f"{len(coids)} attachments, but payload_hdr has no att_root (core §4.6)")
    elif claimed != att_root(coids):
        raise OpenError("payload_hdr.att_root (core §4.6): is not the root of these attachments")
