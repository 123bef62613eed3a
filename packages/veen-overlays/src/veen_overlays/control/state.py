"""One overlay per admin stream, so that a record counts only on the stream it belongs on (spec-2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from veen_core import cbor
from veen_core.handover import Handover
from veen_core.ids import HubId, Label, SchemaId, StreamId
from veen_overlays.control.records import (
    Authority,
    HandedOver,
    LabelClass,
    Revocation,
    RevocationKind,
    SchemaDescriptor,
)
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import GROW_SET, LWW, StampedValue, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import table_of_records
from veen_overlays.identifiers import RealmId

Records = Mapping[bytes, frozenset[bytes]]
"""All records of a key, encoded. The time that a caller asks about decides which one is in force."""
Registers = Mapping[bytes, StampedValue | None]
"""The latest record of a key, encoded."""


_AUTHORITY_TABLE: Final = table_of_records(Authority)


def _all(state: Records) -> list[Any]:
    return [cbor.decode(body) for key in sorted(state) for body in sorted(state[key])]


Authorities = Mapping[str, Records]
"""``records``: the authority records of each stream. ``handovers``: what each hub signed, verified."""


def _lift_authority(event: Event) -> Authorities:
    match event.record:
        case Authority() as record:
            return {"records": {record.realm_id + record.stream_id: frozenset((record.encode(),))}}
        case HandedOver() as handed:
            hub = handed.realm_id + handed.record.old_hub
            return {"handovers": {hub: frozenset((handed.handover,))}}
    raise AssertionError(event.record)


def _authorities(state: Authorities) -> dict[str, Any]:
    handovers = state.get("handovers", {})
    signed = [Handover.decode(body) for hub in sorted(handovers) for body in sorted(handovers[hub])]
    shown = [
        {"old_hub": each.old_hub, "new_hub": each.new_hub, "hub_ts": each.hub_ts, "url": each.url}
        for each in signed
    ]
    return {"records": _all(state.get("records", {})), "handovers": shown}


AUTHORITIES: Final[Overlay[Authorities]] = Overlay(
    name="fed.authority",
    title="The primary hub of each stream of a realm, and the hubs that have handed over (FED1, P9).",
    schemas=(Authority, HandedOver),
    monoid=product(records=map_of(GROW_SET), handovers=map_of(GROW_SET)),
    lift=_lift_authority,
    view=_authorities,
    table=replace(_AUTHORITY_TABLE, rows=lambda view: _AUTHORITY_TABLE.rows(view["records"])),
)

MAX_HANDOVERS: Final = 64
"""Successors of one hub that are followed, so that handovers in a circle end."""


def authority_at(state: Authorities, realm: RealmId, stream: StreamId, now: int) -> Authority | None:
    """The authority record in force at ``now``, or None (FED1 2.2, RESOLUTIONS H7, P9).

    Of several active records the one with the earliest ``ts`` wins, then the one with the lowest primary_hub.
    A record is a lease that only its holder can end. After a handover the primary's successor holds the lease
    for the rest of its time.
    """
    records = (Authority.decode(body) for body in state.get("records", {}).get(realm + stream, ()))
    active = [record for record in records if record.active(now)]
    found = min(active, key=_precedence, default=None)
    return None if found is None else replace(found, primary_hub=_successor(state, found, now))


def _precedence(record: Authority) -> tuple[int, HubId, bytes]:
    return record.ts, record.primary_hub, record.encode()


def _successor(state: Authorities, record: Authority, now: int) -> HubId:
    """The hub that holds the lease of a record at ``now``."""
    holder = record.primary_hub
    for _ in range(MAX_HANDOVERS):
        handed = [each for each in handovers_of(state, record.realm_id, holder) if each.hub_ts <= now]
        if not handed:
            break
        holder = min((each.hub_ts, each.new_hub) for each in handed)[1]
    return holder


def handovers_of(state: Authorities, realm: RealmId, hub: HubId) -> Iterator[Handover]:
    """The handovers that a hub has signed, as its realm's admin stream shows them; more than one is fraud."""
    return map(Handover.decode, state.get("handovers", {}).get(realm + hub, ()))


def _lift_revocation(event: Event) -> Records:
    record = event.record
    assert isinstance(record, Revocation)
    return {_revocation_key(record.kind, record.target): frozenset((record.encode(),))}


def _revocation_key(kind: RevocationKind, target: bytes) -> bytes:
    return kind.encode() + b"/" + target


REVOCATIONS: Final[Overlay[Records]] = Overlay(
    name="revocation",
    title="Revoked client keys, auth_refs and tokens, each with its period (KEX1+).",
    schemas=(Revocation,),
    monoid=map_of(GROW_SET),
    lift=_lift_revocation,
    view=_all,
    table=table_of_records(Revocation),
)


def revocation_at(state: Records, kind: RevocationKind, target: bytes, now: int) -> Revocation | None:
    """The earliest revocation of the target in force at ``now``, or None (KEX1+ 4.3)."""
    records = (Revocation.decode(body) for body in state.get(_revocation_key(kind, target), ()))
    active = [record for record in records if record.active(now)]
    return min(active, key=lambda record: (record.ts, record.encode()), default=None)


def _registers(state: Registers) -> list[Any]:
    return [cbor.decode(written[1]) for key in sorted(state) if (written := state[key]) is not None]


def _lift_class(event: Event) -> Registers:
    record = event.record
    assert isinstance(record, LabelClass)
    return {bytes(record.label): (event.stamp(0), record.encode())}


LABEL_CLASSES: Final[Overlay[Registers]] = Overlay(
    name="label.class",
    title="The class of each label: the last record in stream order (LCLASS0).",
    schemas=(LabelClass,),
    monoid=map_of(LWW),
    lift=_lift_class,
    view=_registers,
    table=table_of_records(LabelClass),
)


def class_of(state: Registers, label: Label) -> LabelClass | None:
    """The class record of a label, or None (LCLASS0 6.1)."""
    written = state.get(bytes(label))
    return None if written is None else LabelClass.decode(written[1])


def _lift_schema(event: Event) -> Registers:
    record = event.record
    assert isinstance(record, SchemaDescriptor)
    return {bytes(record.schema_id_): (event.stamp(record.ts), record.encode())}


SCHEMAS: Final[Overlay[Registers]] = Overlay(
    name="meta.schema",
    title="The meaning of each schema id: the latest registration (META0+).",
    schemas=(SchemaDescriptor,),
    monoid=map_of(LWW),
    lift=_lift_schema,
    view=_registers,
    table=table_of_records(SchemaDescriptor),
)


def schema_of(state: Registers, schema: SchemaId) -> SchemaDescriptor | None:
    """The latest registration of a schema, or None (META0+ 7.1)."""
    written = state.get(bytes(schema))
    return None if written is None else SchemaDescriptor.decode(written[1])
