"""HPKE base mode with exporter (RFC 9180), the one suite of §3.2, with an empty ``info`` (B4).

The caller passes the ephemeral key, so that sealing is a pure function. Each message has its own context:
any message opens by itself, from ``enc``, and a context encrypts one plaintext, with sequence number 0.

The key schedule is HMAC-SHA256 from the standard library. X25519 and ChaCha20-Poly1305 are libsodium's, which
releases the GIL. Comments cite the sections of RFC 9180 by "R".
"""

from __future__ import annotations

import hmac
from typing import Final

from nacl import bindings
from nacl.exceptions import CryptoError

from veen_core.errors import DecodeError, OpenError, StateError
from veen_core.ids import DhPublicKey
from veen_core.keys import DhKey, DhSecret

ENC_SIZE: Final = 32
TAG_SIZE: Final = 16
KEY_SIZE: Final = 32
NONCE_SIZE: Final = 12
HASH_SIZE: Final = 32
MAX_EXPORT: Final = 255 * HASH_SIZE

_KEM_X25519: Final = 0x0020
_KDF_SHA256: Final = 0x0001
_AEAD_CHACHA20_POLY1305: Final = 0x0003
_VERSION: Final = b"HPKE-v1"
_KEM_SUITE_ID: Final = b"KEM" + _KEM_X25519.to_bytes(2, "big")
_HPKE_SUITE_ID: Final = b"HPKE" + b"".join(
    number.to_bytes(2, "big") for number in (_KEM_X25519, _KDF_SHA256, _AEAD_CHACHA20_POLY1305)
)
_BASE_MODE: Final = b"\x00"


def _extract(salt: bytes, suite: bytes, label: bytes, ikm: bytes) -> bytes:
    """LabeledExtract (R 4)."""
    return hmac.digest(salt, _VERSION + suite + label + ikm, "sha256")


def _expand(secret: bytes, suite: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """LabeledExpand (R 4)."""
    labeled = length.to_bytes(2, "big") + _VERSION + suite + label + info
    block = hmac.digest(secret, labeled + b"\x01", "sha256")
    output = block
    for number in range(2, -(-length // HASH_SIZE) + 1):
        block = hmac.digest(secret, block + labeled + bytes((number,)), "sha256")
        output += block
    return output[:length]


def schedule_context(info: bytes) -> bytes:
    """``key_schedule_context`` of base mode (R 5.1)."""
    return (
        _BASE_MODE
        + _extract(b"", _HPKE_SUITE_ID, b"psk_id_hash", b"")
        + _extract(b"", _HPKE_SUITE_ID, b"info_hash", info)
    )


EMPTY_INFO: Final = schedule_context(b"")


def shared_secret(dh: bytes, enc: bytes, recipient: bytes) -> bytes:
    """ExtractAndExpand of the KEM (R 4.1)."""
    return _expand(
        _extract(b"", _KEM_SUITE_ID, b"eae_prk", dh),
        _KEM_SUITE_ID,
        b"shared_secret",
        enc + recipient,
        HASH_SIZE,
    )


class Context:
    """The keys of one message, which sender and recipient derive alike (R 5.1)."""

    __slots__ = ("_base_nonce", "_exporter_secret", "_key")

    def __init__(self, shared: bytes, schedule: bytes = EMPTY_INFO) -> None:
        secret = _extract(shared, _HPKE_SUITE_ID, b"secret", b"")
        self._key = _expand(secret, _HPKE_SUITE_ID, b"key", schedule, KEY_SIZE)
        self._base_nonce = _expand(secret, _HPKE_SUITE_ID, b"base_nonce", schedule, NONCE_SIZE)
        self._exporter_secret = _expand(secret, _HPKE_SUITE_ID, b"exp", schedule, HASH_SIZE)

    def export(self, exporter_context: bytes, length: int = 32) -> bytes:
        """Derive a further secret (R 5.3)."""
        if not 0 <= length <= MAX_EXPORT:
            raise StateError(f"{length} bytes cannot be exported: at most {MAX_EXPORT} (RFC 9180 §5.3)")
        return _expand(self._exporter_secret, _HPKE_SUITE_ID, b"sec", exporter_context, length)


class SealContext(Context):
    """The sender's context of one message."""

    __slots__ = ("_used", "enc")

    def __init__(self, recipient: DhPublicKey, ephemeral: DhSecret, schedule: bytes = EMPTY_INFO) -> None:
        secret = bytes(ephemeral)
        self.enc = bindings.crypto_scalarmult_base(secret)
        try:
            dh = bindings.crypto_scalarmult(secret, recipient)
        except CryptoError:  # X25519 gave the all-zero secret: a small-order key (R 7.1.4)
            raise OpenError(f"{recipient.hex()} is not a usable X25519 key") from None
        super().__init__(shared_secret(dh, self.enc, recipient), schedule)
        self._used = False

    def seal(self, plaintext: bytes, aad: bytes) -> bytes:
        """Encrypt the context's one plaintext (R 5.2)."""
        if self._used:
            raise StateError("an HPKE context seals one plaintext: make a new one with a fresh ephemeral key")
        self._used = True
        return bindings.crypto_aead_chacha20poly1305_ietf_encrypt(plaintext, aad, self._base_nonce, self._key)


class OpenContext(Context):
    """The recipient's context of one message."""

    __slots__ = ("shared",)

    def __init__(self, recipient: DhKey, enc: bytes, schedule: bytes = EMPTY_INFO) -> None:
        try:
            dh = bindings.crypto_scalarmult(bytes(recipient.secret), DhPublicKey(enc))
        except (CryptoError, DecodeError):  # a small-order key (R 7.1.4), or not 32 bytes
            raise OpenError("enc is not a usable X25519 key (core §4.2)") from None
        self.shared = shared_secret(dh, enc, recipient.public)
        """The KEM's shared secret: it opens this one message and no other."""
        super().__init__(self.shared, schedule)

    @classmethod
    def disclosed(cls, shared: bytes) -> OpenContext:
        """The context of a message whose shared secret its recipient has disclosed."""
        context = cls.__new__(cls)
        context.shared = shared
        Context.__init__(context, shared)
        return context

    def open(self, ciphertext: bytes, aad: bytes) -> bytes:
        """Decrypt the context's one ciphertext (R 5.2)."""
        try:
            return bindings.crypto_aead_chacha20poly1305_ietf_decrypt(
                ciphertext, aad, self._base_nonce, self._key
            )
        except (CryptoError, ValueError):  # ValueError: shorter than a tag
            raise OpenError(
                "the payload header does not open: another reader key, or an altered MSG (core §4.2)"
            ) from None
