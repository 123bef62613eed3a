"""The trace of one event from its source to the target zone: the six steps of K1 (products-spec-1 §5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from veen_bridge.reconcile.sides import BundleFacts, SourceLabel, SourceSide
from veen_bridge.reconcile.zones import StreamView, Zone
from veen_core.ids import BundleId, LeafHash, StreamId, StreamSeq
from veen_core.receipt import Receipt
from veen_core.stream import stream_id
from veen_core.utc import format_utc
from veen_overlays.bridge import EXPORTS, IMPORTS, ORIGINS, ImportedEvent
from veen_overlays.bridge.imports import imported_bundle
from veen_overlays.bridge.origins import event_of, origin_key, position_key
from veen_overlays.bridge.records import OFFLINE_LOG, ONLINE_LOG, origin_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One step of K1; ``found`` is None if the zone that the step needs was not given."""

    step: int
    what: str
    found: bool | None
    detail: str

    def as_json(self) -> dict[str, Any]:
        return {"step": self.step, "what": self.what, "found": self.found, "detail": self.detail}


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedEvent:
    """Which event to trace: its original msg_id, or its source label and position."""

    msg_id: LeafHash | None = None
    source: SourceLabel | None = None
    seq: int | None = None


@dataclass(slots=True, kw_only=True)
class Tracer:
    """Traces events between two zones; either may be absent."""

    source: Zone | None
    target: Zone | None
    exported: SourceSide
    import_streams: tuple[StreamId, ...]
    record_streams: tuple[str, ...] = ()
    """Streams of the target zone that may refer to imported events (K1, the optional sixth step)."""

    async def trace(self, wanted: TracedEvent) -> tuple[TraceStep, ...]:
        """The six steps of K1 for one event."""
        place = await self._imported(wanted)
        event = place[2] if place is not None else None
        receipt = origin_of(event) if event is not None else None
        source = (event.source_hub_id, event.source_label) if event is not None else wanted.source
        seq = event.source_stream_seq if event is not None else wanted.seq
        bundle = self._bundle(source, seq, event)
        bundle_id = bundle.bundle_id if bundle is not None else None
        return (
            await self._origin(source, seq, receipt),
            _in_bundle(bundle),
            await self._report(self.source, EXPORTS, ONLINE_LOG, bundle_id, 3),
            await self._report(self.target, IMPORTS, OFFLINE_LOG, event.bundle_id if event else bundle_id, 4),
            self._event_step(place),
            await self._reference(place),
        )

    def _bundle(
        self, source: SourceLabel | None, seq: int | None, event: ImportedEvent | None
    ) -> BundleFacts | None:
        """The exported bundle that brought the event; of an event that is not imported, the first with it."""
        if source is None or seq is None:
            return None
        known = self.exported.bundles
        bundles = known.values() if event is None else filter(None, [known.get(event.bundle_id)])
        return next((b for b in bundles if b.source == source and b.from_seq <= seq <= b.to_seq), None)

    async def _imported(self, wanted: TracedEvent) -> tuple[StreamId, int, ImportedEvent] | None:
        """The stream and the position of the imported event, and its record."""
        if self.target is None:
            return None
        if wanted.msg_id is not None:
            key = origin_key(wanted.msg_id)
        elif wanted.source is not None and wanted.seq is not None:
            key = position_key(*wanted.source, StreamSeq(wanted.seq))
        else:
            return None
        for stream in (*self.import_streams, stream_id(OFFLINE_LOG)):
            view: StreamView[Any] = await self.target.view(ORIGINS, stream)
            if (position := await view.first_use(key)) is None:
                continue
            if (event := event_of(await view.message(position))) is not None:
                return stream, position, event
        return None

    async def _origin(
        self, source: SourceLabel | None, seq: int | None, receipt: Receipt | None
    ) -> TraceStep:
        what = "event in the source zone"
        if source is None or seq is None:
            return TraceStep(step=1, what=what, found=False, detail="no imported event names this origin")
        place = f"entry {seq} of label {source[1].hex()} at hub {source[0].hex()}"
        if self.source is None:
            claimed = f"; its receipt is in the imported event, hub_ts {receipt.hub_ts}" if receipt else ""
            return TraceStep(step=1, what=what, found=None, detail=f"{place}{claimed}")
        last = await self.source.last_position(source[1])
        return TraceStep(step=1, what=what, found=last is not None and last >= seq, detail=place)

    async def _report(
        self, zone: Zone | None, overlay: Any, name: str, bundle: BundleId | None, step: int
    ) -> TraceStep:
        what = f"audit record in {name}"
        if zone is None:
            return TraceStep(step=step, what=what, found=None, detail="this zone was not given")
        if bundle is None:
            return TraceStep(step=step, what=what, found=False, detail="the event is in no known bundle")
        view = await zone.view(overlay, stream_id(name))
        position = await view.first_use(bytes(bundle))
        if position is not None and overlay is IMPORTS:
            record = imported_bundle((await view.summary()).inner, bundle)
            time = f", imported at {format_utc(record.import_time)}" if record is not None else ""
            return TraceStep(step=step, what=what, found=True, detail=f"message {position}{time}")
        detail = f"message {position}" if position is not None else f"no record of bundle {bundle.hex()}"
        return TraceStep(step=step, what=what, found=position is not None, detail=detail)

    def _event_step(self, place: tuple[StreamId, int, ImportedEvent] | None) -> TraceStep:
        what = "imported event in the target zone"
        if self.target is None:
            return TraceStep(step=5, what=what, found=None, detail="this zone was not given")
        if place is None:
            return TraceStep(step=5, what=what, found=False, detail="no import stream has it")
        stream, position, event = place
        detail = f"message {position} of stream {stream.hex()}, bundle {event.bundle_id.hex()}"
        return TraceStep(step=5, what=what, found=True, detail=detail)

    async def _reference(self, place: tuple[StreamId, int, ImportedEvent] | None) -> TraceStep:
        what = "event in the target zone that refers to the import (optional)"
        if self.target is None or not self.record_streams:
            return TraceStep(step=6, what=what, found=None, detail="no stream was named to look in")
        if place is None:
            return TraceStep(step=6, what=what, found=False, detail="there is no imported event")
        imported = await self._msg_id(place)
        for name in self.record_streams:
            view: StreamView[Any] = await self.target.view(ORIGINS, stream_id(name))
            async for message in view.messages():
                if message.parent_id == imported:
                    return TraceStep(step=6, what=what, found=True, detail=f"message {message.seq} of {name}")
        names = ", ".join(self.record_streams)
        return TraceStep(step=6, what=what, found=None, detail=f"no message of {names} refers to it")

    async def _msg_id(self, place: tuple[StreamId, int, ImportedEvent]) -> bytes:
        assert self.target is not None
        view: StreamView[Any] = await self.target.view(ORIGINS, place[0])
        return (await view.message(place[1])).msg_id


def _in_bundle(bundle: BundleFacts | None) -> TraceStep:
    what = "inclusion in an export bundle"
    if bundle is None:
        return TraceStep(step=2, what=what, found=False, detail="no exported bundle covers it")
    detail = f"bundle {bundle.bundle_id.hex()}, entries {bundle.from_seq} to {bundle.to_seq}"
    return TraceStep(step=2, what=what, found=True, detail=detail)
