"""``/tooling``: cap tokens, equivocation reports, and signed requests of admins (H5, H19)."""

from __future__ import annotations

import logging

from veen_core.equivocation import Equivocation, verify_evidence
from veen_core.errors import ApiError, DecodeError, EvidenceError, SignatureError
from veen_core.hashing import H
from veen_core.ids import AuthRef, Signature, UnixTime
from veen_core.keys import verify
from veen_core.rejection import Code
from veen_core.status import (
    MAX_ADMIN_AGE,
    CheckpointsResponse,
    HandoverRequest,
    LabelRequest,
    OkResponse,
    RetentionResponse,
    admin_digest,
)
from veen_core.utc import format_utc
from veen_hub.api.content import (
    CBOR,
    JSON,
    MAX_REQUEST_BYTES,
    content_type_of,
    over_the_cap,
    read_body,
    respond,
)
from veen_hub.api.reply import Reply
from veen_hub.api.request import ApiRequest
from veen_hub.ops.logs import log
from veen_hub.version import VERSION


async def authorize(request: ApiRequest) -> Reply:
    """``POST /tooling/authorize``: take in a cap token; asking again returns the first receipt (H5)."""
    hub = request.hub
    content_type = content_type_of(request.headers)
    if content_type != CBOR:
        raise ApiError(
            Code.BAD_REQUEST, f"Content-Type {content_type} is not accepted: send the token as {CBOR}"
        )
    token = await read_body(request, MAX_REQUEST_BYTES, hub.config.listen.request_timeout_sec, over_the_cap)
    return respond(request, await hub.authorization.authorize(token))


async def cap_status(request: ApiRequest) -> Reply:
    """``GET /tooling/cap/{auth_ref}``: report the record of a token."""
    try:
        auth_ref = AuthRef.from_hex(request.variables["auth_ref"])
    except DecodeError as exc:
        raise ApiError(Code.BAD_REQUEST, str(exc)) from None
    return respond(request, await request.hub.authorization.status(auth_ref))


async def equivocation(request: ApiRequest) -> Reply:
    """``POST /tooling/equivocation``: verify evidence, log it at high severity and count it (AUTH1 3.4)."""
    hub = request.hub
    body = await read_body(request, MAX_REQUEST_BYTES, hub.config.listen.request_timeout_sec)
    try:
        evidence = Equivocation.decode(body)
        verify_evidence(evidence)
    except (DecodeError, EvidenceError) as exc:
        raise ApiError(Code.BAD_REQUEST, f"the evidence proves no equivocation: {exc}") from None
    own = evidence.first.hub_pk in hub.identity.key_map.values()
    if not hub.seen_evidence.is_new(H(body)):
        return respond(request, OkResponse(ok=True, server_version=VERSION))
    hub.metrics.equivocation.labels("this hub" if own else "another").inc()
    log(
        logging.CRITICAL if own else logging.ERROR,
        "equivocation",
        label=evidence.first.receipt.label.hex(),
        stream_seq=evidence.first.receipt.stream_seq,
        hub_pk=evidence.first.hub_pk.hex(),
        this_hub=own,
    )
    return respond(request, OkResponse(ok=True, server_version=VERSION))


async def _signed_body(request: ApiRequest) -> bytes:
    """Return the body of a request that an admin key signed for this hub within the last minute (H19)."""
    hub = request.hub
    body = await read_body(request, MAX_REQUEST_BYTES, hub.config.listen.request_timeout_sec)
    stamp, text = request.headers.get("VEEN-Admin-Ts", ""), request.headers.get("VEEN-Admin-Sig", "")
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 19 and text):
        raise ApiError(
            Code.UNAUTHORIZED, "this request needs an admin's signature in VEEN-Admin-Ts and VEEN-Admin-Sig"
        )
    signed_at, now = UnixTime(int(stamp)), hub.hub_ts
    if abs(now - signed_at) > MAX_ADMIN_AGE:
        raise ApiError(
            Code.UNAUTHORIZED,
            f"signed at {format_utc(signed_at)}, more than {MAX_ADMIN_AGE} s from the hub's time, "
            f"{format_utc(now)}: sign it again",
        )
    digest = admin_digest(hub.identity.hub_id, request.method, request.path, body, signed_at)
    try:
        signature = Signature.from_hex(text)
    except DecodeError as exc:
        raise ApiError(Code.UNAUTHORIZED, f"VEEN-Admin-Sig: {exc}") from None
    for admin in hub.admission.admins:
        try:
            verify(admin, digest, signature, "VEEN-Admin-Sig")
        except SignatureError:
            continue
        if await hub.log.read(lambda: hub.admin_replays.is_replay(digest, signed_at, now)):
            raise ApiError(Code.CONFLICT, "this signed request was carried out already: sign a new one")
        return body
    raise ApiError(
        Code.FORBIDDEN,
        "VEEN-Admin-Sig is not a signature of this hub's admin key over this request and this hub_id",
    )


async def signed_label_request(request: ApiRequest) -> LabelRequest:
    """Return the label that an admin's request is about, after its signature was checked (H19)."""
    body = await _signed_body(request)
    try:
        if content_type_of(request.headers) == JSON and body:
            return LabelRequest.from_json(body)
        return LabelRequest.decode(body) if body else LabelRequest()
    except DecodeError as exc:
        raise ApiError(Code.BAD_REQUEST, str(exc)) from None


async def checkpoint(request: ApiRequest) -> Reply:
    """``POST /tooling/checkpoint``: make checkpoints now, of one label or of all that grew."""
    asked = await signed_label_request(request)
    made = await request.hub.upkeep.checkpoint(asked.label)
    return respond(request, CheckpointsResponse(checkpoints=tuple(made), server_version=VERSION))


async def anchor(request: ApiRequest) -> Reply:
    """``POST /tooling/anchor``: publish the newest checkpoints now."""
    asked = await signed_label_request(request)
    done = await request.hub.upkeep.anchor(asked.label)
    return respond(request, CheckpointsResponse(checkpoints=tuple(done), server_version=VERSION))


async def retention(request: ApiRequest) -> Reply:
    """``POST /tooling/retention``: apply the retention rules now."""
    await _signed_body(request)
    chunks, entries = await request.hub.upkeep.prune()
    return respond(request, RetentionResponse(chunks=chunks, entries=entries, server_version=VERSION))


async def handover(request: ApiRequest) -> Reply:
    """``POST /tooling/handover``: end this hub for its successor; asking again returns the record (P9)."""
    body = await _signed_body(request)
    try:
        json = content_type_of(request.headers) == JSON
        asked = HandoverRequest.from_json(body) if json else HandoverRequest.decode(body)
    except DecodeError as exc:
        raise ApiError(Code.BAD_REQUEST, str(exc)) from None
    return respond(request, await request.hub.hand_over(asked))
