"""The format of an export: its manifest, and the items of its files (spec-1 §15, ADR 0007).

An export is a folder that can be verified by itself. It contains entries ``from_seq … to_seq`` of one label,
the hub's identity, the registry and a manifest, in one of two forms.

``set``, the portable set of spec-1 §15:

    receipts.cborseq      the RECEIPT of every entry
    payloads.cborseq      one item per entry: the MSG, or {"authorize": token} for a control entry (H5),
                          or {"pruned": …} for an entry whose payload retention has pruned
    checkpoints.cborseq   every CHECKPOINT from from_seq - 1 to to_seq
    *.index.cborseq       for each of the three: {offset, stream_seq} of every item (COMP0.1)

``chunks``, uncompressed files with the names of §4.8.3, cut to the range: chunk-….log (or .pruned) with its
.summary, the peaks before each chunk, and the checkpoints. Each chunk can be verified separately.

Why an export needs no other source: the signed root in the first RECEIPT commits to the peaks before it,
so these need no signature of their own, and every later root follows. ``before`` is the RECEIPT at
from_seq - 1, the last one of an export that this one continues. ``later`` links the export to a newer
checkpoint, which may be anchored. No RECEIPT commits to the registry, to ``later``, or to the completeness
of the checkpoints; the hub signs these with manifest.sig, if its key was available to the exporter.
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
"""Files copied from the data directory under the same names."""


def sequence_name(stem: str) -> str:
    """Return the file name of a CBOR sequence."""
    return f"{stem}.cborseq"


def sidecar_name(stem: str) -> str:
    """Return the file name of the index of a CBOR sequence."""
    return f"{stem}.index.cborseq"


class FileHash(FixedBytes):
    """SHA-256 of a file's content."""

    __slots__ = ()


@array("exported file", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile(Wire):
    """Name, size and hash of one file of the export."""

    name: str
    size: int
    digest: FileHash


@array("pruned range", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedRange(Wire):
    """Consecutive entries whose payloads were pruned, both ends included."""

    start_seq: StreamSeq
    end_seq: StreamSeq


@int_map("later checkpoint", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class LaterCheckpoint(Wire):
    """A checkpoint after the range, and the proof that it covers the range (B11)."""

    checkpoint: Checkpoint
    consistency: MmrConsistency


@int_map("export manifest", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(Wire):
    """The manifest, written last: a folder without it is not an export."""

    ver: Literal[1] = 1
    form: ExportForm
    hub_id: HubId
    label: Label
    from_seq: StreamSeq
    to_seq: StreamSeq
    from_ts: UnixTime
    to_ts: UnixTime
    peaks_before: tuple[NodeHash, ...]
    """Peaks of the tree of ``from_seq - 1`` entries, in increasing height."""
    peaks_after: tuple[NodeHash, ...]
    pruned: tuple[PrunedRange, ...]
    files: tuple[ExportedFile, ...]
    """All files, in the order of their names."""
    before: Receipt | None = None
    later: LaterCheckpoint | None = None


def manifest_digest(manifest: bytes) -> bytes:
    """Return the digest that the hub signs for an export; the manifest contains the hash of every file."""
    return Ht("veen/export", manifest)


@text_map("index row", section="COMP0.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow(Wire):
    """The byte at which the item of one entry begins."""

    offset: int
    stream_seq: StreamSeq


@text_map("pruned payload", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedPayload(Wire):
    """The item of an entry whose payload retention has pruned."""

    pruned: PrunedEntry


@text_map("authorize payload", section="ADR 0007")
@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizePayload(Wire):
    """The item of a control entry: the bytes of its token (H5)."""

    authorize: bytes
