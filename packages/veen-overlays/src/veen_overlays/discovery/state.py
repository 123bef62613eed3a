"""The fold of discovery streams: who published what about which id (spec-5 5.2, RESOLUTIONS P16).

A summary keeps, for each id and each key that signed messages about it, the last record and the position of
the first advertisement. It does not decide which of them counts: that depends on links between keys, which
may be in another part of the log. ``publishers`` decides it on the state of a prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from veen_core import cbor
from veen_core.hashing import U64_MAX, H
from veen_overlays.discovery.publishers import Claims, SignerRecords, resolve
from veen_overlays.discovery.records import (
    ADVERTISE,
    KINDS,
    RETIRE,
    Descriptor,
    HubKeys,
    Kind,
    Publishers,
    Query,
    QueryResult,
    described,
)
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import FIRST_WRITER, GROW_SET, LWW, Monoid, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps
from veen_overlays.recorder.attribution import links
from veen_overlays.recorder.records import KeyContinuity

MAX_DESCRIPTOR_BYTES: Final = 65_536
"""Longest body of a descriptor that counts: a page of results must fit into one message."""

DiscoveryState = Mapping[str, Any]
"""``hub``, ``overlay``, ``service``: the claims of each id by signing key. ``named``: the last
``disc.publishers.v1`` of each kind, id and key. ``keys``: the identity records of each hub. ``links``: the
identity keys that each client_id is linked to."""


def _joined(a: SignerRecords, b: SignerRecords) -> SignerRecords:
    """Join two claims, ``a`` before ``b``: keep the last record and the first advertisement."""
    if not b.records:
        return a
    return b._replace(first=b.first if a.first is None else a.first, records=a.records + b.records)


_CLAIM: Final[Monoid[SignerRecords]] = Monoid(SignerRecords(), _joined, list, SignerRecords._make)
_CLAIMS: Final = map_of(map_of(_CLAIM))
_STATE: Final[Monoid[DiscoveryState]] = product(
    **dict.fromkeys(KINDS, _CLAIMS),
    named=map_of(map_of(LWW)),
    keys=map_of(map_of(FIRST_WRITER)),
    links=map_of(GROW_SET),
)


def named_key(kind: Kind, id_: bytes) -> bytes:
    """The key of an overlay or a service in the part ``named``."""
    return kind.encode() + b"/" + id_


def _lift(event: Event) -> DiscoveryState:
    record, signer = event.record, event.client_id or b""
    match record:
        case KeyContinuity():
            if not links(record, event.client_id):
                return {}
            return {"links": {signer: frozenset((bytes(record.principal_id),))}}
        case Publishers():
            return {"named": {named_key(record.kind, record.id): {signer: (event.stamp(0), record.encode())}}}
        case HubKeys(hub_id=hub):
            body = record.encode()
            return {"keys": {bytes(hub): {H(body): (event.stamp(0), body)}}}
    found = described(record)
    assert found is not None, record
    kind, id_, retires = found
    body, first = record.encode(), None if retires else event.seq
    if len(body) > MAX_DESCRIPTOR_BYTES:
        body = b""
    claim = SignerRecords(first, 1, event.seq, event.hub_ts, retires, body)
    return {kind: {id_: {signer: claim}}}


class Listed(NamedTuple):
    """The record in force of one id, or the records of one key that may not speak for the id."""

    kind: Kind
    id: bytes
    publisher: bytes
    """The key that signed the message."""
    status: str
    """``advertised``, ``retired`` or ``rejected``."""
    why: str
    """Why the records were rejected; empty for others."""
    stream_seq: int
    expires_at: int
    records: int
    """The number of records of this key about the id; of a rejected key, none of them counts."""
    body: bytes
    descriptor: Descriptor | None = None
    """The decoded advertisement; not kept in an index, where it would take more memory than the body."""


def claims_of(state: DiscoveryState, kind: Kind, id_: bytes) -> Claims:
    """Everything that the fold knows about one id."""
    return Claims(
        kind=kind,
        id=id_,
        claims=state.get(kind, {}).get(id_, {}),
        named=state.get("named", {}).get(named_key(kind, id_), {}),
        keys=state.get("keys", {}).get(id_, {}),
        links=state.get("links", {}),
    )


def listed_of(state: DiscoveryState, kind: Kind, id_: bytes) -> Iterator[Listed]:
    """The record in force of an id, if there is one; then its rejected publishers, in the order of keys."""
    known = claims_of(state, kind, id_)
    verdict = resolve(known)
    if verdict.in_force is not None:
        records = sum(each.records for key, each in known.claims.items() if key not in verdict.rejected)
        yield _listed(known, verdict.in_force)._replace(records=records)
    for signer in sorted(verdict.rejected):
        yield _listed(known, signer)._replace(status="rejected", why=verdict.rejected[signer])


def _listed(known: Claims, signer: bytes) -> Listed:
    claim = known.claims[signer]
    found = None if claim.retires or not claim.body else ADVERTISE[known.kind].decode(claim.body)
    status = "retired" if claim.retires else "advertised"
    expires = 0 if found is None else expiry(found, claim.hub_ts)
    row = Listed(known.kind, known.id, signer, status, "", claim.seq, expires, claim.records, claim.body)
    return row._replace(descriptor=found)


def expiry(found: Descriptor, hub_ts: int) -> int:
    """``expires_at`` if the publisher has set one, otherwise hub_ts + ttl_sec (spec-5 5.2, P16)."""
    return min(hub_ts + found.ttl_sec, U64_MAX) if found.expires_at is None else found.expires_at


def listing(state: DiscoveryState) -> Iterator[Listed]:
    """Every id of the state in the order of kinds and ids, also expired, retired and rejected ones."""
    for kind in KINDS:
        for id_ in sorted(state.get(kind, {})):
            yield from listed_of(state, kind, id_)


def _view(state: DiscoveryState) -> list[Any]:
    return [
        {
            **{name: value for name, value in each._asdict().items() if name not in ("body", "descriptor")},
            "descriptor": cbor.decode(each.body) if each.body and each.status != "rejected" else {},
        }
        for each in listing(state)
    ]


DISCOVERY: Final[Overlay[DiscoveryState]] = Overlay(
    name="disc.directory",
    title="Advertised hubs, overlays and services, retired ones, and records that do not count (spec-5).",
    schemas=(*ADVERTISE.values(), *RETIRE.values(), Publishers, HubKeys, KeyContinuity),
    monoid=_STATE,
    lift=_lift,
    view=_view,
    reads_signer=True,
    reads_time=True,
    exchanged=(Query, QueryResult),
    table=table_of_maps(
        {
            "kind": ColumnType.TEXT,
            "id": ColumnType.BYTES,
            "publisher": ColumnType.BYTES,
            "status": ColumnType.TEXT,
            "why": ColumnType.TEXT,
            "stream_seq": ColumnType.UINT,
            "expires_at": ColumnType.UINT,
            "records": ColumnType.UINT,
            "descriptor": ColumnType.JSON,
        }
    ),
)
