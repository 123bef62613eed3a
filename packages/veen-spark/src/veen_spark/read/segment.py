"""A segment: a range of one label's log in one file, which one task can read independently.

A segment is a whole chunk file, a byte range of a chunk file that begins and ends between frames, a
pruned chunk file, or a range of a set-form export. Segments are small and picklable: the driver sends
segments to the executors, and the executors read the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from veen_core.chunk import PrunedEntry
from veen_core.ids import HubId, Label
from veen_spark.read.field_layout import Counts, Ints

Form = Literal["chunk", "pruned", "set"]
SAMPLE_BYTES: Final = 64
"""Length of the sample that a ``Damage`` keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSegment:
    """The location of a segment, and the range that its file name or manifest states."""

    form: Form
    origin: str
    """The folder in which the segment was found. It also holds the log's checkpoints, peaks and summaries."""
    path: str
    """The chunk file; for a set-form export, its payloads file."""
    hub_id: HubId | None
    label: Label
    start_seq: int
    end_seq: int | None
    """The last entry according to the file name or manifest; None for a chunk that still grows."""
    begin: int = 0
    """The uncompressed byte offset of the first entry."""
    end: int | None = None
    """The uncompressed byte offset after the last entry; None means the end of the file."""
    receipts: str | None = None
    """The receipts file of a set-form export, and the byte range of the segment's receipts in it."""
    receipts_begin: int = 0
    receipts_end: int | None = None
    file_digests: tuple[bytes, bytes] | None = None
    """SHA-256 of the payloads and the receipts file according to the manifest. Only the first segment of a
    set-form export has them, so that exactly one task checks the files."""
    size: int = 0
    """The approximate number of bytes to read, by which work is distributed."""
    whole: bool = True
    """True if the segment covers its whole file, so that file name and summary describe the segment."""


class Pair(NamedTuple):
    """One entry that has a MSG."""

    seq: int
    offset: int
    msg: bytes
    receipt: bytes


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive entries that have a MSG, in one buffer.

    ``data[msg_at[n]:receipt_at[n]]`` is the MSG of entry n, ``data[receipt_at[n]:end[n]]`` its RECEIPT.
    """

    data: bytes
    """The buffer, with ``field_layout.PAD_BYTES`` zero bytes after the last entry."""
    seq: Counts
    """The expected stream_seq: from the frame header, or from the position in a set-form export."""
    offset: Ints
    msg_at: Ints
    receipt_at: Ints
    end: Ints

    def pairs(self) -> Iterator[Pair]:
        """Iterate over the entries."""
        data, bounds = self.data, (self.msg_at.tolist(), self.receipt_at.tolist(), self.end.tolist())
        for seq, offset, msg_at, receipt_at, end in zip(
            self.seq.tolist(), self.offset.tolist(), *bounds, strict=True
        ):
            yield Pair(seq, offset, data[msg_at:receipt_at], data[receipt_at:end])


@dataclass(frozen=True, slots=True)
class ControlEntry:
    """A control entry, which holds a cap token instead of a MSG (RESOLUTIONS H5)."""

    seq: int
    offset: int
    token: bytes
    receipt: bytes


@dataclass(frozen=True, slots=True)
class PrunedLogEntry:
    """An entry whose payload retention removed."""

    seq: int
    offset: int
    entry: PrunedEntry
    size: int = 0
    """The size of the entry's original frame; 0 if the file does not record it."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of bytes that is not a valid entry."""

    offset: int
    length: int
    reason: str
    sample: bytes
    """The first ``SAMPLE_BYTES`` of the range."""


SingleItem = Pair | ControlEntry | PrunedLogEntry | Damage
Item = Span | ControlEntry | PrunedLogEntry | Damage
Items = Iterator[Item]


def single_items(item: Item) -> Iterator[SingleItem]:
    """Expand a span into its entries; yield any other item unchanged."""
    if isinstance(item, Span):
        yield from item.pairs()
    else:
        yield item
