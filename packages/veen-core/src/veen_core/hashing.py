"""Hashes and fixed-size integers of core §3.3, and HKDF-SHA256 of core §3.2."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Final

from veen_core.errors import EncodeError

HASH_SIZE: Final = 32
ZERO_32: Final = bytes(HASH_SIZE)
U64_MAX: Final = 2**64 - 1
U32_MAX: Final = 2**32 - 1


def H(x: bytes) -> bytes:  # noqa: N802 - the spec's own name
    """Return the SHA-256 hash (§3.3)."""
    return sha256(x).digest()


def Ht(tag: str, x: bytes) -> bytes:  # noqa: N802 - the spec's own name
    """Return ``H(tag || 0x00 || x)``; the tag separates the uses of the hash (§3.3)."""
    return sha256(tag.encode() + b"\x00" + x).digest()


def u64be(n: int) -> bytes:
    """Encode an unsigned integer in eight bytes, big-endian (§3.3)."""
    if not 0 <= n <= U64_MAX:
        raise EncodeError(f"{n} is not an unsigned 64-bit integer")
    return n.to_bytes(8, "big")


def u32be(n: int) -> bytes:
    """Encode an unsigned integer in four bytes, big-endian (§3.3)."""
    if not 0 <= n <= U32_MAX:
        raise EncodeError(f"{n} is not an unsigned 32-bit integer")
    return n.to_bytes(4, "big")


def trunc_24(x: bytes) -> bytes:
    """Return the first 24 bytes, the size of an XChaCha20 nonce (§3.3)."""
    return x[:24]


def hkdf(ikm: bytes, info: bytes) -> bytes:
    """Derive 32 bytes by HKDF-SHA256 with an empty salt (RFC 5869)."""
    return hmac.digest(hmac.digest(ZERO_32, ikm, "sha256"), info + b"\x01", "sha256")
