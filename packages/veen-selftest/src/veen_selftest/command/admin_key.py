"""Reading the admin's key: from a folder of ``veen keygen``, a keystore, or a file with the bare key."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from veen_cli.frame import CommandFailed, Exit, Passphrase
from veen_core.errors import KeystoreError, VeenError
from veen_core.keys import SigningKey, SigningSeed
from veen_core.keystore import Keystore, Secrets, open_keystore

SEALED, PLAIN = "keystore.enc", "secrets.cbor"


def read_key(path: Path, passphrase_file: Path | None = None) -> SigningKey:
    """Return the key that signs tokens and admin requests; asks for a passphrase if it is sealed."""
    path = _in_folder(path) if path.is_dir() else path
    content = path.read_bytes()
    with contextlib.suppress(VeenError):
        return Secrets.decode(content).signing_key
    with contextlib.suppress(VeenError, ValueError):
        seed = content if len(content) == SigningSeed.SIZE else bytes.fromhex(content.decode("ascii"))
        return SigningKey(SigningSeed(seed))
    try:
        sealed = Keystore.decode(content)
    except VeenError:
        raise click.BadParameter(
            f"{path} holds no key: name a folder of `veen keygen`, or a file of 32 bytes, raw or in hex",
            param_hint="'--admin-key'",
        ) from None
    try:
        return open_keystore(sealed, Passphrase(passphrase_file).get(str(path))).signing_key
    except KeystoreError as exc:
        raise CommandFailed(
            f"--admin-key {path}: {exc.message}", Exit.USAGE, "check VEEN_PASSPHRASE or --passphrase-file"
        ) from None


def _in_folder(folder: Path) -> Path:
    for name in (SEALED, PLAIN):
        if (folder / name).exists():
            return folder / name
    raise click.BadParameter(
        f"{folder} holds no identity: name a folder of `veen keygen`", param_hint="'--admin-key'"
    )
