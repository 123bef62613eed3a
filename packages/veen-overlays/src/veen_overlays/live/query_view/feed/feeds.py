"""Feeds: the logs that a view reads, and how their entries become rows (core §9, RESOLUTIONS P7, P10, P11).

For each entry, in this order: its root is checked against the source's own MMR; only then the entry is
opened; then source and row are added together. A copy of another hub's event gets a row under its origin, and
an entry that only carries a copy gets a row of kind ``CARRIED`` in its own log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veen_core.entry import Entry
from veen_core.errors import DivergenceError
from veen_core.ids import Epoch, HubId, Label
from veen_core.protocols import LogReader
from veen_core.receipt import Receipt
from veen_overlays.live.epochs import Epochs
from veen_overlays.live.query_view.feed.growing import GrowingSource
from veen_overlays.live.query_view.feed.opened_entries import CommitPlace, EntryOpener, Found, row_of
from veen_overlays.live.query_view.feed.origin_log import OriginLogReader
from veen_overlays.live.query_view.feed.waiting_events import WaitingEvent
from veen_overlays.live.query_view.files.data_files import CARRIED, ViewRow
from veen_overlays.live.query_view.view import QueryView
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.scope_sources import empty_prefix
from veen_overlays.recorder.attribution import Attribution, links


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFeed:
    """One stream of a hub that a view reads, under the name that queries use for it."""

    stream: str
    """The name in the scope of a query; for an import stream, the name of the stream at the origin."""
    hub_id: HubId
    reader: LogReader
    labels: Label | Epochs
    """The stream's only label, or its labels by epoch (core §12)."""
    opener: EntryOpener
    origin_log: OriginLogReader | None = None
    """The audit log that lists the origins of resealed events (P7); None if none are resealed."""

    @property
    def name(self) -> str:
        """The feed's name in the manifest; unique in the view."""
        return f"{self.hub_id.hex()}/{self._first_label.hex()}"

    @property
    def home(self) -> HubId:
        """The hub that a query names as the source of the stream while no entries are known.

        For an import stream this is an origin hub: the feed does not read the stream of that name at its own
        hub, so it must not say that this stream is empty.
        """
        own = empty_prefix(self.stream, self.hub_id).label
        return self.hub_id if self._first_label == own else min(self.opener.origins, default=self.hub_id)

    @property
    def _first_label(self) -> Label:
        return self.labels if isinstance(self.labels, Label) else self.labels.label_of(Epoch(0))

    def source_in(self, view: QueryView, label: Label, epoch: int) -> GrowingSource:
        """Return the source of one of the feed's labels."""
        return view.source(self.stream, self.hub_id, label, epoch)


def add_entries(view: QueryView, feed: StreamFeed, source: GrowingSource, entries: Sequence[Entry]) -> int:
    """Add consecutive verified entries; return how many were added.

    Fewer means that the next entry waits: it may be a resealed event whose origin is not listed yet.
    """
    for count, entry in enumerate(entries):
        receipt, wire = entry.receipt, entry.receipt_bytes
        after = source.extended(receipt, wire)
        found = feed.opener.open(entry)
        origin = found.origin
        if origin is None and found.parent is not None and feed.origin_log is not None:
            listed = feed.origin_log.take(found.parent)
            if listed is None and not feed.origin_log.is_complete(source.label, receipt.stream_seq):
                return count
            if listed is not None:  # the copy names the bridge's key; the listed origin names the writer's
                origin, found = listed.place, found._replace(client=listed.client)
        place = CommitPlace(source.hub_id, source.label, source.epoch, receipt, wire)
        if origin is None:
            source.add(after, receipt, wire)
            view.add(feed.stream, _attributed_row(source.attribution, place, found))
            continue
        _add_copy(view, feed.stream, origin, found)
        source.add(after, receipt, wire, own=False)
        view.add(feed.stream, row_of(place, CARRIED))
    return len(entries)


def _add_copy(view: QueryView, stream: str, origin: CommitPlace, found: Found) -> None:
    """Add the event of another hub under its origin, once."""
    source, receipt = view.source(stream, origin.hub_id, origin.label, origin.epoch), origin.receipt
    if receipt.stream_seq <= source.size or receipt.stream_seq in source.waiting:
        if view.leaf(source, receipt.stream_seq) != receipt.leaf_hash:
            raise DivergenceError(
                f"hub {origin.hub_id.hex()} signed two different entries {receipt.stream_seq} of label "
                f"{origin.label.hex()}",
                held=source.last,
                shown=origin.wire,
            )
        return
    record = found.continuity
    link = None
    if record is not None and links(record, found.client):
        link = bytes(record.principal_id), bytes(record.client_id)
    signer = None if found.client is None else bytes(found.client)
    for row in source.add_copy(WaitingEvent(row_of(origin, found.kind, found), signer, link)):
        view.add(stream, row)


def _attributed_row(attribution: Attribution, place: CommitPlace, found: Found) -> ViewRow:
    """Return the row of the next entry of a source, attributed by the entries before it (P10)."""
    if found.continuity is not None:
        attribution.add(found.continuity, found.client)
    attributed = found.event is not None and attribution.attributed(found.event, found.client)
    return row_of(place, found.kind, found, attributed=attributed)


def add_pruned(view: QueryView, feed: StreamFeed, source: GrowingSource, receipt: Receipt) -> None:
    """Add an entry whose payload retention has pruned: its verified receipt remains."""
    wire = receipt.encode()
    after = source.extended(receipt, wire)
    source.add(after, receipt, wire)
    place = CommitPlace(source.hub_id, source.label, source.epoch, receipt, wire)
    view.add(feed.stream, row_of(place, EntryKind.PRUNED))
