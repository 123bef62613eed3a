"""VEEN bytes that are no wire object: signatures, peaks, key maps, attachments, a directory's two text files.

Each is known by what it holds, where that is enough; else by its name too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from veen_cli.evidence.found import Bare
from veen_core import cbor, chunk, mmr
from veen_core.errors import DecodeError
from veen_core.hashing import HASH_SIZE, H
from veen_core.hub_identity import key_id
from veen_core.ids import HubPk, Signature
from veen_storage.commit.journal_floor import Floor
from veen_storage.errors import DamageError

SIGNED: Final = {"hub-identity.sig": ("hub-identity", "8.4"), "manifest.sig": ("export manifest", "ADR 0007")}
MOST_PEAKS: Final = 64
MOST_KEY_MAP: Final = 65_536
"""Bytes: some thousand keys."""
_FLOOR: Final = re.compile(rb"(\d{1,20}) (\d{1,20}) [0-9a-f]{8}\n")
_VERSION: Final = re.compile(rb"veen-data (\d{1,9}) ([0-9a-f]{64})\n")


def floor(where: str, data: bytes) -> Bare | None:
    """``journal/applied``. Some of them would pass for hex, too."""
    if (match := _FLOOR.fullmatch(data)) is None:
        return None
    said = Floor(int(match[1]), int(match[2]))
    if said.text.encode() != data:
        raise DamageError(where, None, "two batch numbers, and not their checksum", "run `veen hub repair`")
    held = {"every batch is applied up to": said.applied, "the newest segment begins with": said.segment}
    return Bare("journal floor", "H2", held)


def _version(_where: str, data: bytes) -> Bare | None:
    if (match := _VERSION.fullmatch(data)) is None:
        return None
    held = {"format": int(match[1]), "hash of registry.cbor": bytes.fromhex(match[2].decode())}
    return Bare("data directory's VERSION", "14.1", held)


def _signature(where: str, data: bytes) -> Bare | None:
    """Bytes like any other: only a name says that they are one."""
    name = Path(where).name
    if not name.endswith(".sig"):
        return None
    try:
        signature = Signature(data)
    except DecodeError:
        raise DamageError(
            where, None, f"no signature: has {len(data)} bytes, not {Signature.SIZE}", "restore it"
        ) from None
    of, section = SIGNED.get(name, ("Ed25519", "3.2"))
    return Bare(f"{of} signature", section, {"signature": bytes(signature)})


def _attachment(where: str, data: bytes) -> Bare | None:
    """By its name, which is its coid; nothing but the bytes themselves could be under it."""
    name = Path(where).name
    if len(name) != 2 * HASH_SIZE or name != H(data).hex():
        return None
    return Bare("attachment's ciphertext", "4.6", {"coid": H(data), "bytes": len(data)})


def _peaks(_where: str, data: bytes) -> Bare | None:
    if len(data) > 3 + MOST_PEAKS * (2 + HASH_SIZE):
        return None
    try:
        peaks = chunk.decode_peaks(data)
    except DecodeError:
        return None
    held = {"peaks, in increasing height": [bytes(peak) for peak in peaks]}
    return Bare("peaks", "4.8.3", held, {"mmr_root": mmr.root_of(peaks).hex()}) if peaks else None


def _key_map(_where: str, data: bytes) -> Bare | None:
    """A key_id follows from its hub_pk: a map in which it does is of hub keys."""
    if len(data) > MOST_KEY_MAP:
        return None
    try:
        found = cbor.decode(data)
        if not isinstance(found, dict) or not found or not all(map(_is_hub_key, found.items())):
            return None
    except DecodeError:
        return None
    return Bare("hub-key-map", "8.4", {"hub_pk by key_id": found})


def _is_hub_key(pair: tuple[object, object]) -> bool:
    key, hub_pk = pair
    return isinstance(hub_pk, bytes) and key == key_id(HubPk(hub_pk))


RECOGNIZERS: Final[tuple[Callable[[str, bytes], Bare | None], ...]] = (
    floor,
    _version,
    _signature,
    _attachment,
    _peaks,
    _key_map,
)


def bare(where: str, data: bytes) -> Bare | None:
    """What these bytes are, if they are one of these; ``where`` is their file's name."""
    return next((made for each in RECOGNIZERS if (made := each(where, data)) is not None), None)
