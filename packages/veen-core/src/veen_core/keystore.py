"""Keystores: a person's or service's secret keys, sealed with a passphrase (spec-1 §15 keystore.enc).

argon2id derives a key from the passphrase, XChaCha20-Poly1305 seals the secrets under it, and the
costs, salt and nonce are authenticated with them. Salt and nonce are handed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from nacl import bindings, pwhash
from nacl.exceptions import CryptoError
from nacl.exceptions import RuntimeError as NaclRuntimeError

from veen_core.errors import DecodeError, KeystoreError
from veen_core.ids import FixedBytes, UnixTime
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.wire import Wire, int_map


class Salt(FixedBytes):
    """argon2id's salt; public."""

    __slots__ = ()
    SIZE = 16


class KeystoreNonce(FixedBytes):
    """XChaCha20's nonce; public."""

    __slots__ = ()
    SIZE = 24


@dataclass(frozen=True, slots=True)
class Cost:
    """How much work a guess costs: passes, and bytes of memory."""

    passes: int
    memory: int


MODERATE: Final = Cost(pwhash.argon2id.OPSLIMIT_MODERATE, pwhash.argon2id.MEMLIMIT_MODERATE)
"""Default: 256 MiB and 3 passes, under a second on a laptop."""
LEAST: Final = Cost(pwhash.argon2id.OPSLIMIT_MIN, pwhash.argon2id.MEMLIMIT_MIN)
MOST: Final = Cost(16, 2**30)
"""A keystore that asks for more is refused, so that a hostile file cannot exhaust the machine."""


@int_map("prekey_secret", section="keystore")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrekeySecret(Wire):
    """The secret half of a published prekey; kept after expiry to open older messages (KEX0.2)."""

    secret: DhSecret
    expires_at: UnixTime


@int_map("secrets", section="keystore")
@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets(Wire):
    """Long-term keys, and prekeys in the order in which they were made."""

    ver: Literal[1] = 1
    id_sign: SigningSeed
    id_dh: DhSecret
    created_at: UnixTime
    prekeys: tuple[PrekeySecret, ...] = ()

    @property
    def signing_key(self) -> SigningKey:
        return SigningKey(self.id_sign)

    @property
    def dh_keys(self) -> tuple[DhKey, ...]:
        """Every key that may open a message for this identity, long-term one first."""
        return (DhKey(self.id_dh), *(DhKey(prekey.secret) for prekey in self.prekeys))


@int_map("keystore", section="keystore")
@dataclass(frozen=True, slots=True, kw_only=True)
class Keystore(Wire):
    """The file's content; everything but ``sealed`` is public and authenticated."""

    ver: Literal[1] = 1
    kdf: Literal["argon2id"] = "argon2id"
    passes: int
    memory: int
    salt: Salt
    nonce: KeystoreNonce
    sealed: bytes

    def _aad(self) -> bytes:
        public = (self.ver, self.kdf, self.passes, self.memory, self.salt.hex(), self.nonce.hex())
        return "|".join(map(str, public)).encode()


def seal_keystore(
    secrets: Secrets, passphrase: bytes, *, salt: Salt, nonce: KeystoreNonce, cost: Cost = MODERATE
) -> Keystore:
    """Seal under a passphrase; the same inputs give the same bytes."""
    bare = Keystore(passes=cost.passes, memory=cost.memory, salt=salt, nonce=nonce, sealed=b"")
    key = _stretch(bare, passphrase)
    sealed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(secrets.encode(), bare._aad(), nonce, key)
    return Keystore(passes=cost.passes, memory=cost.memory, salt=salt, nonce=nonce, sealed=sealed)


def open_keystore(keystore: Keystore, passphrase: bytes) -> Secrets:
    """The secrets, or ``KeystoreError``; what was wrong with a decrypted content is never shown."""
    key = _stretch(keystore, passphrase)
    try:
        plain = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            keystore.sealed, keystore._aad(), keystore.nonce, key
        )
    except (CryptoError, ValueError):  # ValueError: shorter than a tag
        raise KeystoreError("keystore does not open: wrong passphrase, or the file is damaged") from None
    try:
        return Secrets.decode(plain)
    except DecodeError:
        raise KeystoreError("keystore opened, but does not hold the secrets of this version") from None


def _stretch(keystore: Keystore, passphrase: bytes) -> bytes:
    if not isinstance(passphrase, bytes):  # argon2's own error would read like one of memory
        raise KeystoreError(f"a passphrase is bytes, not {type(passphrase).__name__}: encode it as UTF-8")
    within = LEAST.passes <= keystore.passes <= MOST.passes and LEAST.memory <= keystore.memory <= MOST.memory
    if not within:
        raise KeystoreError(
            f"keystore costs of {keystore.passes} passes and {keystore.memory} bytes are out of bounds "
            f"(at most {MOST.passes} and {MOST.memory})"
        )
    try:
        return pwhash.argon2id.kdf(32, passphrase, keystore.salt, keystore.passes, keystore.memory)
    except (CryptoError, NaclRuntimeError, MemoryError):
        raise KeystoreError(
            f"keystore needs {keystore.memory} bytes of memory to open: there are not enough"
        ) from None
