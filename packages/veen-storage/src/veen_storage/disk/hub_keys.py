"""The hub's identity artifacts and secret keys on disk (§8.4).

Keys lie in the data directory's ``keys/`` or in another folder of the operator's choice, one file a
key, mode 0600. The artifacts are public: hub-identity.cbor, its signature and the key map.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

from veen_core import cbor, hub_identity
from veen_core.checkpoint import Checkpoint, sign_checkpoint
from veen_core.errors import DecodeError, VeenError
from veen_core.hub_identity import HubIdentity, HubKey
from veen_core.ids import HubId, HubPk, KeyId, Signature, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.wire import Wire, int_map
from veen_storage.disk.files import SECRET, Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, MismatchError, StorageError, unreadable


@int_map("hub key file", section="8.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFile(Wire):
    """One secret key; ``hub_pk`` is there so that damage shows."""

    ver: Literal[1] = 1
    hub_pk: HubPk
    seed: SigningSeed


class SignMany(Protocol):
    """Signs the receipts of a batch."""

    def expect(self, key: SigningKey, digests: list[bytes]) -> None:
        """These will be asked for: whoever signs elsewhere may begin."""

    def __call__(self, key: SigningKey, digests: list[bytes]) -> Sequence[Signature]: ...


class SignHere:
    """One after another, in the thread that asks."""

    def expect(self, key: SigningKey, digests: list[bytes]) -> None:
        """Nothing begins before it is asked for."""

    def __call__(self, key: SigningKey, digests: list[bytes]) -> Sequence[Signature]:
        return [key.sign(digest) for digest in digests]


sign_here: Final = SignHere()


@dataclass
class HubKeys:
    """Signs as the hub: by the key its identity dictates at the time (§8.4, KEX0.1)."""

    identity: HubIdentity
    secrets: dict[KeyId, SigningKey] = field(repr=False)
    sign_many: SignMany = field(default=sign_here, repr=False)
    """Whoever has many to sign may have them signed elsewhere."""
    _current: tuple[UnixTime, SigningKey] | None = field(default=None, init=False, repr=False)
    """The key of one second: looking it up costs 2 µs, and a batch has one hub_ts."""

    def sign_receipt(self, digest: bytes, now: UnixTime) -> Signature:
        """``hub_sig`` over a RECEIPT's digest, by the key of its hub_ts."""
        return self._key_at(now).sign(digest)

    def expect_receipts(self, digests: list[bytes], now: UnixTime) -> None:
        """``sign_receipts`` will be asked for these, and maybe for others with them."""
        self.sign_many.expect(self._key_at(now), digests)

    def sign_receipts(self, digests: list[bytes], now: UnixTime) -> Sequence[Signature]:
        """Many of one time."""
        return self.sign_many(self._key_at(now), digests)

    def _key_at(self, now: UnixTime) -> SigningKey:
        if self._current is None or self._current[0] != now:
            self._current = (now, self._secret(self.identity.signing_key_at(now)))
        return self._current[1]

    def sign_checkpoint(self, unsigned: Checkpoint, now: UnixTime) -> Checkpoint:
        """During a rotation window every active key witnesses the checkpoint (KEX0.1)."""
        active = self.identity.active_at(now)
        signer = self._secret(self.identity.signing_key_at(now))
        witnesses = [self._secret(key) for key in active] if len(active) > 1 else []
        return sign_checkpoint(signer, unsigned, witnesses)

    def _secret(self, key: HubKey) -> SigningKey:
        try:
            return self.secrets[key.key_id]
        except KeyError:
            raise StorageError(
                f"the hub's key {key.key_id.hex()} is not here: put its file back into the keys folder"
            ) from None


def write_key(files: Files, directory: Path, key: SigningKey) -> None:
    """Write a key file; refuse to overwrite one, since a lost key cannot be made again.

    A folder that this creates is private to the user; an existing folder keeps its permissions.
    """
    hub_pk = HubPk(key.public)
    path = directory / f"hub-{hub_identity.key_id(hub_pk).hex()}.key"
    if path.exists():
        raise StorageError(f"{path.name} exists already")
    files.make_directories(directory, 0o700)
    files.replace(path, KeyFile(hub_pk=hub_pk, seed=key.seed).encode(), SECRET)


