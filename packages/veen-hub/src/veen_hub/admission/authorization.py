"""Cap tokens at the hub: verified, appended to the control label once, and what is known of them (H5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veen_core.cap import CapToken, verify_token
from veen_core.errors import AdmissionError, ApiError, CapError, DecodeError
from veen_core.ids import AuthRef, StreamSeq, UnixTime
from veen_core.rejection import CAP_INVALID, CAP_ISSUER, CBOR_INVALID, Code
from veen_core.status import AuthorizeResponse, CapStatus
from veen_hub.version import VERSION
from veen_storage import Batch, CapRecord

if TYPE_CHECKING:
    from veen_hub.hub import Hub


async def authorize(hub: Hub, token_bytes: bytes) -> AuthorizeResponse:
    """Verify a token and append it to the control label, once (H5, H18)."""
    token = _checked(hub, token_bytes)
    auth_ref = token.auth_ref

    def action(batch: Batch) -> StreamSeq:
        held = batch.view.cap(auth_ref)
        if held is not None and held.control_seq:
            return held.control_seq
        placed = batch.authorize(token, token_bytes, hub.control_label)
        hub.labels.learn(token.allow.stream_ids)  # the map belongs to the sequencer's thread
        hub.accepted += 1
        return placed.stream_seq

    seq = await hub.act(action)
    receipt = await hub.reading(lambda: hub.store.read.receipt(hub.control_label, seq))
    status = await cap_status(hub, auth_ref)
    expires_at = status.expires_at if status.expires_at is not None else receipt.hub_ts
    hub.metrics.cap_checks.labels("ok").inc()
    return AuthorizeResponse(
        auth_ref=auth_ref, expires_at=expires_at, receipt=receipt, server_version=VERSION
    )


def _checked(hub: Hub, token_bytes: bytes) -> CapToken:
    try:
        token = CapToken.decode(token_bytes)
    except DecodeError as exc:
        hub.metrics.cap_checks.labels("malformed").inc()
        raise AdmissionError(CBOR_INVALID, str(exc)) from None
    try:
        verify_token(token, hub.limits)
    except CapError as exc:
        hub.metrics.cap_checks.labels("invalid").inc()
        raise AdmissionError(CAP_INVALID, str(exc)) from None
    if token.issuer_pk not in hub.rules.issuers:
        hub.metrics.cap_checks.labels("issuer").inc()
        raise AdmissionError(CAP_ISSUER, f"the hub does not accept tokens of issuer {token.issuer_pk.hex()}")
    return token


async def cap_status(hub: Hub, auth_ref: AuthRef) -> CapStatus:
    """What the hub knows of a token, also of one that was used before it was authorized."""

    def look(batch: Batch) -> tuple[CapRecord, UnixTime] | None:
        record = batch.view.cap(auth_ref)
        return (record, batch.view.issued_at(record)) if record is not None else None

    found = await hub.act(look, reads=True)
    if found is None:
        raise ApiError(Code.NOT_FOUND, f"the hub has never seen auth_ref {auth_ref.hex()}")
    record, issued_at = found
    token = record.token
    return CapStatus(
        auth_ref=auth_ref,
        issued_at=issued_at,
        known=token is not None,
        expires_at=token.expires_at(issued_at) if token is not None else None,
        issuer_pk=token.issuer_pk if token is not None else None,
        subject_pk=token.subject_pk if token is not None else None,
        server_version=VERSION,
    )
