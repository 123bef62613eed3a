"""``PUT`` and ``GET /v1/attachment/{coid}``: content-addressed, streamed, hub-blind (H17)."""

from __future__ import annotations

import asyncio
import logging
import queue
from collections.abc import Iterator
from typing import TypeVar

from aiohttp import hdrs, web

from veen_core.errors import AdmissionError, ApiError, DecodeError, SignatureError
from veen_core.ids import AuthRef, ClientId, Coid, FixedBytes, Label, Signature
from veen_core.keys import verify
from veen_core.rejection import SIG_INVALID, Code
from veen_core.status import AttachmentResponse, attachment_digest
from veen_hub.http.connections import SLOWEST
from veen_hub.http.content import check_length, over_the_cap, reply
from veen_hub.http.keys import hub_of, request_id_of
from veen_hub.http.submit import check_address
from veen_hub.ops.logs import log
from veen_hub.version import VERSION
from veen_storage import AbsentError, StorageError

F = TypeVar("F", bound=FixedBytes)


def header(request: web.Request, name: str, kind: type[F]) -> F:
    text = request.headers.get(name)
    if text is None:
        raise ApiError(Code.UNAUTHORIZED, f"header {name} is missing")
    return _parsed(name, text, kind)


def _parsed(name: str, text: str, kind: type[F]) -> F:
    try:
        return kind.from_hex(text)
    except DecodeError as exc:
        raise ApiError(Code.BAD_REQUEST, f"{name}: {exc}") from None


async def put(request: web.Request) -> web.Response:
    """The auth stage of a MSG, then the body, straight to disk; durable before 200."""
    hub = hub_of(request)
    check_length(request, hub.limits.max_attachment_bytes, over_the_cap)
    check_address(hub, request)
    coid = _parsed("coid", request.match_info["coid"], Coid)
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
    await hub.check_writer(label, client, auth_ref, request.content_length or 0)
    stored, size = await _store(request, coid)
    if stored:
        hub.metrics.attachments.inc()
        hub.metrics.attachment_bytes.inc(size)
    return reply(request, AttachmentResponse(coid=coid, stored=stored, server_version=VERSION))


async def _store(request: web.Request, coid: Coid) -> tuple[bool, int]:
    """The body goes to a thread in parts, through a short queue, so that it is never whole in memory."""
    hub = hub_of(request)
    parts: queue.Queue[bytes | None] = queue.Queue(maxsize=4)
    size = 0

    def arriving() -> Iterator[bytes]:
        while (part := parts.get()) is not None:
            if part is CUT_OFF:
                raise ApiError(Code.BAD_REQUEST, "the body ended early")
            yield part

    writing = hub.uploads.start(lambda: hub.store.attachments.put(coid, arriving()))

    async def hand_over(part: bytes | None) -> None:
        while not writing.done():
            try:
                parts.put_nowait(part)
                return
            except queue.Full:
                await asyncio.sleep(0.001)

    patience = hub.config.listen.request_timeout_sec
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        body = request.content.iter_chunked(256 * 1_024)
        while not writing.done():
            too_slow, stalled = began + patience + size / SLOWEST, loop.time() + patience  # it holds a thread
            async with asyncio.timeout_at(min(too_slow, stalled)):
                part = await anext(body, None)
            if part is None:
                break
            size += len(part)
            await hand_over(part)
    except BaseException as exc:
        await hand_over(CUT_OFF)
        await asyncio.wait([writing])
        writing.exception()  # what the thread says of it is no news
        if isinstance(exc, TimeoutError):
            why = f"after {round(loop.time() - began)} s only {size} bytes of the body had arrived"
            raise ApiError(Code.BAD_REQUEST, why) from None
        raise
    await hand_over(None)
    return await writing, size


CUT_OFF = b"cut off"
"""A marker by identity (a byte or none would not do: CPython has only one of each)."""


async def get(request: web.Request) -> web.StreamResponse:
    hub = hub_of(request)
    coid = _parsed("coid", request.match_info["coid"], Coid)
    try:
        size = await hub.reading(lambda: hub.store.attachments.size(coid))
    except AbsentError as exc:
        raise ApiError(Code.NOT_FOUND, str(exc)) from None
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
    response = web.StreamResponse(headers=headers | request_id_of(request))
    await response.prepare(request)
    if request.method == hdrs.METH_HEAD:  # aiohttp would send what is written, as the next answer
        return response
    parts = hub.store.attachments.get(coid)
    try:
        while (part := await hub.reading(lambda: next(parts, None))) is not None:
            await response.write(part)
    except StorageError as exc:  # too late for another answer: cut it off
        log(logging.WARNING, "attachment cut off", coid=coid.hex(), error=str(exc))
        if request.transport is not None:
            request.transport.abort()
    return response
