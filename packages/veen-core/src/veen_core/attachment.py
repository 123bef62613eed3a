"""Attachments: sealed beside a message, addressed by content, committed to by ``att_root`` (§4.6).

The nonce cannot use the message's own id, which depends on ``att_root``: it uses the draft id,
the leaf hash with a zero ``ct_hash`` (B5). ``att_root`` is always wrapped, for one peak and for
none as well (B6).
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

KEY_CONTEXT: Final = b"veen/att-k"


@dataclass(frozen=True, slots=True)
class Attachment:
    """One sealed attachment, ready to travel."""

    coid: Coid
    ciphertext: bytes


def key_context(index: int) -> bytes:
    """Exporter context of ``k_att``, index from 0 (§4.6, B5)."""
    return KEY_CONTEXT + u64be(index)


def nonce(draft_id: LeafHash, index: int) -> bytes:
    """``n_att`` over the draft id (§4.6, B5)."""
    return trunc_24(Ht("veen/att-nonce", draft_id + u64be(index)))


def seal(key: bytes, draft_id: LeafHash, index: int, plaintext: bytes) -> Attachment:
    """Encrypt one attachment under its exported key."""
    ciphertext = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        plaintext, b"", nonce(draft_id, index), key
    )
    return Attachment(Coid(H(ciphertext)), ciphertext)


def open_(key: bytes, draft_id: LeafHash, index: int, ciphertext: bytes) -> bytes:
    """Decrypt one attachment; refuse any other bytes, position or message."""
    try:
        return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            ciphertext, b"", nonce(draft_id, index), key
        )
    except (CryptoError, ValueError):  # ValueError: shorter than a tag
        raise OpenError(
            f"attachment {index} does not open: it belongs to another message or position (§4.6)"
        ) from None


def att_root(coids: Sequence[Coid]) -> AttRoot:
    """Merkle root over coids in index order, peaks in increasing height as in §5.1."""
    peaks: list[bytes] = []  # leftmost and highest first
    for count, coid in enumerate(coids, start=1):
        node: bytes = coid
        while count % 2 == 0:
            node = Ht("veen/att-node", peaks.pop() + node)
            count //= 2  # noqa: PLW2901 - the carry of a binary counter
        peaks.append(node)
    return AttRoot(Ht("veen/att-root", b"".join(reversed(peaks))))


EMPTY_ATT_ROOT: Final = att_root(())


def check_bounds(sizes: Sequence[int], limits: Limits) -> None:
    """Count and sizes, before any root is computed (§14.2)."""
    if len(sizes) > limits.max_attachments_per_msg:
        raise OpenError(
            f"{len(sizes)} attachments exceed max_attachments_per_msg = {limits.max_attachments_per_msg}"
        )
    if any(size > limits.max_attachment_bytes for size in sizes):
        raise OpenError(f"an attachment exceeds max_attachment_bytes = {limits.max_attachment_bytes} (§14.1)")


def check_attachments(
    claimed: AttRoot | None, coids: Sequence[Coid], sizes: Sequence[int], limits: Limits
) -> None:
    """Bounds first (§14.2), then ``att_root`` against the coids in hand (§4.6, I5)."""
    if len(coids) != len(sizes):
        raise OpenError(f"{len(coids)} attachments, but {len(sizes)} sizes (§4.6)")
    check_bounds(sizes, limits)
    if claimed is None:
        if coids:
            raise OpenError(f"{len(coids)} attachments, but payload_hdr has no att_root (§4.6)")
    elif claimed != att_root(coids):
        raise OpenError("payload_hdr.att_root §4.6: is not the root of the attachments in hand")
