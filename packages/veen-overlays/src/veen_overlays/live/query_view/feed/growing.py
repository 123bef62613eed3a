"""Growing sources: entries of a label that were verified and are not committed to the view yet (core §5.1).

Every entry is checked by the root that its receipt signs, against the MMR of the entries before it, before
its row may be written. Copies of another hub's events may arrive out of order. Such an event waits, without a
row, until the entries before it have arrived (``waiting_events``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from veen_core.errors import DivergenceError, StateError
from veen_core.ids import ClientId, HubId, Label
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_overlays.live.query_view.feed.waiting_events import WaitingEvent
from veen_overlays.live.query_view.files.data_files import ViewRow
from veen_overlays.live.query_view.files.manifest import KeyLink, ViewSource
from veen_overlays.recorder.attribution import Attribution

MAX_WAITING_EVENTS: Final = 65_536
"""Most events of one source that wait for an event before them."""
MAX_WAITING_BYTES: Final = 64 << 20
"""Most bytes of these events, which are in memory."""


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
    waiting: dict[int, WaitingEvent] = field(default_factory=dict)
    """Events beyond a gap, by their seq."""
    waiting_bytes: int = 0
    waiting_changed: bool = False
    """Whether ``waiting`` differs from the last commit."""

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

    def add_copy(self, event: WaitingEvent) -> list[ViewRow]:
        """Add an event that a bridge brought; return the rows of all events that have no gap before them."""
        if event.row.seq > self.size + 1:
            self.wait(event)
            return []
        rows = [self._placed(event)]
        while (following := self.waiting.get(self.size + 1)) is not None:
            rows.append(self._placed(following))
            del self.waiting[self.size]
            self.waiting_bytes -= following.size
            self.waiting_changed = True
        return rows

    def wait(self, event: WaitingEvent) -> None:
        """Hold an event beyond a gap."""
        size = self.waiting_bytes + event.size
        if len(self.waiting) >= MAX_WAITING_EVENTS or size > MAX_WAITING_BYTES:
            raise StateError(
                f"stream {self.stream}: {len(self.waiting)} imported events of label {self.label.hex()} wait "
                f"for entry {self.size + 1}, which was not imported",
                action="import the missing bundle",
            )
        self.waiting[event.row.seq] = event
        self.waiting_bytes, self.waiting_changed = size, True

    def _placed(self, event: WaitingEvent) -> ViewRow:
        receipt, wire = Receipt.decode(event.row.receipt), event.row.receipt
        self.add(self.extended(receipt, wire), receipt, wire)
        return event.row_after(self.attribution)

    def as_source(self) -> ViewSource:
        """The source as the manifest names it."""
        return ViewSource(
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


def resumed(source: ViewSource) -> GrowingSource:
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
