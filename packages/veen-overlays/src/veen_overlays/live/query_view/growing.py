"""Growing sources: entries of a label that were verified and are not committed to the view yet (core §5.1).

Every entry is checked by the root that its receipt signs, against the MMR of the entries before it, before
its row may be written. Copies of another hub's events may arrive out of order. Such a row waits beyond the
source's size, where no query reads it, until the entries before it have arrived.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from veen_core.errors import DivergenceError, StateError
from veen_core.ids import ClientId, HubId, Label
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_overlays.live.query_view.manifest import KeyLink, Source
from veen_overlays.recorder.attribution import Attribution

MAX_WAITING: Final = 65_536
"""Most events of one source that wait for an event before them."""


@dataclass(slots=True, kw_only=True)
class GrowingSource:
    """A source with the entries that were added since the last commit."""

    stream: str
    hub_id: HubId
    label: Label
    epoch: int
    mmr: Mmr = field(default_factory=Mmr)
    last: bytes = b""
    own: int = 0
    attribution: Attribution = field(default_factory=Attribution)
    """The keys that the entries so far have linked."""
    leaves: list[bytes] = field(default_factory=list)
    """Leaf hashes since the last commit."""
    waiting: dict[int, bytes] = field(default_factory=dict)
    """Receipts beyond a gap, by their seq."""

    @property
    def size(self) -> int:
        """The number of entries without a gap."""
        return self.mmr.size

    @property
    def committed_tree_size(self) -> int:
        """The size at the last commit."""
        return self.mmr.size - len(self.leaves)

    def extended(self, receipt: Receipt, wire: bytes) -> Mmr:
        """Return the tree with the next entry; raise with both receipts if the entry does not extend it."""
        after = self.mmr.copy()
        after.add(receipt.leaf_hash)
        if (receipt.label, receipt.stream_seq, receipt.mmr_root) != (self.label, after.size, after.root):
            raise DivergenceError(
                f"entry {receipt.stream_seq} of label {self.label.hex()} does not extend the entries read "
                "before",
                held=self.last,
                shown=wire,
            )
        return after

    def add(self, after: Mmr, receipt: Receipt, wire: bytes, *, own: bool = True) -> None:
        """Add the next entry, which ``extended`` has verified."""
        self.mmr, self.last = after, wire
        self.leaves.append(bytes(receipt.leaf_hash))
        self.own += own

    def add_copy(self, receipt: Receipt, wire: bytes) -> None:
        """Add an event that a bridge brought; its place may lie beyond a gap."""
        if receipt.stream_seq > self.size + 1:
            if len(self.waiting) >= MAX_WAITING:
                raise StateError(
                    f"stream {self.stream}: {MAX_WAITING} imported events of label {self.label.hex()} wait "
                    f"for entry {self.size + 1}, which was not imported",
                    action="import the missing bundle",
                )
            self.waiting[receipt.stream_seq] = wire
            return
        self.add(self.extended(receipt, wire), receipt, wire)
        while (wire := self.waiting.get(self.size + 1, b"")) != b"":
            receipt = Receipt.decode(wire)
            self.add(self.extended(receipt, wire), receipt, wire)
            del self.waiting[self.size]

    def as_source(self) -> Source:
        """The source as the manifest names it."""
        return Source(
            stream=self.stream,
            hub_id=self.hub_id,
            label=self.label,
            epoch=self.epoch,
            size=self.mmr.size,
            mmr_root=self.mmr.root,
            peaks=self.mmr.peaks,
            last_receipt=self.last,
            links=tuple(
                KeyLink(principal_id=ClientId(principal), client_id=ClientId(client))
                for principal, client in self.attribution.pairs
            ),
            own=self.own,
        )


def resumed(source: Source) -> GrowingSource:
    """Continue a committed source."""
    return GrowingSource(
        stream=source.stream,
        hub_id=source.hub_id,
        label=source.label,
        epoch=source.epoch,
        mmr=Mmr(source.size, source.peaks),
        last=source.last_receipt,
        attribution=Attribution((link.principal_id, link.client_id) for link in source.links),
        own=source.own,
    )
