"""The envelope of a body with attachments: body, schema, and the list of attachments (§4.6, §4.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from veen_core.hashing import H
from veen_core.ids import Coid, SchemaId
from veen_core.wire import Wire, int_map

ATTACHED_NAME: Final = "veen.attached.v1"
ATTACHED: Final = SchemaId(H(ATTACHED_NAME.encode()))
"""Schema of the envelope around a body with attachments (B14)."""


@int_map("attachment_ref", section="4.6")
@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentRef(Wire):
    """Reference to an attachment in its message: hash of the ciphertext, size of the plaintext."""

    coid: Coid
    size: int


@int_map("attached", section="4.6")
@dataclass(frozen=True, slots=True, kw_only=True)
class Attached(Wire):
    """A body together with the list of its attachments. §4.6 leaves the form of the list to the schema."""

    ver: Literal[1] = 1
    schema: SchemaId
    body: bytes
    attachments: tuple[AttachmentRef, ...]
