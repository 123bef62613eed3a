"""Keystores: the secret keys of a person or service, sealed with a passphrase (spec-1 §15 keystore.enc).

argon2id derives a key from the passphrase, and XChaCha20-Poly1305 seals the secrets under that key. The
costs, salt and nonce are public and authenticated. The caller passes salt and nonce.
"""

from __future__ import annotations

import stat
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from nacl import bindings, pwhash
from nacl.exceptions import CryptoError
from nacl.exceptions import RuntimeError as NaclRuntimeError

from veen_core.errors import DecodeError, KeystoreError
from veen_core.ids import FixedBytes, UnixTime
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.wire import Wire, int_map


class FileStatus(Protocol):
    """Mode, owner and group of a file: a part of ``os.stat_result``."""

    @property
    def st_mode(self) -> int: ...
    @property
    def st_uid(self) -> int: ...
    @property
    def st_gid(self) -> int: ...


def is_exposed(file: FileStatus, user: int, groups: Collection[int]) -> bool:
    """Return whether other users than ``user``, who is in ``groups``, can read a file of secrets.

    Only the owner may read the file. The one exception is a file of root that one of ``groups`` may read, but
    not change or execute. Kubernetes mounts a Secret like this (``defaultMode: 0440`` with ``fsGroup``) for a
    process that is not root and so cannot own the file. Root decides which users are in the group.
    """
    if file.st_mode & (stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP):
        return True
    if not file.st_mode & stat.S_IRGRP:
        return False
    return file.st_uid != 0 or user == 0 or file.st_gid not in groups


class Salt(FixedBytes):
    """The salt of argon2id, which is public."""

    __slots__ = ()
    SIZE = 16


class KeystoreNonce(FixedBytes):
    """The nonce of XChaCha20, which is public."""

    __slots__ = ()
    SIZE = 24


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one guess of the passphrase: passes, and bytes of memory."""

    passes: int
    memory: int


MODERATE: Final = Cost(pwhash.argon2id.OPSLIMIT_MODERATE, pwhash.argon2id.MEMLIMIT_MODERATE)
"""The default: 256 MiB and 3 passes, less than a second on a laptop."""
MIN_COST: Final = Cost(pwhash.argon2id.OPSLIMIT_MIN, pwhash.argon2id.MEMLIMIT_MIN)
MAX_COST: Final = Cost(16, 2**30)
"""A keystore with a higher cost is refused, so that a hostile file cannot exhaust the machine."""


@int_map("prekey_secret", section="keystore")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrekeySecret(Wire):
    """The secret half of a published prekey, kept after its expiry to open older messages (KEX0.2)."""

    secret: DhSecret
    expires_at: UnixTime


@int_map("secrets", section="keystore")
@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets(Wire):
    """The long-term keys of an identity, and its prekeys in the order of their creation."""

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
        """Every key that may open a message for this identity, the long-term key first."""
        return (DhKey(self.id_dh), *(DhKey(prekey.secret) for prekey in self.prekeys))


@int_map("keystore", section="keystore")
@dataclass(frozen=True, slots=True, kw_only=True)
class Keystore(Wire):
    """The content of a keystore file. All fields are authenticated; only ``sealed`` is encrypted."""

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
    """Seal secrets under a passphrase; the same inputs give the same bytes."""
    bare = Keystore(passes=cost.passes, memory=cost.memory, salt=salt, nonce=nonce, sealed=b"")
    key = _stretch(bare, passphrase)
    sealed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(secrets.encode(), bare._aad(), nonce, key)
    return Keystore(passes=cost.passes, memory=cost.memory, salt=salt, nonce=nonce, sealed=sealed)


def open_keystore(keystore: Keystore, passphrase: bytes) -> Secrets:
    """Return the secrets or raise ``KeystoreError``, which never shows decrypted content."""
    key = _stretch(keystore, passphrase)
    try:
        plain = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            keystore.sealed, keystore._aad(), keystore.nonce, key
        )
    except (CryptoError, ValueError):  # ValueError: shorter than a tag
        raise KeystoreError(
            "the keystore does not open: the passphrase is wrong, or the file is damaged"
        ) from None
    try:
        return Secrets.decode(plain)
    except DecodeError:
        raise KeystoreError("the keystore opens, but this version cannot read its content") from None


def _stretch(keystore: Keystore, passphrase: bytes) -> bytes:
    if not isinstance(passphrase, bytes):  # argon2 reports a str as a lack of memory
        raise KeystoreError(
            f"a passphrase must be bytes, not {type(passphrase).__name__}: encode it as UTF-8"
        )
    within = (
        MIN_COST.passes <= keystore.passes <= MAX_COST.passes
        and MIN_COST.memory <= keystore.memory <= MAX_COST.memory
    )
    if not within:
        raise KeystoreError(
            f"the keystore's cost, {keystore.passes} passes and {keystore.memory} bytes, is out of bounds "
            f"(at most {MAX_COST.passes} and {MAX_COST.memory})"
        )
    try:
        return pwhash.argon2id.kdf(32, passphrase, keystore.salt, keystore.passes, keystore.memory)
    except (CryptoError, NaclRuntimeError, MemoryError):
        raise KeystoreError(
            f"not enough memory: opening the keystore takes {keystore.memory} bytes"
        ) from None
