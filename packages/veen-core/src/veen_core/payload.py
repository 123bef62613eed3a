"""The payload header: schema and references of a message, encrypted for its readers (§4.5)."""

from __future__ import annotations

from dataclasses import dataclass

from veen_core.errors import OpenError
from veen_core.ids import AttRoot, AuthRef, LeafHash, SchemaId, UnixTime
from veen_core.wire import Wire, int_map


@int_map("payload_hdr", section="4.5")
@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadHeader(Wire):
    """The header. Only overlays use ``expires_at``; it never affects admission."""

    schema: SchemaId
    parent_id: LeafHash | None = None
    att_root: AttRoot | None = None
    cap_ref: AuthRef | None = None
    expires_at: UnixTime | None = None


def check_cap_ref(header: PayloadHeader, auth_ref: AuthRef | None) -> None:
    """Check that ``cap_ref``, if present, is ``MSG.auth_ref`` (§6). Readers check it; the hub cannot."""
    if header.cap_ref is not None and header.cap_ref != auth_ref:
        raise OpenError("payload_hdr.cap_ref (core §6): is not the auth_ref of its MSG")
