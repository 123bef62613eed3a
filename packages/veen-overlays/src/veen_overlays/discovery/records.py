"""The records of discovery: descriptors, who may publish them, queries and replies (spec-5 §4, §6).

Keys are in the order of spec-5; ``expires_at`` is the last optional key of an advertisement (P16).
``disc.publishers.v1`` and ``disc.hub.identity.v1`` are additions of this project (ADR 0027): they say which
keys may publish for an id. ``record.continuity.v1`` links the client_id of a message to an identity key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from veen_core.errors import DecodeError, IdentityError, SignatureError
from veen_core.hub_identity import HubIdentity, verify_identity, verify_identity_signature
from veen_core.ids import (
    ClientId,
    FixedBytes,
    HubId,
    HubPk,
    ProfileId,
    SchemaId,
    Signature,
    StreamId,
    UnixTime,
)
from veen_core.wire import Wire, text_map
from veen_overlays.schema.record import MAX_NESTING, Record, RecordRule, nests_at_most, record

Kind = Literal["hub", "overlay", "service"]
KINDS: Final[tuple[Kind, ...]] = ("hub", "overlay", "service")


class OverlayId(FixedBytes):
    """The stable id of an overlay (spec-5 4.2)."""

    __slots__ = ()


class ServiceId(FixedBytes):
    """The stable id of a service (spec-5 4.3)."""

    __slots__ = ()


class DescribedId(FixedBytes):
    """The id of an overlay or a service."""

    __slots__ = ()


class Advertisement(Protocol):
    """The fields that all advertisements share."""

    @property
    def ttl_sec(self) -> int: ...
    @property
    def expires_at(self) -> UnixTime | None: ...


@text_map("disc.hub.advertise.v1 endpoint", section="spec-5 4.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Wire):
    """One address of a hub: a hint, never a proof."""

    kind: str
    """The transport: ``http``, ``https``, ``quic`` or ``nats``."""
    url: str


@record("disc.hub.advertise.v1", section="spec-5 4.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubAdvertise(Record):
    """Describe a hub as a possible point of attachment."""

    hub_id: HubId
    hub_pk: HubPk
    profile_id: ProfileId
    region: str
    tags: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    overlays: tuple[OverlayId, ...]
    ttl_sec: int
    version: str
    expires_at: UnixTime | None = None


@record("disc.hub.retire.v1", section="spec-5 4.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubRetire(Record):
    """Withdraw the descriptor of a hub."""

    hub_id: HubId
    reason: str | None = None


@record("disc.overlay.advertise.v1", section="spec-5 4.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayAdvertise(Record):
    """Describe an overlay that is used on the fabric, with its schemas."""

    overlay_id: OverlayId
    name: str
    version: str
    schemas: tuple[SchemaId, ...]
    docs_url: str | None = None
    tags: tuple[str, ...]
    ttl_sec: int
    expires_at: UnixTime | None = None


@record("disc.overlay.retire.v1", section="spec-5 4.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayRetire(Record):
    """Withdraw the descriptor of an overlay."""

    overlay_id: OverlayId
    reason: str | None = None


@text_map("disc.service.advertise.v1 auth_policy", section="spec-5 4.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class AuthPolicy(Wire):
    """How a client of the service is admitted."""

    mode: Literal["cap_token", "mtls", "none", "other"]
    details: Any | None = None


@text_map("disc.service.advertise.v1 operator", section="spec-5 4.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class Operator(Wire):
    """The operator of the service, in words."""

    org: str | None = None
    contact: str | None = None


_DETAILS_NEST_LITTLE = RecordRule(
    f"auth_policy.details nests at most {MAX_NESTING} deep",
    lambda each: each.auth_policy is None or nests_at_most(each.auth_policy.details, MAX_NESTING),
)


@record("disc.service.advertise.v1", section="spec-5 4.3", rules=(_DETAILS_NEST_LITTLE,))
@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAdvertise(Record):
    """Describe a service: its methods, its streams and what a client needs."""

    service_id: ServiceId
    name: str
    overlay_id: OverlayId
    methods: tuple[str, ...]
    stream_ids: tuple[StreamId, ...]
    regions: tuple[str, ...]
    required_caps: tuple[str, ...]
    auth_policy: AuthPolicy | None = None
    operator: Operator | None = None
    tags: tuple[str, ...]
    ttl_sec: int
    expires_at: UnixTime | None = None


@record("disc.service.retire.v1", section="spec-5 4.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRetire(Record):
    """Withdraw the descriptor of a service."""

    service_id: ServiceId
    reason: str | None = None


def _names_further_keys(named: Publishers) -> bool:
    return list(named.publishers) == sorted(set(named.publishers))


@record(
    "disc.publishers.v1",
    section="P16, ADR 0027",
    rules=(RecordRule("publishers are sorted and unique", _names_further_keys),),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Publishers(Record):
    """Name the further publishers of an overlay or a service; replaces the writer's earlier list."""

    kind: Literal["overlay", "service"]
    id: DescribedId
    publishers: tuple[ClientId, ...]


