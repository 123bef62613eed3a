"""The folder of an identity: its keys, its card, and what it remembers of hubs (KEX0.2, spec-1 §15).

keystore.enc        the secrets, sealed with a passphrase; or
secrets.cbor        the secrets as they are, if --no-passphrase was said (0600)
identity_card.pub   signed and public: give it to whoever is to write to you
state/              client_ids, tokens and verified prefixes per hub; secret, 0600
hubs/               hubs believed on first use, by address
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Final, TypeVar

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
from veen_storage import SECRET, Files

RESTORE: Final = "restore it from a backup: keys cannot be made again"
HEX: Final = 64
K = TypeVar("K", DhPublicKey, VerifyKey)


def new_secrets(now: UnixTime) -> Secrets:
    return Secrets(id_sign=SigningSeed(os.urandom(32)), id_dh=DhSecret(os.urandom(32)), created_at=now)


def card_of(secrets: Secrets, now: UnixTime) -> IdentityCard:
    """Signed now; prekeys that have expired are not published any more."""
    key = secrets.signing_key
    alive = (
        sign_prekey(key, DhKey(prekey.secret).public, prekey.expires_at)
        for prekey in secrets.prekeys
        if prekey.expires_at > now
    )
    return sign_card(key, DhKey(secrets.id_dh).public, alive)


def with_prekey(secrets: Secrets, expires_at: UnixTime) -> Secrets:
    """One more receiving key; older ones stay, to open what was sealed to them."""
    fresh = PrekeySecret(secret=DhSecret(os.urandom(32)), expires_at=expires_at)
    return Secrets(
        id_sign=secrets.id_sign,
        id_dh=secrets.id_dh,
        created_at=secrets.created_at,
        prekeys=(*secrets.prekeys, fresh),
    )


@dataclass(frozen=True, slots=True)
class Folder:
    """One identity on disk."""

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
        """Where the hub at this address was pinned on first use."""
        return self.root / "hubs" / f"{sha256(url.rstrip('/').encode()).hexdigest()[:32]}.cbor"

    @property
    def sealed(self) -> bool:
        return self.keystore.exists()

    @property
    def exists(self) -> bool:
        return self.sealed or self.plain.exists()

    def must_exist(self) -> None:
        if not self.exists:
            raise CommandFailed(
                f"{self.root} holds no identity: make one with `veen keygen --out {quote(str(self.root))}`",
                Exit.USAGE,
            )

    def create(self, secrets: Secrets, passphrase: Callable[[], bytes] | None, now: UnixTime) -> IdentityCard:
        """Write a new identity; keys that are there are never overwritten."""
        if self.exists:
            raise CommandFailed(
                f"{self.root} holds keys already: choose another folder, they cannot be made again",
                Exit.POLICY,
            )
        return self.write(secrets, passphrase, now)

    def write(self, secrets: Secrets, passphrase: Callable[[], bytes] | None, now: UnixTime) -> IdentityCard:
        """Keys first, then the card that speaks of them; each is replaced whole, and durable."""
        if passphrase is None:
            path, content = self.plain, secrets.encode()
        else:
            salt, nonce = Salt(os.urandom(Salt.SIZE)), KeystoreNonce(os.urandom(KeystoreNonce.SIZE))
            sealed = seal_keystore(secrets, passphrase(), salt=salt, nonce=nonce, cost=MODERATE)
            path, content = self.keystore, sealed.encode()
        card, files = card_of(secrets, now), Files()
        if not self.root.exists():
            files.make_directories(self.root)
            self.root.chmod(0o700)
        files.replace(path, content, SECRET)
        files.replace(self.card_file, card.encode())
        return card

    def open(self, passphrase: Callable[[], bytes]) -> Secrets:
        """The secrets; ``passphrase`` is called only if they are sealed."""
        if self.sealed:
            return open_keystore(read_object(Keystore, self.keystore, RESTORE), passphrase())
        self.must_exist()
        refuse_if_shared(self.plain)
        return read_object(Secrets, self.plain, RESTORE)

    def card(self) -> IdentityCard:
        """Public; needs no passphrase."""
        return read_card(self.card_file)

    def unlock(self, source: Passphrase) -> Secrets:
        return self.open(lambda: source.get(str(self.root)))


def read_card(path: Path) -> IdentityCard:
    """A card that verifies."""
    if not path.exists():
        raise CommandFailed(f"{path}: there is no such identity; see `veen keygen --help`", Exit.USAGE)
    card = read_object(IdentityCard, path)
    verify_card(card)
    return card


def card_named(text: str) -> IdentityCard:
    """An identity's folder, or a card."""
    path = Path(text).expanduser()
    return Folder(path).card() if path.is_dir() else read_card(path)


def _is_hex(text: str) -> bool:
    return len(text) == HEX and not Path(text).exists()


def recipient_named(text: str) -> IdentityCard | DhPublicKey:
    """Whom to seal to: an identity's folder, a card, or an X25519 key in hex."""
    return _from_hex(DhPublicKey, text) if _is_hex(text) else card_named(text)


def verify_key_named(text: str) -> VerifyKey:
    """Whose signature counts: an identity's folder, a card, or an Ed25519 key in hex."""
    return _from_hex(VerifyKey, text) if _is_hex(text) else card_named(text).id_sign


def _from_hex(kind: type[K], text: str) -> K:
    try:
        return kind.from_hex(text.lower())
    except DecodeError as exc:
        raise CommandFailed(f"{text}: {exc}; or name an identity's folder or card", Exit.USAGE) from None
