"""Resealed events: the audit log lists their origins, and their ``parent_id`` names them (P4, P7).

The audit log lists the origins of a stream in the order of its events. Both are read side by side: an event
whose parent is no listed origin has no origin, and a listed origin without an event is not counted as a run,
so that the comparison reports it as lost. Memory is bounded by ``MAX_ORIGINS_AHEAD``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from veen_bridge.reconcile.sides import SourceLabel
from veen_bridge.reconcile.zones import Zone
from veen_core.ids import LeafHash, StreamId
from veen_core.stream import stream_id
from veen_overlays.bridge import ORIGINS, Imported, ImportedEvent
from veen_overlays.bridge.origins import OriginRun, add_event, event_of
from veen_overlays.bridge.records import OFFLINE_LOG, origin_of
from veen_overlays.fold.event import Message

MAX_ORIGINS_AHEAD: Final = 65_536
"""Listed origins that are held in memory while their events are awaited."""


class Resealed:
    """The resealed events of one import stream."""

    def __init__(self, zone: Zone, stream: StreamId, records: Sequence[Imported]) -> None:
        self._zone, self._stream = zone, stream
        self._bundles = {
            record.bundle_id
            for record in records
            if record.mode == "reseal" and any(each.stream_id == stream for each in record.targets)
        }

    async def without_origin(self, runs: dict[SourceLabel, list[OriginRun]]) -> int:
        """Add the runs of events that are there; return the number of messages without an origin."""
        listed: dict[LeafHash, ImportedEvent] = {}
        origins = self._origins()
        orphans, exhausted = 0, False
        async for message in self._events():
            parent = LeafHash(message.parent_id) if message.parent_id is not None else None
            while parent not in listed and not exhausted and len(listed) < MAX_ORIGINS_AHEAD:
                event = await anext(origins, None)
                if event is None:
                    exhausted = True
                else:
                    listed[origin_of(event).leaf_hash] = event
            found = listed.pop(parent, None) if parent is not None else None
            if found is None:
                orphans += 1
                continue
            add_event(runs.setdefault((found.source_hub_id, found.source_label), []), found)
        return orphans

    async def _events(self) -> AsyncIterator[Message]:
        """The messages of the import stream that are not wrapped."""
        view = await self._zone.view(ORIGINS, self._stream)
        async for message in view.messages():
            if event_of(message) is None:
                yield message

    async def _origins(self) -> AsyncIterator[ImportedEvent]:
        """The origins that the audit log lists for bundles of this stream."""
        view = await self._zone.view(ORIGINS, stream_id(OFFLINE_LOG))
        async for message in view.messages():
            event = event_of(message)
            if event is not None and event.bundle_id in self._bundles:
                yield event