def read_keys(directory: Path, identity: HubIdentity) -> dict[KeyId, SigningKey]:
    """Every key of the identity that is there; what a file holds is never shown."""
    found = {}
    for key in identity.hub_keys:
        path = directory / f"hub-{key.key_id.hex()}.key"
        if path.exists():
            found[key.key_id] = _read_key(path, key.hub_pk)
    return found


def has_key(directory: Path, key: SigningKey) -> bool:
    """Whether this very key is there already, as after a rotation that was cut off."""
    hub_pk = HubPk(key.public)
    path = directory / f"hub-{hub_identity.key_id(hub_pk).hex()}.key"
    return path.exists() and _read_key(path, hub_pk).seed == key.seed


def _read_key(path: Path, hub_pk: HubPk) -> SigningKey:
    try:
        stored = KeyFile.decode(path.read_bytes())
    except VeenError:
        raise DamageError(path.name, None, "is not a hub key file", "restore it from a backup") from None
    except OSError as exc:
        raise unreadable(path.name, exc) from exc
    key = SigningKey(stored.seed)
    if key.public != hub_pk or stored.hub_pk != hub_pk:
        raise DamageError(
            path.name, None, "does not hold the key it is named after", "restore it from a backup"
        )
    return key


@int_map("hub-identity.next", section="8.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class NextIdentity(Wire):
    """The record and its signature, while the artifacts are being replaced."""

    identity: HubIdentity
    signature: Signature


def write_identity(files: Files, layout: Layout, identity: HubIdentity, signer: SigningKey) -> None:
    """Replace the three artifacts as one, whatever happens in between.

    1. hub-identity.next, with everything: **from here on the new identity holds**;
    2. key map, signature and record, each replaced from it; 3. it goes. Opening does 2 and 3 if they
    are open. A crash before 1 leaves the old identity, and at most a key file nobody refers to.
    """
    signature = hub_identity.sign_identity(signer, identity)
    files.replace(layout.identity_next, NextIdentity(identity=identity, signature=signature).encode())
    finish_identity(files, layout, identity.hub_id)


def finish_identity(files: Files, layout: Layout, hub: HubId) -> None:
    """Steps 2 and 3 of ``write_identity``; nothing to do in a directory where it ran to its end."""
    try:
        pending = NextIdentity.decode(layout.identity_next.read_bytes())
    except FileNotFoundError:
        return
    except DecodeError as exc:
        raise DamageError(layout.identity_next.name, None, str(exc), "restore it from a clone") from exc
    try:
        hub_identity.verify_identity(pending.identity, pinned=hub)
    except VeenError as exc:
        raise MismatchError(
            f"{layout.identity_next.name}: {exc}: another hub's files were mixed in; move it out"
        ) from exc
    files.replace(layout.key_map, encode_key_map(pending.identity))
    files.replace(layout.identity_signature, pending.signature)
    files.replace(layout.identity, pending.identity.encode())
    files.remove(layout.identity_next)
    files.sync_directory(layout.root)


def encode_key_map(identity: HubIdentity) -> bytes:
    """hub-key-map: key_id to hub_pk, in ascending order of key_id (§8.4)."""
    return cbor.encode({bytes(key): bytes(pk) for key, pk in sorted(identity.key_map.items())})


def read_identity(layout: Layout, hub: HubId) -> HubIdentity:
    """The identity record, verified against its signature, its key map and the registry's hub_id."""
    try:
        identity = HubIdentity.decode(_read(layout.identity))
    except DecodeError as exc:
        raise DamageError(layout.identity.name, None, str(exc), "restore it from a clone") from exc
    if identity.hub_id != hub:
        raise MismatchError(
            f"hub-identity.cbor is of hub {identity.hub_id.hex()}, this directory of {hub.hex()}: "
            "another hub's files were mixed in"
        )
    hub_identity.verify_identity(identity)
    for problem in identity_problems(layout, identity):
        raise problem
    return identity


def identity_problems(layout: Layout, identity: HubIdentity) -> Iterable[DamageError]:
    """What does not agree with a verified identity record."""
    remedy = "run `veen hub repair`"
    try:
        hub_identity.verify_identity_signature(identity, Signature(_read(layout.identity_signature)))
    except VeenError as exc:
        yield DamageError(layout.identity_signature.name, None, str(exc), remedy)
    if _read(layout.key_map) != encode_key_map(identity):
        yield DamageError(layout.key_map.name, None, "does not match hub-identity.cbor", remedy)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DamageError(path.name, None, "is missing", "restore it from a clone") from None
    except OSError as exc:
        raise unreadable(path.name, exc) from exc
