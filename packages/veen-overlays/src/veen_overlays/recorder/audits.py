"""Migrations of recorder streams and audits of queries, in the order of the log (SDR0 3.2.2; spec-3 §9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from veen_core import cbor
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import LWW, SUM, StampedValue, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps, table_of_records
from veen_overlays.recorder.records import MigrationRecord, QueryAudit

MigrationState = Mapping[bytes, StampedValue | None]
"""Every migration by the identity of its event."""

AuditState = Mapping[bytes, Mapping[str, Any]]
"""By the CBOR of ``[requester_identity, resource_class, resource_identifier]``: count and last audit."""


def _lift_migration(event: Event) -> MigrationState:
    return {event.identity: (event.stamp(0), event.record.encode())}


def _view_migrations(state: MigrationState) -> list[Any]:
    return [cbor.decode(body) for _stamp, body in sorted(each for each in state.values() if each is not None)]


MIGRATIONS: Final[Overlay[MigrationState]] = Overlay(
    name="record.migrations",
    title="Renames, splits and merges of recorder streams, in order (SDR0 3.2.2).",
    schemas=(MigrationRecord,),
    monoid=map_of(LWW),
    lift=_lift_migration,
    view=_view_migrations,
    table=table_of_records(MigrationRecord),
)


def _lift_audit(event: Event) -> AuditState:
    record = event.record
    assert isinstance(record, QueryAudit)
    who = [bytes(record.requester_identity), record.resource_class, record.resource_identifier]
    return {cbor.encode(who): {"accesses": 1, "last": (event.stamp(0), record.encode())}}


def _view_audits(state: AuditState) -> list[Any]:
    return [_audit_row(key, state[key]) for key in sorted(state)]


def _audit_row(key: bytes, part: Mapping[str, Any]) -> dict[str, Any]:
    found: Any = cbor.decode(key)
    requester, resource_class, resource = found
    stamp, body = part["last"]
    last: Any = cbor.decode(body)
    return {
        "requester_identity": requester,
        "resource_class": resource_class,
        "resource_identifier": resource,
        "accesses": SUM.dump(part["accesses"]),
        "last_seq": stamp[1],
        "last": last,
    }


AUDITS: Final[Overlay[AuditState]] = Overlay(
    name="query.audits",
    title="Who read which resource, how often, and the last access of each (spec-3 9).",
    schemas=(QueryAudit,),
    monoid=map_of(product(accesses=SUM, last=LWW)),
    lift=_lift_audit,
    view=_view_audits,
    table=table_of_maps(
        {
            "requester_identity": ColumnType.BYTES,
            "resource_class": ColumnType.TEXT,
            "resource_identifier": ColumnType.TEXT,
            "accesses": ColumnType.INTEGER,
            "last_seq": ColumnType.UINT,
            "last": ColumnType.JSON,
        }
    ),
)
