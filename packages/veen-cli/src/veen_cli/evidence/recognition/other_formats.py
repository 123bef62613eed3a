"""VEEN files that are not wire objects: signatures, peaks, key maps, attachments, notes, text files of a hub.

Each is recognized by its content if that is unambiguous, else by its file name too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from veen_cli.evidence.hub_log import policy_fields
from veen_cli.evidence.recognition.foreign_files import PLAIN_TEXT, describe_foreign
from veen_cli.evidence.recognition.recognized import Bare
from veen_core import cbor, chunk, mmr
from veen_core.errors import DecodeError
from veen_core.hashing import HASH_SIZE, H
from veen_core.hub_identity import key_id
from veen_core.ids import HubPk, Signature
from veen_core.tlog.note import MAX_NOTE_BYTES
from veen_core.tlog.policy import MAX_POLICY_BYTES, parse_policy
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_storage import DamageError
from veen_storage.formats import Floor

SIGNED: Final = {"hub-identity.sig": ("hub-identity", "8.4"), "manifest.sig": ("export manifest", "ADR 0007")}
MAX_PEAKS: Final = 64
MAX_KEY_MAP_BYTES: Final = 65_536
"""Room for more than a thousand keys."""
_POLICY_LINE: Final = re.compile(rb"^[ \t]*(?:quorum|witness|log)[ \t]", re.MULTILINE)
_FLOOR: Final = re.compile(rb"(\d{1,20}) (\d{1,20}) [0-9a-f]{8}\n")
_VERSION: Final = re.compile(rb"veen-data (\d{1,9}) ([0-9a-f]{64})\n")


def journal_floor(where: str, data: bytes) -> Bare | None:
    """Recognize ``journal/applied``, whose text may also look like hex."""
    if (match := _FLOOR.fullmatch(data)) is None:
        return None
    said = Floor(int(match[1]), int(match[2]))
    if said.text.encode() != data:
        raise DamageError(where, None, "two batch numbers with a wrong checksum", "run `veen hub repair`")
    held = {"every batch is applied up to": said.applied, "the newest segment begins with": said.segment}
    return Bare("journal floor", "H2", held)


def _version(_where: str, data: bytes) -> Bare | None:
    if (match := _VERSION.fullmatch(data)) is None:
        return None
    held = {"format": int(match[1]), "hash of registry.cbor": bytes.fromhex(match[2].decode())}
    return Bare("data directory's VERSION", "14.1", held)


def _signature(where: str, data: bytes) -> Bare | None:
    """Recognize a signature by its file name: its bytes have no structure."""
    name = Path(where).name
    if not name.endswith(".sig"):
        return None
    try:
        signature = Signature(data)
    except DecodeError:
        raise DamageError(
            where,
            None,
            f"a signature has {Signature.SIZE} bytes, this file has {len(data)}",
            "restore the file from a copy",
        ) from None
    of, section = SIGNED.get(name, ("Ed25519", "3.2"))
    return Bare(f"{of} signature", section, {"signature": bytes(signature)})


def _attachment(where: str, data: bytes) -> Bare | None:
    """Recognize an attachment by its file name, which is the hash of its bytes (its coid)."""
    name = Path(where).name
    if len(name) != 2 * HASH_SIZE or name != H(data).hex():
        return None
    return Bare("attachment's ciphertext", "4.6", {"coid": H(data), "bytes": len(data)})


def _peaks(_where: str, data: bytes) -> Bare | None:
    if len(data) > 3 + MAX_PEAKS * (2 + HASH_SIZE):
        return None
    try:
        peaks = chunk.decode_peaks(data)
    except DecodeError:
        return None
    held = {"peaks, in increasing height": [bytes(peak) for peak in peaks]}
    return Bare("peaks", "4.8.3", held, {"mmr_root": mmr.root_of(peaks).hex()}) if peaks else None


def _key_map(_where: str, data: bytes) -> Bare | None:
    """Recognize a map of hub keys: each key_id in it must be the hash of its hub_pk."""
    if len(data) > MAX_KEY_MAP_BYTES:
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


def _hub_checkpoint(_where: str, data: bytes) -> SignedHead | None:
    """Recognize a hub checkpoint, or the checkpoint of another C2SP log, by its text."""
    if len(data) > MAX_NOTE_BYTES or b"\n\n" not in data:
        return None
    try:
        return parse_signed_head(data)
    except DecodeError:
        return None


def policy_error(data: bytes) -> str | None:
    """Return what is wrong with a text that has lines of a witness policy; None for other files."""
    if len(data) > MAX_POLICY_BYTES or describe_foreign(data) != PLAIN_TEXT or not _POLICY_LINE.search(data):
        return None
    try:
        parse_policy(data)
    except DecodeError as exc:
        return str(exc)
    return None


def _witness_policy(_where: str, data: bytes) -> Bare | None:
    if b"quorum" not in data or len(data) > MAX_POLICY_BYTES:
        return None
    try:
        return Bare("witness policy", "C2SP tlog-policy", policy_fields(parse_policy(data)))
    except DecodeError:
        return None


RECOGNIZERS: Final[tuple[Callable[[str, bytes], Bare | SignedHead | None], ...]] = (
    journal_floor,
    _version,
    _hub_checkpoint,
    _witness_policy,
    _signature,
    _attachment,
    _peaks,
    _key_map,
)


def recognize_other(where: str, data: bytes) -> Bare | SignedHead | None:
    """Return what these bytes are, or None; ``where`` is the file name."""
    return next((made for each in RECOGNIZERS if (made := each(where, data)) is not None), None)
