"""``/tooling``: tokens, reports of equivocation, checkpoints, anchors, retention (H5, H19)."""

from __future__ import annotations

import logging

from aiohttp import web

from veen_core.equivocation import Equivocation, verify_evidence
from veen_core.errors import ApiError, DecodeError, EvidenceError, SignatureError
from veen_core.hashing import H
from veen_core.ids import AuthRef, Signature, UnixTime
from veen_core.keys import verify
from veen_core.rejection import Code
from veen_core.status import (
    MAX_ADMIN_AGE,
    CheckpointsResponse,
    LabelRequest,
    OkResponse,
    RetentionResponse,
    admin_digest,
)
from veen_hub.admission import authorization
from veen_hub.http.content import CBOR, JSON, MAX_REQUEST, over_the_cap, read_body, reply
from veen_hub.http.keys import hub_of
from veen_hub.ops.logs import log
from veen_hub.version import VERSION

MAX_TOKEN = MAX_REQUEST


async def authorize(request: web.Request) -> web.Response:
    """``POST /tooling/authorize`` with a token's CBOR: durable, replayable, never renewed (H5)."""
    hub = hub_of(request)
    if request.content_type != CBOR:
        raise ApiError(Code.BAD_REQUEST, f"Content-Type {request.content_type}: send the token as {CBOR}")
    token = await read_body(request, MAX_TOKEN, hub.config.listen.request_timeout_sec, over_the_cap)
    return reply(request, await authorization.authorize(hub, token))


async def cap_status(request: web.Request) -> web.Response:
    """``GET /tooling/cap/{auth_ref}``."""
    try:
        auth_ref = AuthRef.from_hex(request.match_info["auth_ref"])
    except DecodeError as exc:
        raise ApiError(Code.BAD_REQUEST, str(exc)) from None
    return reply(request, await authorization.cap_status(hub_of(request), auth_ref))


async def equivocation(request: web.Request) -> web.Response:
    """``POST /tooling/equivocation``: verified, logged at high severity, counted (AUTH1 3.4)."""
    hub = hub_of(request)
    body = await read_body(request, MAX_REQUEST, hub.config.listen.request_timeout_sec)
    try:
        evidence = Equivocation.decode(body)
        verify_evidence(evidence)
    except (DecodeError, EvidenceError) as exc:
        raise ApiError(Code.BAD_REQUEST, f"this evidence proves nothing: {exc}") from None
    own = evidence.first.hub_pk in hub.identity.key_map.values()
    if not hub.reports.is_news(H(body)):
        return reply(request, OkResponse(ok=True, server_version=VERSION))  # once is enough
    hub.metrics.equivocation.labels("this hub" if own else "another").inc()
    log(
        logging.CRITICAL if own else logging.ERROR,
        "equivocation",
        label=evidence.first.receipt.label.hex(),
        stream_seq=evidence.first.receipt.stream_seq,
        hub_pk=evidence.first.hub_pk.hex(),
        this_hub=own,
    )
    return reply(request, OkResponse(ok=True, server_version=VERSION))


async def _as_admin(request: web.Request) -> bytes:
    """The body of a request that an admin key signed not long ago (H19)."""
    hub = hub_of(request)
    body = await read_body(request, MAX_REQUEST, hub.config.listen.request_timeout_sec)
    stamp, text = request.headers.get("VEEN-Admin-Ts", ""), request.headers.get("VEEN-Admin-Sig", "")
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 19 and text):
        raise ApiError(
            Code.UNAUTHORIZED, "sign this request with an admin key: VEEN-Admin-Ts and VEEN-Admin-Sig"
        )
    signed_at, now = UnixTime(int(stamp)), hub.hub_ts
    if abs(now - signed_at) > MAX_ADMIN_AGE:
        raise ApiError(
            Code.UNAUTHORIZED,
            f"signed at {signed_at}, it is {now}: at most {MAX_ADMIN_AGE} s may lie between",
        )
    digest = admin_digest(request.method, request.path, body, signed_at)
    try:
        signature = Signature.from_hex(text)
    except DecodeError as exc:
        raise ApiError(Code.UNAUTHORIZED, f"VEEN-Admin-Sig: {exc}") from None
    for admin in hub.admins:
        try:
            verify(admin, digest, signature, "VEEN-Admin-Sig")
        except SignatureError:
            continue
        if hub.orders.is_replay(digest, signed_at, hub.clock.now()):
            raise ApiError(Code.CONFLICT, "this signed request was carried out already: sign a new one")
        return body
    raise ApiError(Code.FORBIDDEN, "VEEN-Admin-Sig is not by an admin key of this hub")


def _label_request(request: web.Request, body: bytes) -> LabelRequest:
    try:
        if request.content_type == JSON and body:
            return LabelRequest.from_json(body)
        return LabelRequest.decode(body) if body else LabelRequest()
    except DecodeError as exc:
        raise ApiError(Code.BAD_REQUEST, str(exc)) from None


async def checkpoint(request: web.Request) -> web.Response:
    """``POST /tooling/checkpoint``: now, of one label or of all that grew."""
    asked = _label_request(request, await _as_admin(request))
    made = await hub_of(request).upkeep.checkpoint(asked.label)
    return reply(request, CheckpointsResponse(checkpoints=tuple(made), server_version=VERSION))


async def anchor(request: web.Request) -> web.Response:
    """``POST /tooling/anchor``: now, the newest checkpoints."""
    asked = _label_request(request, await _as_admin(request))
    done = await hub_of(request).upkeep.anchor(asked.label)
    return reply(request, CheckpointsResponse(checkpoints=tuple(done), server_version=VERSION))


async def retention(request: web.Request) -> web.Response:
    """``POST /tooling/retention``: apply the rules now."""
    await _as_admin(request)
    chunks, entries = await hub_of(request).upkeep.prune()
    return reply(request, RetentionResponse(chunks=chunks, entries=entries, server_version=VERSION))
