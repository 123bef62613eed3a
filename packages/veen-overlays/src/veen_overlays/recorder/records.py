"""The records of the recorder, and of the audit log of queries (SDR0 3.2; spec-3 §9; RESOLUTIONS P10).

A payload is JSON-like: null, booleans, integers of 64 bits, text, byte strings, arrays, and maps with text
keys. Deterministic CBOR has no floats (RESOLUTIONS B3), so a payload has none either. A body with another
payload is not a recorder event: readers count it as undecodable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NewType

from veen_core.hashing import Ht
from veen_core.ids import ClientId, FixedBytes, Signature, UnixTime, VerifyKey
from veen_core.keys import SigningKey, verify
from veen_overlays.schema.record import Record, RecordRule, record

RECORD_NAMESPACE: Final = "record/"
"""The prefix of every recorder stream (products-spec-1 §2.2)."""
CHANGES_STREAM: Final = "record/infrastructure/changes"
"""The management stream that carries migrations (SDR0 3.2.2)."""

UnixMilliseconds = NewType("UnixMilliseconds", int)
"""Milliseconds since 1970-01-01T00:00:00Z. The ``hub_ts`` of a receipt is in seconds."""


class ResultDigestHash(FixedBytes):
    """The hash of an answered query, as its data access service documents it (spec-3 9.2)."""

    __slots__ = ()


def is_json_like(value: Any) -> bool:
    """Return whether a free value has a JSON form in which no two keys collide: all map keys are text."""
    if type(value) is dict:
        return all(type(key) is str and is_json_like(each) for key, each in value.items())
    return all(map(is_json_like, value)) if type(value) is list else True


def _json_like(name: str) -> RecordRule:
    return RecordRule(
        f"{name} has maps with text keys only", lambda record: is_json_like(getattr(record, name))
    )


@record("record.event.v1", section="P10", rules=(_json_like("payload"),))
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvent(Record):
    """Record one event of an application: which actor did what, when, and in which component."""

    subject_id: str
    """The stable id of the actor."""
    principal_id: ClientId
    """The identity key of the writer; the event is attributed if the key is linked to ``MSG.client_id``."""
    event_type: str
    event_time: UnixMilliseconds
    """When the application observed the event; nothing proves it."""
    origin: str
    """The service or component that emits the event."""
    payload: Any


@record(
    "record.migration.v1",
    section="P10",
    rules=(
        RecordRule("from or to names at least one stream", lambda each: bool(each.from_ or each.to)),
        RecordRule(
            "neither from nor to names a stream twice",
            lambda each: len(set(each.from_)) == len(each.from_) and len(set(each.to)) == len(each.to),
        ),
    ),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRecord(Record):
    """Report that recorder streams were renamed, split, merged, added or retired (SDR0 3.2.2)."""

    from_: tuple[str, ...]
    """The streams before the migration; the wire key is ``from``."""
    to: tuple[str, ...]
    """The streams after the migration."""
    reason: str
    at: UnixTime


@record("record.continuity.v1", section="P10, KEX0.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class KeyContinuity(Record):
    """Link the client_id that signs the message to an identity key, which signs the link in the record."""

    principal_id: ClientId
    client_id: ClientId
    """The link counts only in a message that this key has signed."""
    sig: Signature
    """Signature of ``principal_id`` over ``continuity_digest``."""


# At an open hub a client signs each label with a separate key. KEX0.2 forbids plaintext MSG fields that link
# such a client_id to the identity key. This record is sealed, so only readers of the stream see the link.


def continuity_digest(principal: ClientId, client: ClientId) -> bytes:
    """``Ht("veen/key-continuity", principal_id || client_id)``, which the identity key signs."""
    return Ht("veen/key-continuity", principal + client)


def sign_continuity(principal: SigningKey, client: ClientId) -> KeyContinuity:
    """Return the record that links a client_id to an identity key."""
    owner = ClientId(principal.public)
    sig = principal.sign(continuity_digest(owner, client))
    return KeyContinuity(principal_id=owner, client_id=client, sig=sig)


def verify_continuity(link: KeyContinuity) -> None:
    """Raise ``SignatureError`` unless the identity key has signed the link."""
    digest = continuity_digest(link.principal_id, link.client_id)
    verify(VerifyKey(link.principal_id), digest, link.sig, "record.continuity.v1.sig (P10)")


@record(
    "query.audit.v1",
    section="spec-3 9.2",
    operation=True,
    rules=(_json_like("query_parameters"), _json_like("metadata")),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAudit(Record):
    """Report that a requester has read a resource."""

    requester_identity: ClientId
    resource_identifier: str
    resource_class: str
    query_parameters: Any | None = None
    purpose_code: str | None = None
    result_digest: ResultDigestHash | None = None
    request_time: UnixTime | None = None
    metadata: Any | None = None
