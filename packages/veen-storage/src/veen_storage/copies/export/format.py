"""Reading the files of an export, whose items and manifest are ``veen_core.export``'s."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from veen_core import cbor
from veen_core.errors import DecodeError
from veen_core.export import (
    CHECKPOINTS,
    IDENTITY,
    MANIFEST,
    PAYLOADS,
    RECEIPTS,
    SIGNATURE,
    AuthorizePayload,
    ExportedFile,
    ExportForm,
    FileHash,
    IndexRow,
    LaterCheckpoint,
    Manifest,
    PrunedPayload,
    PrunedRange,
    manifest_digest,
    sequence_name,
    sidecar_name,
)
from veen_core.ids import StreamSeq
from veen_storage.errors import DamageError

__all__ = [
    "CHECKPOINTS",
    "IDENTITY",
    "MANIFEST",
    "PAYLOADS",
    "RECEIPTS",
    "REMEDY",
    "SIGNATURE",
    "SMALL_ITEM",
    "WINDOW",
    "AuthorizePayload",
    "ExportForm",
    "ExportedFile",
    "FileHash",
    "IndexRow",
    "LaterCheckpoint",
    "Manifest",
    "PrunedPayload",
    "PrunedRange",
    "manifest_digest",
    "note_pruned",
    "read_sequence",
    "read_small",
    "sequence_name",
    "sidecar_name",
]

WINDOW: Final = 1_048_576
SMALL_ITEM: Final = 65_536
"""Bounds a receipt, a pruned payload's marker or a checkpoint with its witnesses."""
REMEDY: Final = "ask for the export again"


def note_pruned(ranges: list[PrunedRange], seq: StreamSeq) -> None:
    """Add one more pruned entry to ranges in order."""
    if ranges and ranges[-1].end_seq == seq - 1:
        ranges[-1] = PrunedRange(start_seq=ranges[-1].start_seq, end_seq=seq)
    else:
        ranges.append(PrunedRange(start_seq=seq, end_seq=seq))


def read_sequence(path: Path, most: int) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of every item, each at most ``most`` bytes; never the whole file in memory."""
    with path.open("rb") as file:
        base, rest = 0, b""
        while (data := file.read(max(WINDOW, most))) or rest:
            window, used = rest + data, 0
            try:
                for item in cbor.split_sequence(window):
                    yield base + used, item
                    used += len(item)
            except DecodeError as exc:
                if not data or len(window) - used > most:
                    raise DamageError(path.name, base + used, f"no item: {exc.found}", REMEDY) from exc
            base, rest = base + used, window[used:]


def read_small(path: Path) -> bytes:
    """A file of one small item; whoever decodes it finds out if it was longer."""
    with path.open("rb") as file:
        return file.read(SMALL_ITEM)
