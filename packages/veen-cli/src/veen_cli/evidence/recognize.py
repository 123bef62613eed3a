"""What is in a file: every kind of VEEN bytes, told apart by its own strict codec.

A codec accepts nothing but its own object in its one canonical form, so the first that accepts is right.
Hex text stands for the bytes it spells.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_cli.exits import CommandFailed, Exit
from veen_core import api, cbor, chunk, status
from veen_core.cap import CapToken
from veen_core.card import IdentityCard
from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency
from veen_core.entry import Entry, split_frames
from veen_core.equivocation import Equivocation
from veen_core.errors import DecodeError, VeenError
from veen_core.export import AuthorizePayload, IndexRow, PrunedPayload
from veen_core.hub_identity import CheckpointBinding, HubIdentity
from veen_core.keystore import Keystore, Secrets
from veen_core.msg import Msg
from veen_core.pow import PowCookie
from veen_core.profile import Profile
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt
from veen_core.wire import Wire
from veen_hub.client.records import EpochsRecord, HeldTokens, LabelRecord
from veen_storage import compression
from veen_storage.export import Manifest
from veen_storage.fork import Fork, ForkCut
from veen_storage.hub_keys import KeyFile
from veen_storage.registry import Registry

KINDS: Final[tuple[type[Wire], ...]] = (
    Receipt,
    Checkpoint,
    Msg,
    MmrProof,
    MmrConsistency,
    CapToken,
    IdentityCard,
    HubIdentity,
    Equivocation,
    Keystore,
    Secrets,
    KeyFile,
    PowCookie,
    Manifest,
    IndexRow,
    PrunedPayload,
    AuthorizePayload,
    Fork,
    ForkCut,
    Registry,
    Profile,
    LabelRecord,
    EpochsRecord,
    HeldTokens,
    CheckpointBinding,
    chunk.ChunkSummary,
    chunk.CheckpointIndexEntry,
    chunk.PrunedEntry,
    status.Status,
    status.AuthorizeResponse,
    status.CapStatus,
    api.SubmitRequest,
    api.SubmitResponse,
    api.StreamResponse,
    api.ControlResponse,
    api.ReceiptResponse,
    api.ProofResponse,
    api.CheckpointResponse,
    api.ConsistencyResponse,
    api.ErrorEnvelope,
)
MOST: Final = 256 * 1_048_576
"""A file larger than this is no object, and no chunk either."""
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Deterministic CBOR that is none of the kinds."""

    item: object


Thing = Wire | Entry | Unknown


@dataclass(frozen=True, slots=True)
class Found:
    """One object and where it was."""

    where: str
    thing: Thing
    data: bytes

    @property
    def name(self) -> str:
        return name_of(self.thing)


def name_of(thing: Thing) -> str:
    if isinstance(thing, Wire):
        return thing.codec.name
    return "log entry" if isinstance(thing, Entry) else "CBOR of no known kind"


def read(path: str) -> bytes:
    """A file, or stdin; hex is decoded. No more is read than an object may have: a device has no end."""
    if path == "-":
        content = sys.stdin.buffer.read(MOST + 1)
    else:
        with Path(path).open("rb") as file:
            content = file.read(MOST + 1)
            if content.startswith(_ZSTD):
                content = _decompressed(file.fileno(), path)
    if len(content) > MOST:
        raise CommandFailed(f"{path}: more than {MOST} bytes are no VEEN object", Exit.PROTOCOL)
    try:
        return bytes.fromhex(content.decode("ascii")) if content.strip() else content
    except ValueError:
        return content


def _decompressed(fd: int, path: str) -> bytes:
    """A chunk that is kept compressed (§4.8.4)."""
    if (size := compression.raw_size(fd, path)) > MOST:
        raise CommandFailed(f"{path}: {size} bytes, decompressed, are no chunk", Exit.PROTOCOL)
    return compression.read_range(fd, path, 0, size)


def _one(data: bytes) -> Thing | None:
    for kind in KINDS:
        try:
            return kind.decode(data)
        except VeenError:
            continue
    try:
        return Unknown(cbor.decode(data))
    except VeenError:
        return None


def recognize(where: str, data: bytes) -> list[Found]:
    """One object, the entries of a chunk, or the items of a CBOR sequence."""
    if not data:
        raise CommandFailed(f"{where} is empty", Exit.PROTOCOL)
    if (thing := _one(data)) is not None:
        return [Found(where, thing, data)]
    try:
        entries = list(split_frames(data))
        return [Found(f"{where} entry {entry.stream_seq}", entry, entry.encode()) for entry in entries]
    except DecodeError as exc:
        not_a_chunk = exc
    try:
        return [_item(f"{where} item {n}", item) for n, item in enumerate(cbor.split_sequence(data), 1)]
    except DecodeError:
        raise CommandFailed(
            f"{where}: no VEEN bytes: neither an object, nor a sequence of them, nor a chunk ({not_a_chunk})",
            Exit.PROTOCOL,
        ) from None


def _item(where: str, data: bytes) -> Found:
    """One of a sequence; text and zeros are sequences too, of bare values, and none of ours."""
    if (thing := _one(data)) is None:
        raise CommandFailed(f"{where}: not deterministic CBOR (§3.1)", Exit.PROTOCOL)
    if isinstance(thing, Unknown) and not isinstance(thing.item, list | dict):
        raise DecodeError("want a sequence of arrays and maps", where=where)
    return Found(where, thing, data)


def recognize_all(paths: Iterable[str]) -> list[Found]:
    return [found for path in paths for found in recognize(path, read(path))]
