"""The hub's identity artifacts and secret keys on disk (core §8.4).

Keys are in the data directory's ``keys/`` or in a folder of the operator's choice, one file per key, mode
0600. The artifacts are public: hub-identity.cbor, its signature and the key map.
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
from veen_core.tlog import note
from veen_core.tlog.note import Note
from veen_core.wire import Wire, int_map
from veen_storage.disk.files import SECRET_MODE, Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import REPAIR, RESTORE, DamageError, MismatchError, StorageError, read_file

RESTORE_KEY: Final = "restore it from a backup"


@int_map("hub key file", section="8.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFile(Wire):
    """One secret key; ``hub_pk`` reveals a damaged seed."""

    ver: Literal[1] = 1
    hub_pk: HubPk
    seed: SigningSeed


class SignMany(Protocol):
    """Signs the receipts of a batch, in this process or in another."""

    def expect(self, key: SigningKey, digests: list[bytes]) -> None:
        """Hint that these digests will be signed soon; a remote signer may start."""

    def __call__(self, key: SigningKey, digests: list[bytes]) -> Sequence[Signature]: ...


class SignHere:
    """Signs one receipt after another in the calling thread."""

    def expect(self, key: SigningKey, digests: list[bytes]) -> None:
        """Do nothing: signing starts when it is asked for."""

    def __call__(self, key: SigningKey, digests: list[bytes]) -> Sequence[Signature]:
        return [key.sign(digest) for digest in digests]


sign_here: Final = SignHere()


@dataclass
class HubKeys:
    """Signs as the hub, with the key that the identity record names for the time (core §8.4, KEX0.1)."""

    identity: HubIdentity
    secrets: dict[KeyId, SigningKey] = field(repr=False)
    sign_many: SignMany = field(default=sign_here, repr=False)
    """Signs the receipts of a batch; a hub may replace it by a helper process."""
    _current: tuple[UnixTime, SigningKey] | None = field(default=None, init=False, repr=False)
    """Cached key of one second: a lookup costs 2 µs, and all receipts of a batch have one hub_ts."""

    def sign_receipt(self, digest: bytes, now: UnixTime) -> Signature:
        """Sign a RECEIPT's digest with the key of its hub_ts."""
        return self.key_at(now).sign(digest)

    def expect_receipts(self, digests: list[bytes], now: UnixTime) -> None:
        """Hint that ``sign_receipts`` will be called with these digests, possibly among others."""
        self.sign_many.expect(self.key_at(now), digests)

    def sign_receipts(self, digests: list[bytes], now: UnixTime) -> Sequence[Signature]:
        """Sign the digests of several RECEIPTs with the same hub_ts."""
        return self.sign_many(self.key_at(now), digests)

    def key_at(self, now: UnixTime) -> SigningKey:
        """Return the key that signs at a time."""
        if self._current is None or self._current[0] != now:
            self._current = (now, self._secret(self.identity.signing_key_at(now)))
        return self._current[1]

    def sign_checkpoint(self, unsigned: Checkpoint, now: UnixTime) -> Checkpoint:
        """Sign a checkpoint; during a rotation window every active key witnesses it (KEX0.1)."""
        active = self.identity.active_at(now)
        signer = self._secret(self.identity.signing_key_at(now))
        witnesses = [self._secret(key) for key in active] if len(active) > 1 else []
        return sign_checkpoint(signer, unsigned, witnesses)

    def sign_note(self, text: str, name: str, now: UnixTime) -> Note:
        """Sign a note as the log ``name`` (RESOLUTIONS P1); during a rotation window all active keys sign.

        The signature of the key that signs receipts comes first.
        """
        signer = self.identity.signing_key_at(now)
        keys = [signer, *(key for key in self.identity.active_at(now) if key != signer)]
        return Note(text, tuple(note.sign_note(self._secret(key), name, text) for key in keys))

    def _secret(self, key: HubKey) -> SigningKey:
        try:
            return self.secrets[key.key_id]
        except KeyError:
            raise StorageError(
                f"the hub's key {key.key_id.hex()} is not available",
                action="put its file back into the keys folder",
            ) from None


def write_key(files: Files, directory: Path, key: SigningKey) -> None:
    """Write a key file; refuse to overwrite one, since a lost key cannot be made again.

    A folder that this creates is private to the user; an existing folder keeps its permissions.
    """
    hub_pk = HubPk(key.public)
    path = directory / key_file_name(hub_pk)
    if path.exists():
        raise StorageError(f"{path.name} exists already")
    files.make_directories(directory, 0o700)
    files.replace(path, KeyFile(hub_pk=hub_pk, seed=key.seed).encode(), SECRET_MODE)


def read_keys(directory: Path, identity: HubIdentity) -> dict[KeyId, SigningKey]:
    """Read the keys of the identity that exist in a folder; errors never show a file's content."""
    found = {}
    for key in identity.hub_keys:
        path = directory / key_file_name(key.hub_pk)
        if path.exists():
            found[key.key_id] = _read_key(path, key.hub_pk)
    return found


