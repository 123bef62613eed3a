"""An origin entry: one entry of a source log, verified by the caller, and the hub that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from veen_core.entry import Entry
from veen_core.ids import HubId, Label, LeafHash, StreamSeq


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginEntry:
    """A verified entry of a source log: its signatures, its leaf and its root were checked (spec-3 F1)."""

    hub_id: HubId
    entry: Entry

    @property
    def label(self) -> Label:
        return self.entry.label

    @property
    def seq(self) -> StreamSeq:
        return self.entry.stream_seq

    @property
    def msg_id(self) -> LeafHash:
        """The original msg_id: the ``parent_id`` of every copy (P4)."""
        return self.entry.receipt.leaf_hash
