"""The client's own keys: a signing key, and the keys that open messages sealed to it (KEX0.2, H11)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from veen_core.card import IdentityCard, sign_card
from veen_core.errors import DecodeError, KeystoreError
from veen_core.ids import ClientId, DhPublicKey
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.keystore import Keystore, Secrets, is_exposed, open_keystore
from veen_core.wire import Wire
from veen_hub.client.atomic_files import expand_user

W = TypeVar("W", bound=Wire)
KEYSTORE_FILE: Final = "keystore.enc"
MOUNT_SECRETS: Final = "in Kubernetes mount the Secret with defaultMode 0440 and the pod's fsGroup"
"""File of secrets sealed with a passphrase."""
SECRETS_FILE: Final = "secrets.cbor"
"""File of unsealed secrets, as `veen keygen --no-passphrase` writes it."""

Randomness = Callable[[int], bytes]
"""Returns the requested number of random bytes: ``os.urandom``, or a deterministic source in tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A client's long-term keys. ``dh_keys`` are tried in order to open a message; others seal to the first.

    ``signing_key`` signs a MSG only if a cap token names it as its subject. Otherwise the client draws a
    client_id per label and keeps it in the state store (KEX0.2).
    """

    signing_key: SigningKey
    dh_keys: tuple[DhKey, ...]

    @classmethod
    def load(cls, folder: Path | str, passphrase: str | bytes | None = None) -> Identity:
        """Load the identity that `veen keygen` wrote into ``folder``.

        ``passphrase`` opens a sealed keystore, the default of `veen keygen`; that takes about a second and
        256 MiB of memory, which is what makes guessing expensive. Raises ``KeystoreError``.
        """
        root = expand_user(folder)
        sealed, plain = root / KEYSTORE_FILE, root / SECRETS_FILE
        if sealed.exists():
            if passphrase is None:
                raise KeystoreError(f"{sealed} is sealed with a passphrase", action="pass it as passphrase=")
            given = passphrase.encode() if isinstance(passphrase, str) else passphrase
            return cls.of(open_keystore(_read(sealed, Keystore), given))
        if not plain.exists():
            create = f"create one with `veen keygen --out {shlex.quote(str(root))}`"
            raise KeystoreError(f"{root} holds no identity", action=create)
        if is_exposed(plain.stat(), os.geteuid(), (os.getegid(), *os.getgroups())):
            restrict = f"run `chmod 600 {shlex.quote(str(plain))}`; {MOUNT_SECRETS}"
            raise KeystoreError(f"other users can read the keys in {plain}", action=restrict)
        return cls.of(_read(plain, Secrets))

    @classmethod
    def of(cls, given: Identity | Secrets) -> Identity:
        """Return the identity with these keys, e.g. of an opened keystore."""
        if isinstance(given, Identity):
            return given
        return cls(signing_key=given.signing_key, dh_keys=given.dh_keys)

    @classmethod
    def generate(cls, randomness: Randomness = os.urandom) -> Identity:
        """Generate fresh keys; they are not written to disk."""
        return cls(
            signing_key=SigningKey(SigningSeed(randomness(32))), dh_keys=(DhKey(DhSecret(randomness(32))),)
        )

    @property
    def client_id(self) -> ClientId:
        """The client_id that a token for this identity names."""
        return ClientId(self.signing_key.public)

    @property
    def recipient(self) -> DhPublicKey:
        """The key that others seal to."""
        return self.dh_keys[0].public

    @property
    def card(self) -> IdentityCard:
        """The signed, public card with the keys that others need (KEX0.2)."""
        return sign_card(self.signing_key, self.recipient)


def _read(path: Path, kind: type[W]) -> W:
    try:
        return kind.decode(path.read_bytes())
    except OSError as exc:
        raise KeystoreError(f"{path} cannot be read: {exc.strerror}") from exc
    except DecodeError:  # the error's text could contain part of a secret
        raise KeystoreError(f"{path} is damaged", action="restore it from a backup") from None