def read_all_keys(directory: Path) -> list[SigningKey]:
    """Read every key file of a folder, in the order of their names."""
    keys = []
    for path in sorted(directory.glob("hub-*.key")):
        content = read_file(path, missing=RESTORE_KEY)
        try:
            stored = KeyFile.decode(content)
        except VeenError:
            raise DamageError(path.name, None, "is not a hub key file", RESTORE_KEY) from None
        if path.name != key_file_name(stored.hub_pk):
            raise DamageError(path.name, None, "does not contain the key that its name says", RESTORE_KEY)
        keys.append(_read_key(path, stored.hub_pk))
    return keys


def key_file_name(hub_pk: HubPk) -> str:
    return f"hub-{hub_identity.key_id(hub_pk).hex()}.key"


def has_key(directory: Path, key: SigningKey) -> bool:
    """Return whether the folder holds this key already, as after an interrupted rotation."""
    hub_pk = HubPk(key.public)
    path = directory / key_file_name(hub_pk)
    return path.exists() and _read_key(path, hub_pk).seed == key.seed


def _read_key(path: Path, hub_pk: HubPk) -> SigningKey:
    content = read_file(path, missing=RESTORE_KEY)
    try:
        stored = KeyFile.decode(content)
    except VeenError:
        raise DamageError(path.name, None, "is not a hub key file", RESTORE_KEY) from None
    key = SigningKey(stored.seed)
    if key.public != hub_pk or stored.hub_pk != hub_pk:
        raise DamageError(path.name, None, "does not contain the key that its name says", RESTORE_KEY)
    return key


@int_map("hub-identity.next", section="8.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class NextIdentity(Wire):
    """The new identity record and its signature, while the three artifacts are being replaced."""

    identity: HubIdentity
    signature: Signature


def write_identity(files: Files, layout: Layout, identity: HubIdentity, signer: SigningKey) -> None:
    """Replace the three artifacts together, also across a crash.

    1. Write hub-identity.next with everything: **from here on the new identity is valid**.
    2. Replace key map, signature and record from it.
    3. Remove hub-identity.next.

    Opening does steps 2 and 3 if they are undone. A crash before step 1 leaves the old identity, and at most
    a key file that no identity refers to.
    """
    signature = hub_identity.sign_identity(signer, identity)
    files.replace(layout.identity_next, NextIdentity(identity=identity, signature=signature).encode())
    finish_identity(files, layout, identity.hub_id)


def finish_identity(files: Files, layout: Layout, hub: HubId) -> None:
    """Do steps 2 and 3 of ``write_identity``, if a crash left them undone."""
    try:
        pending = NextIdentity.decode(layout.identity_next.read_bytes())
    except FileNotFoundError:
        return
    except DecodeError as exc:
        raise DamageError(layout.identity_next.name, None, str(exc), RESTORE) from exc
    try:
        hub_identity.verify_identity(pending.identity, pinned=hub)
    except VeenError as exc:
        raise MismatchError(
            f"{layout.identity_next.name}: {exc}: another hub's files were mixed in; "
            "move this file out of the data directory"
        ) from exc
    files.replace(layout.key_map, encode_key_map(pending.identity))
    files.replace(layout.identity_signature, pending.signature)
    files.replace(layout.identity, pending.identity.encode())
    files.remove(layout.identity_next)
    files.sync_directory(layout.root)


def encode_key_map(identity: HubIdentity) -> bytes:
    """Encode hub-key-map.cbor: key_id to hub_pk, in ascending order of key_id (core §8.4)."""
    return cbor.encode({bytes(key): bytes(pk) for key, pk in sorted(identity.key_map.items())})


def read_identity(layout: Layout, hub: HubId) -> HubIdentity:
    """Read the identity record and verify it against its signature, its key map and the registry's hub_id."""
    try:
        identity = HubIdentity.decode(read_file(layout.identity))
    except DecodeError as exc:
        raise DamageError(layout.identity.name, None, str(exc), RESTORE) from exc
    if identity.hub_id != hub:
        raise MismatchError(
            f"hub-identity.cbor belongs to hub {identity.hub_id.hex()}, but this directory to hub {hub.hex()}"
            ": another hub's files were mixed in"
        )
    hub_identity.verify_identity(identity)
    for problem in identity_problems(layout, identity):
        raise problem
    return identity


def identity_problems(layout: Layout, identity: HubIdentity) -> Iterable[DamageError]:
    """Yield an error for each of signature and key map that does not match a verified identity."""
    try:
        hub_identity.verify_identity_signature(identity, Signature(read_file(layout.identity_signature)))
    except VeenError as exc:
        yield DamageError(layout.identity_signature.name, None, str(exc), REPAIR)
    if read_file(layout.key_map) != encode_key_map(identity):
        yield DamageError(layout.key_map.name, None, "does not match hub-identity.cbor", REPAIR)