def _proves_its_keys(shown: HubKeys) -> bool:
    try:
        identity = HubIdentity.decode(shown.identity)
        verify_identity(identity, pinned=shown.hub_id)
        verify_identity_signature(identity, shown.sig)
    except (DecodeError, IdentityError, SignatureError):
        return False
    return True


@record(
    "disc.hub.identity.v1",
    section="core §8.4, ADR 0027",
    rules=(
        RecordRule("identity is the record of hub_id's keys; its newest key has made sig", _proves_its_keys),
    ),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class HubKeys(Record):
    """Publish the keys of a hub that has rotated its key; the record proves itself."""

    hub_id: HubId
    identity: bytes
    """The bytes of hub-identity.cbor."""
    sig: Signature
    """The content of hub-identity.sig."""


@record("disc.query.v1", section="spec-5 6.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Record):
    """Ask for the descriptors of one kind that fit a filter."""

    kind: str
    filter: Any
    limit: int | None = None
    offset: int | None = None


@text_map("disc.query.res.v1 error", section="spec-5 6.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class QueryError(Wire):
    """Why a query has no result."""

    code: str
    detail: str | None = None


@record(
    "disc.query.res.v1",
    section="spec-5 6.1",
    rules=(
        RecordRule("error is absent if and only if ok is true", lambda r: r.ok == (r.error is None)),
        RecordRule(
            "results is empty and more is false if ok is false", lambda r: r.ok or not (r.results or r.more)
        ),
    ),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult(Record):
    """Answer a query with one page of descriptors, in the order of names and ids."""

    ok: bool
    results: tuple[Any, ...]
    more: bool
    error: QueryError | None = None


ADVERTISE: Final[dict[Kind, type[HubAdvertise] | type[OverlayAdvertise] | type[ServiceAdvertise]]] = {
    "hub": HubAdvertise,
    "overlay": OverlayAdvertise,
    "service": ServiceAdvertise,
}
"""The advertisement of each kind."""
RETIRE: Final[dict[Kind, type[HubRetire] | type[OverlayRetire] | type[ServiceRetire]]] = {
    "hub": HubRetire,
    "overlay": OverlayRetire,
    "service": ServiceRetire,
}
"""The retirement of each kind."""
ID_FIELD: Final[dict[Kind, str]] = {"hub": "hub_id", "overlay": "overlay_id", "service": "service_id"}
"""The field with the id of what is described."""
Descriptor = HubAdvertise | OverlayAdvertise | ServiceAdvertise


def described(found: Record) -> tuple[Kind, bytes, bool] | None:
    """The kind and id that a record describes, and whether it retires it; None for other records."""
    for kind in KINDS:
        retires = isinstance(found, RETIRE[kind])
        if retires or isinstance(found, ADVERTISE[kind]):
            return kind, bytes(getattr(found, ID_FIELD[kind])), retires
    return None
