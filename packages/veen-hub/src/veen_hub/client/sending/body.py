"""What may be sent: bytes, text, a typed record; and the envelope of a body with attachments (§4.6, §4.7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

from veen_core.hashing import H
from veen_core.ids import Coid, DhPublicKey, LeafHash, SchemaId, UnixTime
from veen_core.wire import Wire, int_map

BYTES: Final = SchemaId(H(b"veen.bytes.v1"))
"""The schema of a body given as bytes, unless another is named (B14)."""
TEXT: Final = SchemaId(H(b"veen.text.v1"))
ATTACHED: Final = SchemaId(H(b"veen.attached.v1"))


@runtime_checkable
class Record(Protocol):
    """A typed record: an overlay's, or anything that knows its schema and its bytes."""

    @property
    def schema_id(self) -> SchemaId: ...
    def encode(self) -> bytes: ...


@int_map("attachment_ref", section="4.6")
@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentRef(Wire):
    """One attachment as its message names it: where its ciphertext is, how long its plaintext."""

    coid: Coid
    size: int


@int_map("attached", section="4.6")
@dataclass(frozen=True, slots=True, kw_only=True)
class Attached(Wire):
    """A body with the attachments it came with: the list that §4.6 leaves to the body's schema."""

    ver: Literal[1] = 1
    schema: SchemaId
    body: bytes
    attachments: tuple[AttachmentRef, ...]


Body = bytes | str | Record
Composer = Callable[[Sequence[AttachmentRef]], Body]
"""Makes a body that names its attachments itself."""


def schema_of(name: SchemaId | str) -> SchemaId:
    """An id, or the hash of a name (B14)."""
    return name if isinstance(name, SchemaId) else SchemaId(H(name.encode()))


def encode_body(body: Body, schema: SchemaId | str | None) -> tuple[SchemaId, bytes]:
    """Schema and bytes; a named schema wins over the body's own."""
    if isinstance(body, bytes | bytearray | memoryview):
        own, encoded = BYTES, bytes(body)
    elif isinstance(body, str):
        own, encoded = TEXT, body.encode()
    else:
        own, encoded = body.schema_id, body.encode()
    return (schema_of(schema) if schema is not None else own), encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message before it has a place: all that sealing needs beside its binding."""

    recipient: DhPublicKey
    schema: SchemaId
    body: bytes
    parent: LeafHash | None = None
    expires_at: UnixTime | None = None
