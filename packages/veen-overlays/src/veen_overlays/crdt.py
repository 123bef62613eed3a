"""Conflict-free replicated data types: registers, sets and counters (CRDT0, spec-1 §25)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from veen_core.ids import FixedBytes, UnixTime
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import GROW_SET, LWW, SUM, Monoid, StampedValue, int_to_item, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import KEY_VALUE, ColumnType, Table
from veen_overlays.schema.record import Record, record


class AddId(FixedBytes):
    """The id of one addition to an OR-set (CRDT0.2)."""

    __slots__ = ()


class ShardId(FixedBytes):
    """The id of one shard of a counter (CRDT0.3)."""

    __slots__ = ()


@record("crdt.lww.v1", section="CRDT0.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class LwwWrite(Record):
    """Write a register."""

    key: bytes
    ts: UnixTime
    value: bytes


@record("crdt.orset.v1", section="CRDT0.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class OrSetAdd(Record):
    """Add an element to a set; each addition has its own id."""

    id: AddId
    elem: bytes


@record("crdt.orset.v1", section="CRDT0.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class OrSetRemove(Record):
    """Remove the additions of an element that the writer has read."""

    tomb: tuple[AddId, ...]


@record("crdt.gcnt.v1", section="CRDT0.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class CounterAdd(Record):
    """Add to one shard of a counter."""

    shard: ShardId
    delta: int


def _lift_lww(event: Event) -> Mapping[bytes, StampedValue | None]:
    write = event.record
    assert isinstance(write, LwwWrite)
    return {write.key: (event.stamp(write.ts), write.value)}


def _registers(state: Mapping[bytes, StampedValue | None]) -> dict[bytes, Any]:
    """The value of each key; stamps are not part of the state."""
    return {key: written[1] for key in sorted(state) if (written := state[key]) is not None}


LWW_REGISTERS: Overlay[Mapping[bytes, StampedValue | None]] = Overlay(
    name="crdt.lww",
    title="Last-writer-wins registers: the write with the greatest (ts, stream_seq) counts (CRDT0.1).",
    schemas=(LwwWrite,),
    monoid=map_of(LWW),
    lift=_lift_lww,
    view=_registers,
    table=KEY_VALUE,
)

_OR_SET: Monoid[Mapping[str, Any]] = product(added=map_of(GROW_SET), gone=GROW_SET)


def _lift_or_set(event: Event) -> Mapping[str, Any]:
    match event.record:
        case OrSetAdd(id=add, elem=elem):
            return {"added": {elem: frozenset((bytes(add),))}}
        case OrSetRemove(tomb=tomb) if tomb:
            return {"gone": frozenset(map(bytes, tomb))}
    return {}


def _elements(state: Mapping[str, Any]) -> list[bytes]:
    """The elements with an addition that no removal of the prefix names (CRDT0.2)."""
    gone = state.get("gone", frozenset())
    return [elem for elem, adds in sorted(state.get("added", {}).items()) if adds - gone]


OR_SET: Overlay[Mapping[str, Any]] = Overlay(
    name="crdt.orset",
    title="Observed-remove set: an element is present while one of its additions is not removed (CRDT0.2).",
    schemas=(OrSetAdd, OrSetRemove),
    monoid=_OR_SET,
    lift=_lift_or_set,
    view=_elements,
    table=Table({"elem": ColumnType.BYTES}, lambda view: ((elem,) for elem in view)),
)


def live_adds(state: Mapping[str, Any], elem: bytes) -> tuple[AddId, ...]:
    """The additions of an element that are not removed: a removal of the element must name them."""
    live = state.get("added", {}).get(elem, frozenset()) - state.get("gone", frozenset())
    return tuple(map(AddId, sorted(live)))


def _lift_counter(event: Event) -> Mapping[bytes, int]:
    add = event.record
    assert isinstance(add, CounterAdd)
    return {bytes(add.shard): add.delta}


def _shards(state: Mapping[bytes, int]) -> dict[str, Any]:
    shards = {shard: int_to_item(state[shard]) for shard in sorted(state)}
    return {"total": int_to_item(sum(state.values())), "shards": shards}


G_COUNTER: Overlay[Mapping[bytes, int]] = Overlay(
    name="crdt.gcnt",
    title="Grow-only counter: the sum of all deltas, shard by shard (CRDT0.3).",
    schemas=(CounterAdd,),
    monoid=map_of(SUM),
    lift=_lift_counter,
    view=_shards,
    table=Table(
        {"shard": ColumnType.BYTES, "total": ColumnType.INTEGER}, lambda view: view["shards"].items()
    ),
)

OVERLAYS = (LWW_REGISTERS, OR_SET, G_COUNTER)
