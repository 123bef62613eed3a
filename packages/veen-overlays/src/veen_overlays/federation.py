"""Mirror records: which entry of which source log each message of the target copies (spec-3 §10).

A mirror sends one record per source entry, after it has verified the entry (F1). F2 asks for at most one
record per source entry and target label: of several ones the first in stream order counts, and the state
shows how many were repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from veen_core.hashing import Ht, u64be
from veen_core.ids import Label, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.receipt import Receipt
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import SUM, Monoid, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps
from veen_overlays.schema.record import Record, record


@record("federation.mirror.v1", section="spec-3 10.2", operation=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror(Record):
    """State that a source entry was verified, with the values of its receipt."""

    source_hub_identifier: str
    source_label: Label
    source_stream_seq: StreamSeq
    source_leaf_hash: LeafHash
    source_receipt_root: MmrRoot
    target_label: Label
    mirror_time: UnixTime | None = None
    metadata: Any | None = None

    def agrees_with(self, receipt: Receipt) -> bool:
        """Return whether the record repeats the values of the source's receipt (spec-3 10.4)."""
        return (receipt.label, receipt.stream_seq, receipt.leaf_hash, receipt.mmr_root) == (
            self.source_label,
            self.source_stream_seq,
            self.source_leaf_hash,
            self.source_receipt_root,
        )


def mirror_of(
    receipt: Receipt, *, source_hub_identifier: str, target_label: Label, mirror_time: UnixTime
) -> Mirror:
    """Return the record of a source entry with this receipt."""
    return Mirror(
        source_hub_identifier=source_hub_identifier,
        source_label=receipt.label,
        source_stream_seq=receipt.stream_seq,
        source_leaf_hash=receipt.leaf_hash,
        source_receipt_root=receipt.mmr_root,
        target_label=target_label,
        mirror_time=mirror_time,
    )


def _keys(found: Record) -> tuple[bytes, ...]:
    """The key of which only the first use counts: source entry and target label (F2)."""
    if not isinstance(found, Mirror):
        return ()
    source = found.source_hub_identifier.encode() + found.source_label + u64be(found.source_stream_seq)
    return (Ht("veen/mirror", found.target_label + source),)


_LARGEST: Final[Monoid[int]] = Monoid(0, max, lambda n: n, lambda n: n)
_PER_SOURCE: Final = product(mirrored=SUM, repeated=SUM, upto=_LARGEST)
_STATE: Final = map_of(map_of(_PER_SOURCE))
"""By source hub, then by source label."""


def _lift(event: Event) -> Mapping[str, Any]:
    found = event.record
    assert isinstance(found, Mirror)
    counted = {"repeated": 1} if any(event.repeated) else {"mirrored": 1, "upto": found.source_stream_seq}
    return {found.source_hub_identifier: {bytes(found.source_label): counted}}


def _view(state: Mapping[str, Any]) -> list[Any]:
    return [
        {
            "source_hub_identifier": hub,
            "source_label": label,
            "mirrored": source.get("mirrored", 0),
            "repeated": source.get("repeated", 0),
            "upto": source.get("upto", 0),
        }
        for hub in sorted(state)
        for label, source in sorted(state[hub].items())
    ]


MIRRORS: Overlay[Mapping[str, Any]] = Overlay(
    name="federation.mirrors",
    title="Mirrored entries by source hub and label: how many, how far, and repeated records (spec-3 §10).",
    schemas=(Mirror,),
    monoid=_STATE,
    lift=_lift,
    view=_view,
    keys=_keys,
    table=table_of_maps(
        {
            "source_hub_identifier": ColumnType.TEXT,
            "source_label": ColumnType.BYTES,
            "mirrored": ColumnType.UINT,
            "repeated": ColumnType.UINT,
            "upto": ColumnType.UINT,
        }
    ),
)

OVERLAYS = (MIRRORS,)
