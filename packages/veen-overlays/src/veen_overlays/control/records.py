"""The records of a realm's admin streams, and the streams that carry them (spec-2 §1.3 to §7.1, P9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from veen_core.errors import DecodeError, VerificationError
from veen_core.handover import Handover, verify_handover
from veen_core.hashing import Ht
from veen_core.hub_identity import HubIdentity
from veen_core.ids import FixedBytes, HubId, Label, SchemaId, StreamId, UnixTime, VerifyKey
from veen_core.validity import active_at, until
from veen_overlays.identifiers import RealmId
from veen_overlays.schema.record import Record, RecordRule, record


class RevokedId(FixedBytes):
    """The target of a revocation: a client_id, an auth_ref or a token's hash (KEX1+ 4.3)."""

    __slots__ = ()


@record("veen.fed.authority.v1", section="FED1 2.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class Authority(Record):
    """Name the primary hub of a stream, from ``ts`` for ``ttl`` seconds."""

    realm_id: RealmId
    stream_id: StreamId
    primary_hub: HubId
    replica_hubs: tuple[HubId, ...]
    policy: Literal["single-primary", "multi-primary"]
    ts: UnixTime
    ttl: int

    def active(self, now: int) -> bool:
        """Whether ``ts <= now < ts + ttl``."""
        return active_at(UnixTime(now), self.ts, until(self.ts, self.ttl))


def _is_signed(each: HandedOver) -> bool:
    try:
        record = each.record
        verify_handover(record, HubIdentity.decode(each.identity), origin=record.signed_head.head.origin)
    except (DecodeError, VerificationError):
        return False
    return True


@record(
    "veen.fed.handover.v1",
    section="RESOLUTIONS P9, H7",
    rules=(RecordRule("handover is signed by a key of the hub that identity describes", _is_signed),),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver(Record):
    """Pass the authority of a hub to its successor, for the rest of each authority record's time."""

    realm_id: RealmId
    identity: bytes
    """The identity record of the old hub."""
    handover: bytes
    """The handover record that the old hub signed."""

    @property
    def record(self) -> Handover:
        """The decoded handover; raises ``DecodeError``."""
        return Handover.decode(self.handover)


RevocationKind = Literal["client-id", "auth-ref", "cap-token"]


@record("veen.revocation.v1", section="KEX1+ 4.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation(Record):
    """Revoke a client key, an auth_ref or a token from ``ts`` on, for ``ttl`` seconds or for ever."""

    kind: RevocationKind
    target: RevokedId
    reason: str | None = None
    ts: UnixTime
    ttl: int | None = None

    def active(self, now: int) -> bool:
        """Whether ``ts <= now``, and ``now < ts + ttl`` if there is a ``ttl``."""
        return active_at(UnixTime(now), self.ts, until(self.ts, self.ttl))


@record("veen.label.class.v1", section="LCLASS0 6.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelClass(Record):
    """Classify the traffic of a label."""

    label: Label
    class_: str
    """The wire key is ``class``."""
    sensitivity: str | None = None
    retention_hint: int | None = None


@record("veen.meta.schema.v1", section="META0+ 7.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDescriptor(Record):
    """Describe a schema id: its name, version, documentation and owner."""

    schema_id_: SchemaId
    """The schema that is described; the wire key is ``schema_id``."""
    name: str
    version: str
    doc_url: str | None = None
    owner: VerifyKey | None = None
    ts: UnixTime


def admin_stream(realm: RealmId) -> StreamId:
    """The stream of a realm's authority records (spec-2 1.3)."""
    return StreamId(Ht("veen/admin", realm))


def revocation_stream(realm: RealmId) -> StreamId:
    """The stream of a realm's revocations (spec-2 1.3)."""
    return StreamId(Ht("veen/revocation", realm))


def label_class_stream(realm: RealmId) -> StreamId:
    """The stream of a realm's label classes (spec-2 1.3)."""
    return StreamId(Ht("veen/label-class", realm))


def schema_stream(realm: RealmId) -> StreamId:
    """The stream of a realm's schema registry (spec-2 1.3)."""
    return StreamId(Ht("veen/meta-schema", realm))


ADMIN_STREAMS: Final = (admin_stream, revocation_stream, label_class_stream, schema_stream)
"""The admin streams of a realm, each as a function of its id."""
