"""The admin's key, from wherever ``veen keygen`` put it: a folder, a keystore, or bare bytes."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path
from typing import Final

import click

from veen_core.errors import KeystoreError, VeenError
from veen_core.keys import SigningKey, SigningSeed
from veen_core.keystore import Keystore, Secrets, open_keystore

SEALED, PLAIN = "keystore.enc", "secrets.cbor"
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_key(path: Path, passphrase_file: Path | None = None) -> SigningKey:
    """The key to sign tokens and orders with; a passphrase is asked for only if the keys are sealed."""
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
            f"{path} holds no key: want an identity's folder (veen keygen), or 32 bytes, raw or in hex",
            param_hint="'--admin-key'",
        ) from None
    try:
        return open_keystore(sealed, passphrase(path, passphrase_file)).signing_key
    except KeystoreError as exc:
        raise click.BadParameter(
            f"{exc}: check VEEN_PASSPHRASE or --passphrase-file", param_hint="'--admin-key'"
        ) from None


def _in_folder(folder: Path) -> Path:
    for name in (SEALED, PLAIN):
        if (folder / name).exists():
            return folder / name
    raise click.BadParameter(
        f"{folder} holds no identity: want the folder that veen keygen made", param_hint="'--admin-key'"
    )


def passphrase(what: Path, file: Path | None) -> bytes:
    """From a file that nobody else reads, the environment or a terminal, in that order."""
    if file is not None:
        mode = file.stat().st_mode
        if stat.S_ISREG(mode) and mode & OTHERS:
            raise click.UsageError(f"{file} can be read by others: `chmod 600 {file}` first.")
        return file.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    if (value := os.environ.get("VEEN_PASSPHRASE")) is not None:
        return value.encode()
    if not sys.stdin.isatty():
        raise click.UsageError(f"{what} needs a passphrase: set VEEN_PASSPHRASE, or give --passphrase-file.")
    return str(click.prompt(f"Passphrase for {what}", hide_input=True, err=True)).encode()
