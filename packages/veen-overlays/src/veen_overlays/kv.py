"""A map in a stream, with put and delete; the last write of a key counts (core §11.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import LWW, StampedValue, map_of
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import KEY_VALUE
from veen_overlays.schema.record import Record, record


@record("kv.put.v1", section="11.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class Put(Record):
    """Set a key."""

    key: bytes
    value: bytes


@record("kv.delete.v1", section="11.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(Record):
    """Remove a key."""

    key: bytes


class Change(NamedTuple):
    """The change that one event makes to the map."""

    seq: int
    key: bytes
    value: bytes | None
    """The new value; None if the key was removed."""


def change_of(event: Event) -> Change:
    """The change that an event makes to the map; no event is ignored, since only stream order decides."""
    match event.record:
        case Put(key=key, value=value):
            return Change(event.seq, key, value)
        case Delete(key=key):
            return Change(event.seq, key, None)
    raise AssertionError(f"not a record of this overlay: {event.record}")


_REMOVED, _PRESENT = b"\x00", b"\x01"


def _lift(event: Event) -> Mapping[bytes, StampedValue | None]:
    change = change_of(event)
    content = _REMOVED if change.value is None else _PRESENT + change.value
    return {change.key: (event.stamp(0), content)}


def get(state: Mapping[bytes, StampedValue | None], key: bytes) -> bytes | None:
    """The value of a key, or None."""
    written = state.get(key)
    return None if written is None or written[1] == _REMOVED else written[1][1:]


def _entries(state: Mapping[bytes, StampedValue | None]) -> dict[bytes, bytes]:
    return {key: value for key in sorted(state) if (value := get(state, key)) is not None}


KV: Overlay[Mapping[bytes, StampedValue | None]] = Overlay(
    name="kv.map",
    title="A map: each key has the value that was put last in stream order (core §11.4).",
    schemas=(Put, Delete),
    monoid=map_of(LWW),
    lift=_lift,
    view=_entries,
    table=KEY_VALUE,
)

OVERLAYS = (KV,)
