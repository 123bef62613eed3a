"""The hub log for readers: C2SP tlog-tiles under ``/log``, and proofs by request (RESOLUTIONS P1).

Everything here is about the published hub checkpoint: a tree that is signed and not yet published is not
served.
"""

from __future__ import annotations

import time
from typing import Final

from veen_core.errors import ApiError, DecodeError
from veen_core.hub_log import (
    HubConsistencyRequest,
    HubConsistencyResponse,
    HubProofRequest,
    HubProofResponse,
    hashes,
)
from veen_core.rejection import Code
from veen_core.tlog.tiles import ENTRIES, Tile, parse_path
from veen_core.tlog.tree_head import SignedHead
from veen_hub.api.content import read_as, respond
from veen_hub.api.reply import Reply
from veen_hub.api.request import ApiRequest
from veen_hub.hub import Hub
from veen_hub.version import VERSION

CHECKPOINT_MAX_AGE_SEC: Final = 1
TILE_MAX_AGE_SEC: Final = 31_536_000


async def checkpoint(request: ApiRequest) -> Reply:
    """``GET /log/checkpoint``: serve the published hub checkpoint with its cosignatures."""
    hub = request.hub
    headers = {"Cache-Control": f"{_sharing(hub)}, max-age={CHECKPOINT_MAX_AGE_SEC}"}
    return Reply(200, published(hub).encode(), "text/plain; charset=utf-8", headers)


async def tile(request: ApiRequest) -> Reply:
    """``GET /log/tile/…``: serve a tile or an entry bundle, complete or partial."""
    hub = request.hub
    try:
        wanted = parse_path(request.variables["path"])
    except DecodeError as exc:
        raise ApiError(Code.NOT_FOUND, str(exc)) from None
    data = await hub.log.read(lambda: read_tile(hub, wanted))
    headers = {"Cache-Control": f"{_sharing(hub)}, max-age={TILE_MAX_AGE_SEC}, immutable"}
    return Reply(200, data, "application/octet-stream", headers)


def read_tile(hub: Hub, wanted: Tile) -> bytes:
    """Read a tile that the published tree has."""
    size = published(hub).head.size
    if not wanted.exists_at(size):
        raise ApiError(Code.NOT_FOUND, f"the hub log has {size} entries, and no tile {wanted.path}")
    hub_log = hub.store.hub_log
    return hub_log.bundle(wanted) if wanted.level == ENTRIES else hub_log.tile(wanted)


async def proof(request: ApiRequest) -> Reply:
    """``POST /v1/hublog/proof``: prove a label's head against the published hub checkpoint."""
    hub = request.hub
    asked = await read_as(request, HubProofRequest, hub.config.listen.request_timeout_sec)
    started = time.perf_counter()
    made = await hub.log.read(lambda: make_proof(hub, asked))
    hub.metrics.proof_ms.observe((time.perf_counter() - started) * 1_000)
    return respond(request, made)


def make_proof(hub: Hub, asked: HubProofRequest) -> HubProofResponse:
    """Find the head and prove that the published tree contains it."""
    signed, hub_log = published(hub), hub.store.hub_log
    size = signed.head.size
    head, index = hub_log.head_of(asked.label, asked.stream_seq, size)
    return HubProofResponse(
        head=head,
        index=index,
        proof=hashes(hub_log.prove_inclusion(index, size)),
        checkpoint=signed.encode(),
        server_version=VERSION,
    )


async def consistency(request: ApiRequest) -> Reply:
    """``POST /v1/hublog/consistency``: prove that one tree of the hub log is the start of another."""
    hub = request.hub
    asked = await read_as(request, HubConsistencyRequest, hub.config.listen.request_timeout_sec)
    started = time.perf_counter()
    made = await hub.log.read(lambda: make_consistency(hub, asked))
    hub.metrics.proof_ms.observe((time.perf_counter() - started) * 1_000)
    return respond(request, made)


def make_consistency(hub: Hub, asked: HubConsistencyRequest) -> HubConsistencyResponse:
    """Make the proof between two sizes of the published tree."""
    signed = published(hub)
    new_size = asked.new_size if asked.new_size is not None else signed.head.size
    if new_size > signed.head.size:
        raise ApiError(Code.NOT_FOUND, f"the hub log has {signed.head.size} entries, not {new_size}")
    if asked.old_size > new_size:
        raise ApiError(Code.BAD_REQUEST, f"old_size {asked.old_size} is larger than {new_size}")
    return HubConsistencyResponse(
        old_size=asked.old_size,
        new_size=new_size,
        proof=hashes(hub.store.hub_log.prove_consistency(asked.old_size, new_size)),
        checkpoint=signed.encode(),
        server_version=VERSION,
    )


def published(hub: Hub) -> SignedHead:
    """Return the published hub checkpoint; raise E.NOT_FOUND before the first."""
    signed = hub.store.hub_log.published
    if signed is None:
        raise ApiError(Code.NOT_FOUND, "this hub has published no hub checkpoint yet")
    return signed


def _sharing(hub: Hub) -> str:
    """Return whether shared caches may store an answer: not if readers need a client certificate."""
    tls = hub.config.tls
    return "private" if tls is not None and tls.client_ca is not None else "public"
