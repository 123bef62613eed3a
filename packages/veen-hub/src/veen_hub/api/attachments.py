"""``PUT`` and ``GET /v1/attachment/{coid}``: content-addressed ciphertexts, streamed (H17)."""

from __future__ import annotations

import asyncio
import logging
import queue
from collections.abc import AsyncGenerator, Iterator
from typing import TypeVar

from veen_core.errors import AdmissionError, ApiError, DecodeError, SignatureError
from veen_core.ids import AuthRef, ClientId, Coid, FixedBytes, Label, Signature
from veen_core.keys import verify
from veen_core.rejection import SIG_INVALID, Code
from veen_core.status import AttachmentResponse, attachment_digest
from veen_hub.api.content import MIN_READ_RATE, check_length, over_the_cap, respond
from veen_hub.api.reply import InterruptedReply, Reply, StreamedReply
from veen_hub.api.request import ApiRequest
from veen_hub.api.submit import check_address
from veen_hub.hub import Hub
from veen_hub.ops.logs import log
from veen_hub.version import VERSION
from veen_storage import AbsentError, StorageError

F = TypeVar("F", bound=FixedBytes)


def header(request: ApiRequest, name: str, kind: type[F]) -> F:
    text = request.headers.get(name)
    if text is None:
        raise ApiError(Code.UNAUTHORIZED, f"header {name} is missing")
    return _parsed(name, text, kind)


def _parsed(name: str, text: str, kind: type[F]) -> F:
    try:
        return kind.from_hex(text)
    except DecodeError as exc:
        raise ApiError(Code.BAD_REQUEST, f"{name}: {exc}") from None


async def put(request: ApiRequest) -> Reply:
    """Run the auth stage of a MSG, check the quotas, and stream the body to disk; durable before 200."""
    hub = request.hub
    check_length(request.headers, hub.limits.max_attachment_bytes, over_the_cap)
    check_address(hub.config.network, request.remote)
    coid = _parsed("coid", request.variables["coid"], Coid)
    label, client = header(request, "VEEN-Label", Label), header(request, "VEEN-Client", ClientId)
    auth_ref = header(request, "VEEN-Auth-Ref", AuthRef) if "VEEN-Auth-Ref" in request.headers else None
    try:
        verify(
            client,
            attachment_digest(label, coid, auth_ref),
            header(request, "VEEN-Sig", Signature),
            "VEEN-Sig",
        )
    except SignatureError as exc:
        raise AdmissionError(SIG_INVALID, str(exc)) from None
    writer = await hub.admit_attachment(label, client, auth_ref, request.content_length or 0)
    stored = await _store_within_quota(request, coid, writer)
    return respond(request, AttachmentResponse(coid=coid, stored=stored, server_version=VERSION))


async def _store_within_quota(request: ApiRequest, coid: Coid, writer: bytes) -> bool:
    """Store the body and count it; return whether the hub did not have it yet."""
    hub = request.hub
    quota, metrics = hub.attachment_quota, hub.metrics
    length = request.content_length
    try:
        room = quota.reserve(writer, length if length is not None else hub.limits.max_attachment_bytes)
    except ApiError:
        metrics.attachment_refused.inc()
        raise
    try:
        stored, size = await _store(request, coid)
        await quota.count(room, size if stored else None)
    finally:
        quota.release(room)
    metrics.attachment_puts.inc()
    if stored:
        hub.announcements.add_attachment(coid)
        metrics.attachments.inc()
        metrics.attachment_bytes.inc(size)
    return stored


async def _store(request: ApiRequest, coid: Coid) -> tuple[bool, int]:
    """Pass the body in parts, through a short queue, to a writing thread; it is never whole in memory."""
    hub = request.hub
    parts: queue.Queue[bytes | None] = queue.Queue(maxsize=4)
    size = 0

    def arriving() -> Iterator[bytes]:
        while (part := parts.get()) is not None:
            if part is INTERRUPTED:
                raise ApiError(Code.BAD_REQUEST, "the connection ended before the whole body had arrived")
            yield part

    writing = hub.uploads.start(lambda: hub.store.attachments.put(coid, arriving()))

    async def hand_over(part: bytes | None) -> None:
        while not writing.done():
            try:
                parts.put_nowait(part)
                return
            except queue.Full:
                await asyncio.sleep(0.001)

    timeout = hub.config.listen.request_timeout_sec
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        body = request.content.iter_chunked(256 * 1_024)
        while not writing.done():
            # Slow uploads occupy threads: bound the time without data, and the time of the whole body.
            too_slow, stalled = began + timeout + size / MIN_READ_RATE, loop.time() + timeout
            async with asyncio.timeout_at(min(too_slow, stalled)):
                part = await anext(body, None)
            if part is None:
                break
            size += len(part)
            await hand_over(part)
    except BaseException as exc:
        await hand_over(INTERRUPTED)
        await asyncio.wait([writing])
        writing.exception()  # retrieved, so that asyncio does not log it
        if isinstance(exc, TimeoutError):
            why = f"only {size} bytes of the body arrived within {round(loop.time() - began)} s"
            raise ApiError(Code.BAD_REQUEST, why) from None
        raise
    await hand_over(None)
    return await writing, size


INTERRUPTED = b"interrupted"
"""Marks the end of an interrupted body; compared by identity."""


async def get(request: ApiRequest) -> StreamedReply:
    """Stream an attachment."""
    hub = request.hub
    coid = _parsed("coid", request.variables["coid"], Coid)
    try:
        size = await hub.log.read(lambda: hub.store.attachments.size(coid))
    except AbsentError as exc:
        raise ApiError(Code.NOT_FOUND, str(exc)) from None
    return StreamedReply("application/octet-stream", _stored_parts(request.hub, coid), length=size)


async def _stored_parts(hub: Hub, coid: Coid) -> AsyncGenerator[bytes, None]:
    parts = hub.store.attachments.get(coid)
    try:
        while (part := await hub.log.read(lambda: next(parts, None))) is not None:
            yield part
    except StorageError as exc:  # the answer has begun: it can only be interrupted
        log(logging.WARNING, "attachment_interrupted", coid=coid.hex(), error=str(exc))
        raise InterruptedReply(f"attachment {coid.hex()} cannot be read to its end") from exc
