"""The key of a witness: on one line, ``PRIVATE+KEY+<name>+<key id>+<base64 of the type and the seed>``.

The form is that of the Go module golang.org/x/mod/sumdb/note, with the type and key id of cosignatures.
"""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_core.errors import ConfigError
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog.note import COSIGNATURE, NoteKey

_PREFIX: Final = "PRIVATE+KEY+"


@dataclass(frozen=True, slots=True)
class WitnessKey:
    """The secret key of a witness, and its name."""

    signing: SigningKey
    verifier: NoteKey

    @staticmethod
    def of(name: str, seed: SigningSeed) -> WitnessKey:
        signing = SigningKey(seed)
        return WitnessKey(signing, NoteKey(name, COSIGNATURE, signing.public))

    @property
    def secret_line(self) -> str:
        secret = base64.b64encode(bytes([COSIGNATURE]) + bytes(self.signing.seed)).decode()
        return f"{_PREFIX}{self.verifier.name}+{self.verifier.key_id.hex()}+{secret}\n"


def parse_secret_line(line: str, path: Path) -> WitnessKey:
    """Parse the line of a key file; ``path`` is named in the error."""
    damaged = ConfigError(f"{path} is not a witness's key", action="restore the file from a copy")
    name, _, rest = line.rstrip("\n").removeprefix(_PREFIX).partition("+")
    key_id, _, encoded = rest.partition("+")
    try:
        secret = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise damaged from None
    if not line.startswith(_PREFIX) or len(secret) != 1 + SigningSeed.SIZE or secret[0] != COSIGNATURE:
        raise damaged
    key = WitnessKey.of(name, SigningSeed(secret[1:]))
    if key.verifier.key_id.hex() != key_id:
        raise damaged
    return key


def new_seed() -> SigningSeed:
    return SigningSeed(os.urandom(SigningSeed.SIZE))
