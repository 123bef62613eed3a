"""Hashes and integer encodings of §3.3, and HKDF-SHA256 (§3.2)."""

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
    """SHA-256 (§3.3)."""
    return sha256(x).digest()


def Ht(tag: str, x: bytes) -> bytes:  # noqa: N802 - the spec's own name
    """``H(tag || 0x00 || x)``: one domain per tag (§3.3)."""
    return sha256(tag.encode() + b"\x00" + x).digest()


def u64be(n: int) -> bytes:
    """Eight bytes, big-endian (§3.3)."""
    if not 0 <= n <= U64_MAX:
        raise EncodeError(f"{n} is not an unsigned 64-bit integer")
    return n.to_bytes(8, "big")


def u32be(n: int) -> bytes:
    """Four bytes, big-endian (§3.3)."""
    if not 0 <= n <= U32_MAX:
        raise EncodeError(f"{n} is not an unsigned 32-bit integer")
    return n.to_bytes(4, "big")


def trunc_24(x: bytes) -> bytes:
    """The first 24 bytes: an XChaCha20 nonce (§3.3)."""
    return x[:24]


def hkdf(ikm: bytes, info: bytes, length: int = HASH_SIZE) -> bytes:
    """HKDF-SHA256 (RFC 5869) with an empty salt, up to 255 blocks."""
    if not 0 < length <= 255 * HASH_SIZE:
        raise EncodeError(f"HKDF-SHA256 gives 1 to {255 * HASH_SIZE} bytes, not {length}")
    prk = hmac.digest(ZERO_32, ikm, "sha256")
    okm, block, counter = b"", b"", 0
    while len(okm) < length:
        counter += 1
        block = hmac.digest(prk, block + info + bytes([counter]), "sha256")
        okm += block
    return okm[:length]
