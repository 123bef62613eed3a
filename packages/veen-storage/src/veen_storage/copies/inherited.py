"""Inherited streams: the entries of a stream in the ancestors of a successor (ADR 0007, ADR 0019).

A successor's own labels start at 1. A stream that its clients or its policy depend on may be in an ancestor
only.
"""

from __future__ import annotations

from pathlib import Path

from veen_core import stream as streams
from veen_core.ids import Epoch, HubId, StreamId, UnixTime
from veen_storage.copies.fork_record import ancestors
from veen_storage.opening.observer import Source, open_source


def holder_of_stream(root: Path, stream: StreamId) -> HubId | None:
    """Return the nearest ancestor of a hub that has an entry of the stream; None if none has."""
    for record, path in ancestors(root):
        with open_source(path) as store:
            if _has_entries(store, stream, record.hub_ts):
                return record.old_hub
    return None


def _has_entries(store: Source, stream: StreamId, until: UnixTime) -> bool:
    seconds, skew = store.registry.profile.epoch_sec, store.registry.limits.max_epoch_skew_sec
    routing = streams.routing_key(store.registry.hub_id)
    epochs = range(1)
    if seconds:
        first = streams.epoch_window(store.identity.hub_keys[0].valid_from, seconds, skew)
        epochs = range(first.start, streams.epoch_window(until, seconds, skew).stop)
    return any(store.read.head(streams.label(routing, stream, Epoch(epoch))) is not None for epoch in epochs)
