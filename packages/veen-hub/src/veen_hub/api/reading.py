"""Read handlers: pages, live streams, receipts, proofs and checkpoints (§10.4.2-§10.4.5, B11, H15)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from veen_core import cbor
from veen_core.api import (
    CheckpointRequest,
    CheckpointResponse,
    ConsistencyRequest,
    ConsistencyResponse,
    ControlItem,
    ErrorDetail,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamItem,
    StreamRequest,
    StreamResponse,
)
from veen_core.checkpoint import Checkpoint
from veen_core.entry import Content, Entry
from veen_core.errors import ApiError, DecodeError
from veen_core.ids import Label, StreamSeq
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt
from veen_core.rejection import Code
from veen_core.status import CheckpointsResponse
from veen_hub.api.content import CBOR, CBOR_SEQ, json_reply, read_as, respond, wants_json
from veen_hub.api.errors import DetailedError
from veen_hub.api.reply import Reply, StreamedReply
from veen_hub.api.request import ApiRequest, Peer
from veen_hub.hub import Hub
from veen_hub.pipeline.feed import MAX_DELIVERY_BYTES, FeedFollower
from veen_hub.pipeline.stream_items import encode_items
from veen_hub.version import VERSION
from veen_storage import PrunedError

MAX_FOLLOW_PAGE = 256
"""Most entries read at once for a follower that is behind."""
FIRST_FOLLOW_ENTRIES = 4
"""Entries read first for a follower that is behind, before the size of its entries is known."""
MAX_CHECKPOINTS = 1_000
"""Checkpoints in one answer."""
MAX_UNSENT_BYTES = 512 * 1_048_576
"""Bytes of answers that clients have not read yet, beyond which no page is served; a page has up to 8 MiB."""


async def page(request: ApiRequest) -> Reply:
    """``POST /v1/stream``: serve one page of a label's entries."""
    hub = request.hub
    asked = await read_as(request, StreamRequest, hub.config.listen.request_timeout_sec)
    if hub.unsent > MAX_UNSENT_BYTES:
        raise ApiError(
            Code.UNAVAILABLE, "too many answers wait for their clients to read them", retry_after=1
        )
    if asked.start < 1 and asked.cursor is not None:
        raise ApiError(Code.BAD_REQUEST, "cursor 0 is not an entry: stream_seq starts at 1")
    if asked.max_items == 0:
        raise ApiError(Code.BAD_REQUEST, "max_items must be at least 1")
    most = min(asked.max_items or hub.config.max_page_items, hub.config.max_page_items)
    start = StreamSeq(max(1, asked.start))
    if wants_json(request.headers):
        return json_reply(await hub.log.read(lambda: page_json(read_page(hub, asked, start, most), asked)))
    return Reply(
        200, await hub.log.read(lambda: encode_page(read_page(hub, asked, start, most), asked)), CBOR
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The entries of one page, the start of the next page, and the proof of the last entry."""

    start: StreamSeq
    contents: list[Content]
    more: StreamSeq | None
    proof: MmrProof | None


def read_page(hub: Hub, asked: StreamRequest, start: StreamSeq, most: int) -> Page:
    """Read one page.

    A page ends before an entry whose payload was pruned. A page that would begin with such an entry is
    refused, and the error says from where entries can be read. No entry is left out silently.
    """
    read = hub.store.read
    head = read.head(asked.label)
    if head is None:
        raise ApiError(Code.NOT_FOUND, f"label {asked.label.hex()} has no entries")
    try:
        contents = read.contents(asked.label, start, most, end=asked.to_seq)
    except PrunedError:
        raise pruned(hub, asked.label, start) from None
    last = StreamSeq(start + len(contents) - 1)
    end = min(head.stream_seq, asked.to_seq) if asked.to_seq is not None else head.stream_seq
    more = StreamSeq(last + 1) if contents and last < end else None
    proof = read.proof(asked.label, last) if asked.with_mmr_proof and contents else None
    return Page(start=start, contents=contents, more=more, proof=proof)


def pruned(hub: Hub, label: Label, start: StreamSeq) -> DetailedError:
    """Make the error for a pruned entry; ``detail.stream_seq`` is the next entry that can be read, if any."""
    readable = hub.store.read.readable_from(label, start)
    after = (
        f"entries can be read from {readable} on" if readable is not None else "no entry after it can be read"
    )
    return DetailedError(
        Code.NOT_FOUND,
        f"the payload of entry {start} was pruned by retention (its receipt and proof remain); {after}",
        ErrorDetail(label=label, stream_seq=readable),
    )


def item_of(entry: Entry, *, with_receipt: bool) -> StreamItem | ControlItem:
    receipt = entry.receipt if with_receipt else None
    if entry.is_authorize:
        return ControlItem(stream_seq=entry.stream_seq, msg=entry.token, receipt=receipt)
    return StreamItem(stream_seq=entry.stream_seq, msg=entry.msg, receipt=receipt)


def page_json(page: Page, asked: StreamRequest) -> str:
    """Compose the JSON response; every entry is decoded."""
    around = StreamResponse(
        label=asked.label,
        from_seq=page.start,
        to_seq=asked.to_seq,
        items=(),
        next_cursor=page.more,
        mmr_proof=page.proof,
        server_version=VERSION,
    )
    entries = [Entry(asked.label, StreamSeq(at), *one) for at, one in enumerate(page.contents, page.start)]
    items = [item_of(entry, with_receipt=bool(asked.with_receipts)) for entry in entries]
    made = around.codec.write_json(around) | {"items": [item.codec.write_json(item) for item in items]}
    return json.dumps(made, separators=(",", ":"), ensure_ascii=False)


def encode_page(page: Page, asked: StreamRequest) -> bytes:
    """Compose the CBOR response around the entries' bytes, which are canonical already."""
    before = [b"\x01\x01", b"\x02\x58\x20" + asked.label, b"\x03" + cbor.encode(page.start)]
    if asked.to_seq is not None:
        before.append(b"\x04" + cbor.encode(asked.to_seq))
    before.append(b"\x05" + cbor.array_head(len(page.contents)))
    items = encode_items(page.contents, page.start, with_receipts=bool(asked.with_receipts))
    after = [b"\x08" + cbor.encode(VERSION)]
    if page.proof is not None:
        after.insert(0, b"\x07" + page.proof.encode())
    if page.more is not None:
        after.insert(0, b"\x06" + cbor.encode(page.more))
    return b"".join((bytes([0xA0 + len(before) + len(after)]), *before, *items, *after))


async def follow(request: ApiRequest) -> StreamedReply:
    """``GET /v1/stream/{label}?from=N``: stay open and send each item as soon as it is durable (H15)."""
    hub = request.hub
    label = label_of(request)
    at = StreamSeq(max(1, number_of(request, "from", 1)))
    try:
        await hub.log.read(lambda: hub.store.read.contents(label, at, 1))
    except PrunedError:
        raise await hub.log.read(lambda: pruned(hub, label, at)) from None
    return StreamedReply(CBOR_SEQ, _live(hub, label, at, request.peer), {"X-Accel-Buffering": "no"})


async def _live(hub: Hub, label: Label, at: StreamSeq, peer: Peer) -> AsyncGenerator[bytes, None]:
    follower = hub.feed.join(label, at, peer.live_writer)
    gone = asyncio.create_task(peer.lost.wait())
    gone.add_done_callback(lambda _gone: follower.wake())
    hub.metrics.followers.inc()
    try:
        async for data in _deliver(hub, follower, gone):
            yield data
    finally:
        gone.cancel()
        hub.feed.leave(follower)
        hub.metrics.followers.dec()
        if peer.dropped:
            hub.metrics.dropped_followers.inc()


async def _deliver(
    hub: Hub, follower: FeedFollower, gone: asyncio.Task[Literal[True]]
) -> AsyncGenerator[bytes, None]:
    """Deliver until the client is gone, the hub stops, or retention has overtaken the follower.

    A follower that is behind holds about ``MAX_DELIVERY_BYTES`` in memory, however large entries are. One
    that is up to date is sent entries by the feed, if its transport allows that.
    """
    label, many = follower.label, FIRST_FOLLOW_ENTRIES
    while True:
        drained = hub.drained.is_set()  # before reading
        if (held := hub.feed.recent(label, follower.at)) is not None:
            data, follower.at = held
            yield data
            continue
        if drained or not hub.feed.is_current(follower):
            try:
                found = await hub.log.read(partial(hub.store.read.contents, label, follower.at, many))
            except PrunedError:
                return  # the next request from here is refused with the entry to continue at
            if found:
                data = b"".join(encode_items(found, follower.at))
                follower.at = StreamSeq(follower.at + len(found))
                many = min(MAX_FOLLOW_PAGE, max(1, MAX_DELIVERY_BYTES * len(found) // len(data)))
                yield data
                continue
        if drained or gone.done():
            return
        if not hub.feed.has(follower) and not hub.drained.is_set():  # it may have been set while reading
            await hub.feed.wait(follower)


async def receipt(request: ApiRequest) -> Reply:
    """``POST /v1/receipt``: serve the receipt at ``stream_seq``; 0 means the newest, as for checkpoints."""
    hub = request.hub
    asked = await read_as(request, ReceiptRequest, hub.config.listen.request_timeout_sec)
    found = await hub.log.read(lambda: read_receipt(hub, asked))
    return respond(request, ReceiptResponse(receipt=found, server_version=VERSION))


def read_receipt(hub: Hub, asked: ReceiptRequest) -> Receipt:
    """Read the receipt at ``stream_seq``, or the newest one of the label."""
    if asked.stream_seq:
        return hub.store.read.receipt(asked.label, asked.stream_seq)
    head = hub.store.read.head(asked.label)
    if head is None:
        raise ApiError(Code.NOT_FOUND, f"label {asked.label.hex()} has no entries")
    return hub.store.read.receipt(asked.label, head.stream_seq)


async def proof(request: ApiRequest) -> Reply:
    """``POST /v1/proof``: serve an inclusion proof."""
    hub = request.hub
    asked = await read_as(request, ProofRequest, hub.config.listen.request_timeout_sec)
    started = time.perf_counter()
    made = await hub.log.read(lambda: hub.store.read.proof(asked.label, asked.stream_seq, asked.tree_size))
    hub.metrics.proof_ms.observe((time.perf_counter() - started) * 1_000)
    return respond(request, ProofResponse(mmr_proof=made, server_version=VERSION))


async def consistency(request: ApiRequest) -> Reply:
    """``POST /v1/consistency``: serve a consistency proof between two sizes of a label's log."""
    hub = request.hub
    asked = await read_as(request, ConsistencyRequest, hub.config.listen.request_timeout_sec)
    started = time.perf_counter()
    made = await hub.log.read(lambda: hub.store.read.consistency(asked.label, asked.from_seq, asked.to_seq))
    hub.metrics.proof_ms.observe((time.perf_counter() - started) * 1_000)
    return respond(request, ConsistencyResponse(mmr_consistency=made, server_version=VERSION))


async def checkpoint(request: ApiRequest) -> Reply:
    """``POST /v1/checkpoint``: serve the checkpoint at ``upto_seq``; 0 means the latest (§10.4.5)."""
    hub = request.hub
    asked = await read_as(request, CheckpointRequest, hub.config.listen.request_timeout_sec)
    read = hub.store.read
    if asked.upto_seq == 0:
        found = await hub.log.read(lambda: read.latest_checkpoint(asked.label))
        if found is None:
            raise ApiError(Code.NOT_FOUND, f"label {asked.label.hex()} has no checkpoint yet")
    else:
        found = await hub.log.read(lambda: read.checkpoint(asked.label, asked.upto_seq))
    return respond(request, CheckpointResponse(checkpoint=found, server_version=VERSION))


async def checkpoints(request: ApiRequest) -> Reply:
    """``GET /v1/checkpoint?epoch_min=A&epoch_max=B``: serve checkpoints of all labels (spec-1 §16).

    The answer is a CBOR sequence or a JSON list of at most 1,000 checkpoints. If there are more, the header
    ``Veen-Next`` is the query of the next page.
    """
    return checkpoints_reply(request, *await read_checkpoints(request))


async def read_checkpoints(request: ApiRequest) -> tuple[list[Checkpoint], str | None]:
    """Read one page of checkpoints, and the query of the next page if there are more."""
    hub = request.hub
    first, last = number_of(request, "epoch_min", 0), number_of(request, "epoch_max", 2**63)
    after = None
    if "after_label" in request.query or "after_seq" in request.query:
        after = (
            label_named(request.query.get("after_label", "")),
            StreamSeq(number_of(request, "after_seq", 0)),
        )
    read = hub.store.read
    found = await hub.log.read(lambda: read.checkpoints_by_epoch(first, last, MAX_CHECKPOINTS + 1, after))
    given = found[:MAX_CHECKPOINTS]
    return given, _next_page(given[-1], last) if len(found) > len(given) else None


def checkpoints_reply(request: ApiRequest, given: list[Checkpoint], next_page: str | None) -> Reply:
    """Encode a page of checkpoints in the form that the request asks for."""
    headers = {"Veen-Next": next_page} if next_page is not None else {}
    if wants_json(request.headers):
        answer = CheckpointsResponse(checkpoints=tuple(given), server_version=VERSION)
        answered = json_reply(answer.to_json())
        answered.headers |= headers
        return answered
    return Reply(200, b"".join(made.encode() for made in given), CBOR_SEQ, headers)


def _next_page(made: Checkpoint, epoch_max: int) -> str:
    place = f"after_label={made.label_curr.hex()}&after_seq={made.upto_seq}"
    return f"epoch_min={made.epoch}&epoch_max={epoch_max}&{place}"


def label_of(request: ApiRequest) -> Label:
    return label_named(request.variables["label"])


def label_named(text: str) -> Label:
    try:
        return Label.from_hex(text)
    except DecodeError as exc:
        raise ApiError(Code.BAD_REQUEST, str(exc)) from None


def number_of(request: ApiRequest, name: str, otherwise: int) -> int:
    text = request.query.get(name, str(otherwise))
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise ApiError(Code.BAD_REQUEST, f"{name}: must be a number")
    return int(text)
