"""What an export consists of: its manifest, and the items of its files (spec-1 §15, ADR 0007).

An export is a folder that proves itself: entries ``from_seq … to_seq`` of one label, the hub's identity,
the registry, and a manifest. It comes in two forms.

``set``, the portable set of spec-1 §15:

    receipts.cborseq      every RECEIPT, pruned or not
    payloads.cborseq      one item for each: the MSG; {"authorize": token} for a control entry (H5);
                          {"pruned": …} where retention took the payload: never silently missing
    checkpoints.cborseq   every CHECKPOINT from from_seq - 1 to to_seq
    *.index.cborseq       beside each: {offset, stream_seq} of every item (COMP0.1)

``chunks``, framed files under the names of §4.8.3, uncompressed, cut to the range: chunk-….log (or
.pruned) with its .summary, the peaks before each, the checkpoints. Each chunk can be verified apart.

Why it verifies alone: the first RECEIPT's signed root commits to the peaks before it, so that these need
no signature of their own; every later root follows. ``before``, the RECEIPT at from_seq - 1, is the last
one of the export that this one continues; ``later`` ties it to a newer checkpoint, which may be anchored.
What no RECEIPT commits to (the registry, that no checkpoint was left out, ``later``) the hub vouches for by
manifest.sig, if its key was at hand when the export was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from veen_core.checkpoint import Checkpoint
from veen_core.chunk import PrunedEntry
from veen_core.consistency import MmrConsistency
from veen_core.hashing import Ht
from veen_core.ids import FixedBytes, HubId, Label, NodeHash, StreamSeq, UnixTime
from veen_core.receipt import Receipt
from veen_core.wire import Wire, array, int_map, text_map

ExportForm = Literal["set", "chunks"]

MANIFEST: Final = "manifest.cbor"
SIGNATURE: Final = "manifest.sig"
RECEIPTS: Final = "receipts"
PAYLOADS: Final = "payloads"
CHECKPOINTS: Final = "checkpoints"
IDENTITY: Final = ("hub-identity.cbor", "hub-identity.sig", "hub-key-map.cbor", "registry.cbor")
"""Copied from the data directory, under the names they have there (``layout``)."""


def sequence_name(stem: str) -> str:
    return f"{stem}.cborseq"


def sidecar_name(stem: str) -> str:
    return f"{stem}.index.cborseq"


class FileHash(FixedBytes):
    """SHA-256 of a file."""

    __slots__ = ()


@array("exported file", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile(Wire):
    """One file of the export."""

    name: str
    size: int
    digest: FileHash


@array("pruned range", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedRange(Wire):
    """Entries whose payloads are gone, both ends included."""

    start_seq: StreamSeq
    end_seq: StreamSeq


@int_map("later checkpoint", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class LaterCheckpoint(Wire):
    """A checkpoint beyond the range, and the proof that the range is a part of what it covers (B11)."""

    checkpoint: Checkpoint
    consistency: MmrConsistency


@int_map("export manifest", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(Wire):
    """The last file written: without it, the folder is no export."""

    ver: Literal[1] = 1
    form: ExportForm
    hub_id: HubId
    label: Label
    from_seq: StreamSeq
    to_seq: StreamSeq
    from_ts: UnixTime
    to_ts: UnixTime
    peaks_before: tuple[NodeHash, ...]
    """Of the tree of ``from_seq - 1`` entries, in increasing height."""
    peaks_after: tuple[NodeHash, ...]
    pruned: tuple[PrunedRange, ...]
    files: tuple[ExportedFile, ...]
    """In order of names."""
    before: Receipt | None = None
    later: LaterCheckpoint | None = None


def manifest_digest(manifest: bytes) -> bytes:
    """What the hub signs of an export: the manifest, which names every file by its hash."""
    return Ht("veen/export", manifest)


@text_map("index row", section="COMP0.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow(Wire):
    """Where an item of a sequence begins."""

    offset: int
    stream_seq: StreamSeq


@text_map("pruned payload", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedPayload(Wire):
    """Stands where a MSG would, had retention not taken it."""

    pruned: PrunedEntry


@text_map("authorize payload", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizePayload(Wire):
    """Stands where a MSG would, for a control entry: the token's own bytes (H5)."""

    authorize: bytes
