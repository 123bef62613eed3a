"""A zone as files: the export of a whole hub (`veen hub export --all`), verified before it is read.

The export has every label, so a reconciliation from two exports, or from an export and bundles, needs no hub.
Exports of hubs whose labels change with epochs are refused: reconcile with such a hub itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from veen_bridge.reconcile.zones import StreamView
from veen_core import cbor
from veen_core import stream as streams
from veen_core.entry import Entry
from veen_core.errors import ConfigError, DecodeError
from veen_core.export import PAYLOADS, RECEIPTS, sequence_name
from veen_core.hub_export import LABELS
from veen_core.ids import Epoch, HubId, Label, StreamId, StreamSeq
from veen_core.keys import DhKey
from veen_core.receipt import Receipt
from veen_overlays import MemorySeenKeys, Overlay, Summary
from veen_overlays.bridge.records import OFFLINE_LOG, ONLINE_LOG
from veen_overlays.fold.event import IgnoredMessage, Message
from veen_overlays.live import open_entry

S = TypeVar("S")


@dataclass(slots=True)
class ExportView:
    """One label of an export, folded in memory."""

    overlay: Overlay[Any]
    folder: Path
    label: Label
    keys: Sequence[DhKey]
    _summary: Summary[Any] | None = None

    def _messages(self) -> Iterator[Message]:
        if not self.folder.is_dir():
            return
        receipts = cbor.split_sequence((self.folder / sequence_name(RECEIPTS)).read_bytes())
        payloads = cbor.split_sequence((self.folder / sequence_name(PAYLOADS)).read_bytes())
        for receipt_bytes, payload in zip(receipts, payloads, strict=True):
            receipt = Receipt.decode(receipt_bytes)
            entry = Entry(self.label, receipt.stream_seq, payload, receipt_bytes)
            try:
                yield open_entry(entry, receipt, self.keys, keep_wrappers=True)
            except DecodeError as exc:
                raise ConfigError(
                    f"{self.folder}: the payload of entry {receipt.stream_seq} was pruned or is no MSG",
                    action="reconcile with the hub itself, or with an older export",
                ) from exc

    async def summary(self) -> Summary[Any]:
        if self._summary is None:
            self._summary = self.overlay.fold(self._messages())
        return self._summary

    async def first_use(self, key: bytes) -> int | None:
        seen = MemorySeenKeys()
        for message in self._messages():
            event = self.overlay.distinct(message, seen)
            if (
                event is not None
                and not isinstance(event, IgnoredMessage)
                and key in self.overlay.keys_of(event)
            ):
                return message.seq
        return None

    async def message(self, position: int) -> Message:
        return next(message for message in self._messages() if message.seq == position)

    async def messages(self) -> AsyncIterator[Message]:
        for message in self._messages():
            yield message


@dataclass(slots=True)
class ExportZone:
    """A verified export of a whole hub."""

    root: Path
    hub: HubId
    keys: Sequence[DhKey]
    _views: dict[tuple[str, StreamId], ExportView] = field(default_factory=dict)

    def check(self) -> None:
        """Raise ``ConfigError`` if the export has no audit stream under a label without epochs."""
        audits = (self._label_of(streams.stream_id(name)) for name in (ONLINE_LOG, OFFLINE_LOG))
        if not any(self._label(label).is_dir() for label in audits):
            raise ConfigError(
                f"{self.root} has no label of {ONLINE_LOG} or {OFFLINE_LOG}",
                action="give the hub itself if its profile has epochs, or an export of the right hub",
            )

    def _label_of(self, stream: StreamId) -> Label:
        return streams.label(streams.routing_key(self.hub), stream, Epoch(0))

    def _label(self, label: Label) -> Path:
        return self.root / LABELS / label.hex()

    async def view(self, overlay: Overlay[S], stream: StreamId) -> StreamView[S]:
        key = overlay.name, stream
        if key not in self._views:
            label = self._label_of(stream)
            self._views[key] = ExportView(overlay, self._label(label), label, self.keys)
        return self._views[key]

    async def last_position(self, label: Label) -> int | None:
        path = self._label(label) / sequence_name(RECEIPTS)
        if not path.exists():
            return 0
        last = StreamSeq(0)
        for item in cbor.split_sequence(path.read_bytes()):
            last = Receipt.decode(item).stream_seq
        return last
