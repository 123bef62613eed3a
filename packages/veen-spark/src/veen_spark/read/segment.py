"""A segment: a stretch of one label's log in one place, which a task can read apart from all others.

It is a whole chunk file, a byte range of one that begins and ends at frames, what retention left of one, or
a range of a portable set. Segments are small and picklable: they travel to executors, the bytes do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from veen_core.chunk import PrunedEntry
from veen_core.ids import HubId, Label
from veen_spark.read.field_layout import Counts, Ints

Form = Literal["chunk", "pruned", "set"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Where it lies and what its name or manifest promises."""

    form: Form
    origin: str
    """The folder that it was found in: what lies beside it there is evidence too."""
    path: str
    """Of the file; of a set, of its payloads."""
    hub_id: HubId | None
    label: Label
    start_seq: int
    end_seq: int | None
    """The last entry, if anything says which; a chunk that still grows has none."""
    begin: int = 0
    """The byte at which the first entry begins, uncompressed."""
    end: int | None = None
    """The byte after the last entry; None: where the file ends."""
    receipts: str | None = None
    """Of a set: its receipts, and the range of them."""
    receipts_begin: int = 0
    receipts_end: int | None = None
    size: int = 0
    """About how many bytes there are to read, to deal out work by."""
    whole: bool = True
    """Whether this is all that its file holds, so that name and summary speak of it."""


class Pair(NamedTuple):
    """One entry with a MSG."""

    seq: int
    offset: int
    msg: bytes
    receipt: bytes


@dataclass(frozen=True, slots=True)
class Span:
    """Whole entries with a MSG, in order in memory: ``data[msg_at:receipt_at]`` and on to ``end``."""

    data: bytes
    """With ``layout.PAD`` bytes behind the last entry."""
    seq: Counts
    """The stream_seq that its place promises: of its frame's header, or its place in a set."""
    offset: Ints
    msg_at: Ints
    receipt_at: Ints
    end: Ints

    def pairs(self) -> Iterator[Pair]:
        """One at a time."""
        data, places = self.data, (self.msg_at.tolist(), self.receipt_at.tolist(), self.end.tolist())
        for seq, offset, msg_at, receipt_at, end in zip(
            self.seq.tolist(), self.offset.tolist(), *places, strict=True
        ):
            yield Pair(seq, offset, data[msg_at:receipt_at], data[receipt_at:end])


@dataclass(frozen=True, slots=True)
class Authorize:
    """A control entry: a cap token where a MSG would stand (H5)."""

    seq: int
    offset: int
    token: bytes
    receipt: bytes


@dataclass(frozen=True, slots=True)
class Pruned:
    """What retention left of an entry."""

    seq: int
    offset: int
    entry: PrunedEntry
    size: int = 0
    """Of the frame it had, as far as the file tells."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no entry."""

    offset: int
    length: int
    reason: str
    sample: bytes
    """The first of them."""


One = Pair | Authorize | Pruned | Damage
Item = Span | Authorize | Pruned | Damage
Items = Iterator[Item]
SAMPLE = 64


def singly(item: Item) -> Iterator[One]:
    """A span as its pairs; anything else as it is."""
    if isinstance(item, Span):
        yield from item.pairs()
    else:
        yield item
