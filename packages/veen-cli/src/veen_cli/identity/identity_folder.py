"""The folder of an identity: its keys, its card, and its state (spec-1 KEX0.2, spec-1 §15).

keystore.enc        the secrets, sealed with a passphrase; or
secrets.cbor        the secrets unsealed, after ``--no-passphrase`` (mode 0600)
identity_card.pub   the signed public keys, which others need to write to this identity
state/              client_ids, tokens and verified prefixes per hub; secret, mode 0600
hubs/               hubs pinned on first use, by address
known_streams.json  names of streams that the identity has used
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Final, TypeVar

import veen_storage
from veen_cli.arguments.object_files import read_object
from veen_cli.arguments.passphrase import Passphrase
from veen_cli.arguments.private_files import refuse_if_shared
from veen_cli.frame.exits import CommandFailed, Exit
from veen_core.card import IdentityCard, sign_card, sign_prekey, verify_card
from veen_core.errors import DecodeError
from veen_core.ids import DhPublicKey, UnixTime, VerifyKey
from veen_core.keys import DhKey, DhSecret, SigningSeed
from veen_core.keystore import (
    MODERATE,
    Keystore,
    KeystoreNonce,
    PrekeySecret,
    Salt,
    Secrets,
    open_keystore,
    seal_keystore,
)

RESTORE: Final = "restore it from a backup: lost keys cannot be recreated"
KEY_DIGITS: Final = 64
K = TypeVar("K", DhPublicKey, VerifyKey)


def new_secrets(now: UnixTime) -> Secrets:
    return Secrets(id_sign=SigningSeed(os.urandom(32)), id_dh=DhSecret(os.urandom(32)), created_at=now)


def card_of(secrets: Secrets, now: UnixTime) -> IdentityCard:
    """Sign a card; leave out prekeys that have expired."""
    key = secrets.signing_key
    alive = (
        sign_prekey(key, DhKey(prekey.secret).public, prekey.expires_at)
        for prekey in secrets.prekeys
        if prekey.expires_at > now
    )
    return sign_card(key, DhKey(secrets.id_dh).public, alive)


def with_prekey(secrets: Secrets, expires_at: UnixTime) -> Secrets:
    """Add a receiving key; older ones stay, to open messages sealed to them."""
    fresh = PrekeySecret(secret=DhSecret(os.urandom(32)), expires_at=expires_at)
    return Secrets(
        id_sign=secrets.id_sign,
        id_dh=secrets.id_dh,
        created_at=secrets.created_at,
        prekeys=(*secrets.prekeys, fresh),
    )


@dataclass(frozen=True, slots=True)
class Folder:
    """An identity on disk."""

    root: Path

    @property
    def keystore(self) -> Path:
        return self.root / "keystore.enc"

    @property
    def plain(self) -> Path:
        return self.root / "secrets.cbor"

    @property
    def card_file(self) -> Path:
        return self.root / "identity_card.pub"

    @property
    def state(self) -> Path:
        return self.root / "state"

    def pin(self, url: str) -> Path:
        """Return the file that pins the hub at this address (``--trust first``)."""
        return self.root / "hubs" / f"{sha256(url.rstrip('/').encode()).hexdigest()[:32]}.cbor"

    @property
    def sealed(self) -> bool:
        return self.keystore.exists()

    @property
    def exists(self) -> bool:
        return self.sealed or self.plain.exists()

    def must_exist(self) -> None:
        if not self.exists:
            create = f"check the name, or create one with `veen keygen --out {quote(str(self.root))}`"
            raise CommandFailed(
                f"{self.root} holds no identity",
                Exit.USAGE,
                _similar(self.root, _identities_in(self.root.parent)) or create,
            )

    def create(self, secrets: Secrets, passphrase: Callable[[], bytes] | None, now: UnixTime) -> IdentityCard:
        """Write a new identity; never overwrite existing keys."""
        if self.exists:
            raise CommandFailed(
                f"{self.root} already holds keys, which are never overwritten",
                Exit.POLICY,
                "choose another folder",
            )
        return self.write(secrets, passphrase, now)

    def write(self, secrets: Secrets, passphrase: Callable[[], bytes] | None, now: UnixTime) -> IdentityCard:
        """Write the keys, then the card that names them; each file is replaced atomically and durably."""
        if passphrase is None:
            path, content = self.plain, secrets.encode()
        else:
            salt, nonce = Salt(os.urandom(Salt.SIZE)), KeystoreNonce(os.urandom(KeystoreNonce.SIZE))
            sealed = seal_keystore(secrets, passphrase(), salt=salt, nonce=nonce, cost=MODERATE)
            path, content = self.keystore, sealed.encode()
        card, files = card_of(secrets, now), veen_storage.Files()
        if not self.root.exists():
            files.make_directories(self.root)
            self.root.chmod(0o700)
        files.replace(path, content, veen_storage.SECRET_MODE)
        files.replace(self.card_file, card.encode())
        return card

    def open(self, passphrase: Callable[[], bytes]) -> Secrets:
        """Return the secrets; ``passphrase`` is called only if they are sealed."""
        if self.sealed:
            return open_keystore(read_object(Keystore, self.keystore, RESTORE), passphrase())
        self.must_exist()
        refuse_if_shared(self.plain)
        return read_object(Secrets, self.plain, RESTORE)

    def card(self) -> IdentityCard:
        """Return the card, which is public: no passphrase is needed."""
        return read_card(self.card_file)

    def unlock(self, source: Passphrase) -> Secrets:
        return self.open(lambda: source.get(str(self.root)))


def _identities_in(folder: Path) -> list[str]:
    """Return the names of the identities in a folder."""
    try:
        return [each.name for each in folder.iterdir() if Folder(each).exists]
    except OSError:
        return []


def _similar(path: Path, names: Iterable[str]) -> str | None:
    """Return the question whether a similar name in the same folder was meant, if there is one."""
    similar = get_close_matches(path.name, names, n=1)
    return f"did you mean {path.with_name(similar[0])}?" if similar else None


def read_card(path: Path) -> IdentityCard:
    """Read and verify a card."""
    if not path.exists():
        names = [*_identities_in(path.parent), *(card.name for card in path.parent.glob("*.pub"))]
        raise CommandFailed(
            f"there is no identity card {path}",
            Exit.USAGE,
            _similar(path, names) or "check the name, or see `veen keygen --help`",
        )
    card = read_object(IdentityCard, path)
    verify_card(card)
    return card


def card_named(text: str) -> IdentityCard:
    """Read the card of an identity's folder, or a card file."""
    path = Path(text).expanduser()
    return Folder(path).card() if path.is_dir() else read_card(path)


def _is_hex(text: str) -> bool:
    return len(text) == KEY_DIGITS and not Path(text).exists()


def recipient_named(text: str) -> IdentityCard | DhPublicKey:
    """Return the recipient named by an identity's folder, a card file, or an X25519 key in hex."""
    return _from_hex(DhPublicKey, text) if _is_hex(text) else card_named(text)


def verify_key_named(text: str) -> VerifyKey:
    """Return the signing key named by an identity's folder, a card file, or an Ed25519 key in hex."""
    return _from_hex(VerifyKey, text) if _is_hex(text) else card_named(text).id_sign


def _from_hex(kind: type[K], text: str) -> K:
    try:
        return kind.from_hex(text.lower())
    except DecodeError as exc:
        raise CommandFailed(
            f"{text}: {exc}", Exit.USAGE, "name an identity's folder or card instead"
        ) from None
