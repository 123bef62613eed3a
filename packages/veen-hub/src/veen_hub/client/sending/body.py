"""Message bodies: bytes, text or a typed record, and the envelope of a body with attachments (§4.6, §4.7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from veen_core.attached import ATTACHED, Attached, AttachmentRef
from veen_core.hashing import H
from veen_core.ids import DhPublicKey, LeafHash, SchemaId, UnixTime

__all__ = [
    "ATTACHED",
    "BYTES",
    "TEXT",
    "Attached",
    "AttachmentRef",
    "Body",
    "Composer",
    "MessageDraft",
    "Outgoing",
    "Record",
    "body_bytes",
    "encode_body",
    "schema_of",
]

BYTES: Final = SchemaId(H(b"veen.bytes.v1"))
"""Default schema of a body given as bytes (B14)."""
TEXT: Final = SchemaId(H(b"veen.text.v1"))
"""Default schema of a body given as text."""


@runtime_checkable
class Record(Protocol):
    """A typed record, e.g. of an overlay: it knows its schema and its encoding."""

    @property
    def schema_id(self) -> SchemaId: ...
    def encode(self) -> bytes: ...


Body = bytes | str | Record
Composer = Callable[[Sequence[AttachmentRef]], Body]
"""Makes a body from the references of its attachments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A body of ``send_many`` with a header of its own: it overrides the header given for all bodies."""

    body: Body
    schema: SchemaId | None = None
    parent: LeafHash | None = None
    expires_at: UnixTime | None = None


def schema_of(name: SchemaId | str) -> SchemaId:
    """Return a schema id as it is, or the hash of a schema name (B14)."""
    return name if isinstance(name, SchemaId) else SchemaId(H(name.encode()))


def encode_body(body: Body, schema: SchemaId | str | None) -> tuple[SchemaId, bytes]:
    """Return the schema and the encoded body; a given schema overrides the default one."""
    if isinstance(body, bytes | bytearray | memoryview):
        own, encoded = BYTES, bytes(body)
    elif isinstance(body, str):
        own, encoded = TEXT, body.encode()
    else:
        own, encoded = body.schema_id, body.encode()
    return (schema_of(schema) if schema is not None else own), encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDraft:
    """A message before it has a client_seq: what sealing needs in addition to the binding."""

    recipient: DhPublicKey
    schema: SchemaId
    body: bytes
    parent: LeafHash | None = None
    expires_at: UnixTime | None = None


def draft_of(
    body: Body | Outgoing,
    recipient: DhPublicKey,
    schema: SchemaId | str | None,
    parent: LeafHash | None,
    expires_at: UnixTime | None,
) -> MessageDraft:
    """Return the draft of a body; an ``Outgoing`` overrides the given header."""
    if isinstance(body, Outgoing):
        schema, parent = body.schema or schema, body.parent or parent
        expires_at = expires_at if body.expires_at is None else body.expires_at
        body = body.body
    schema_id, encoded = encode_body(body, schema)
    return MessageDraft(
        recipient=recipient, schema=schema_id, body=encoded, parent=parent, expires_at=expires_at
    )


def body_bytes(draft: MessageDraft) -> int:
    """Return the size of a draft's body."""
    return len(draft.body)
