"""The coordinator's answers about the whole hub, from those of its parts."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, cast

from veen_core import cbor
from veen_core.checkpoint import Checkpoint
from veen_core.errors import ApiError
from veen_core.ids import Label, StreamSeq
from veen_core.rejection import Code
from veen_core.status import CheckpointsResponse, RetentionResponse
from veen_hub.api import tooling
from veen_hub.api.content import (
    CBOR,
    MAX_REQUEST_BYTES,
    content_type_of,
    json_reply,
    over_the_cap,
    read_body,
    respond,
)
from veen_hub.api.reading import checkpoints_reply, number_of, read_checkpoints
from veen_hub.api.reply import AnyReply, Reply
from veen_hub.api.request import ApiRequest
from veen_hub.api.routes import API_ROUTES, Route
from veen_hub.shards.control_hub import ControlHub
from veen_hub.shards.forwarding import PartClient
from veen_hub.shards.merged_metrics import merge
from veen_hub.shards.routing import ANSWERED_HERE
from veen_hub.version import VERSION
from veen_storage.shards.sharded_layout import part_name

READY_SEC: Final = 5.0


def control_routes() -> list[Route]:
    """Return the routes of the coordinator: those of a hub, and others for what concerns all parts."""
    merged: Mapping[tuple[str, str], Callable[[ApiRequest], Awaitable[AnyReply]]] = {
        ("POST", "/tooling/authorize"): authorize,
        ("POST", "/tooling/checkpoint"): checkpoint,
        ("POST", "/tooling/anchor"): anchor,
        ("POST", "/tooling/retention"): retention,
        ("GET", "/v1/checkpoint"): checkpoints,
    }
    routes = []
    for route in API_ROUTES:
        key = (route.method, route.pattern)
        if key in ANSWERED_HERE:
            continue  # by the shard that accepted the request
        routes.append(dataclasses.replace(route, handler=merged.get(key, route.handler)))
    return routes


def _hub(request: ApiRequest) -> ControlHub:
    return cast(ControlHub, request.hub)


async def authorize(request: ApiRequest) -> Reply:
    """``POST /tooling/authorize``: take in a cap token; every shard has it before the answer (H5)."""
    hub = _hub(request)
    content_type = content_type_of(request.headers)
    if content_type != CBOR:
        raise ApiError(
            Code.BAD_REQUEST, f"Content-Type {content_type} is not accepted: send the token as {CBOR}"
        )
    token = await read_body(request, MAX_REQUEST_BYTES, hub.config.listen.request_timeout_sec, over_the_cap)
    return respond(request, await hub.authorize(token))


async def checkpoint(request: ApiRequest) -> Reply:
    """``POST /tooling/checkpoint``: make checkpoints now, of one label or of all that grew."""
    return await _at_owners(request, "checkpoint", _hub(request).upkeep.checkpoint)


async def anchor(request: ApiRequest) -> Reply:
    """``POST /tooling/anchor``: publish the newest checkpoints now."""
    hub = _hub(request)
    if hub.anchor is None:
        return await tooling.anchor(request)  # says so
    return await _at_owners(request, "anchor", hub.upkeep.anchor)


async def _at_owners(
    request: ApiRequest, what: str, own: Callable[[Label | None], Awaitable[list[Checkpoint]]]
) -> Reply:
    """Do something about the checkpoints of one label, or of all, where the labels are."""
    hub = _hub(request)
    asked = await tooling.signed_label_request(request)
    made: list[Checkpoint] = []
    owner = hub.owner_of(asked.label) if asked.label is not None else None
    if owner is None:
        made += await own(asked.label)
    shards = [owner] if owner is not None else list(hub.shards.values()) if asked.label is None else []
    body = json.dumps({"label": asked.label.hex() if asked.label is not None else None}).encode()
    for shard in shards:
        answer = await shard.call("POST", f"/part/{what}", body)
        made += map(Checkpoint.decode, cbor.split_sequence(answer))
    return respond(request, CheckpointsResponse(checkpoints=tuple(made), server_version=VERSION))


async def retention(request: ApiRequest) -> Reply:
    """``POST /tooling/retention``: apply the retention rules now."""
    hub = _hub(request)
    await tooling.signed_label_request(request)
    chunks = entries = 0
    for shard in hub.shards.values():
        answer = json.loads(await shard.call("POST", "/part/retention"))
        chunks, entries = chunks + answer["chunks"], entries + answer["entries"]
    return respond(request, RetentionResponse(chunks=chunks, entries=entries, server_version=VERSION))


async def checkpoints(request: ApiRequest) -> Reply:
    """``GET /v1/checkpoint?epoch_min=A&epoch_max=B``: serve checkpoints of all labels (spec-1 §16).

    One part after another, each page from one of them; ``Veen-Next`` leads through all. A page may be empty.
    """
    hub = _hub(request)
    at = number_of(request, "part", 0)
    if at > len(hub.shards):
        raise ApiError(Code.BAD_REQUEST, f"part: this hub has {len(hub.shards)} shards")
    if at == 0:
        given, following = await read_checkpoints(request)
    else:
        query = "&".join(f"{name}={value}" for name, value in request.query.items() if name != "part")
        headers, data = await hub.shards[at - 1].get(f"/v1/checkpoint?{query}")
        control = hub.admission.control_label
        made = map(Checkpoint.decode, cbor.split_sequence(data))
        given, following = [one for one in made if one.label_curr != control], headers.get("Veen-Next")
    if following is not None:
        following += f"&part={at}"
    elif at < len(hub.shards):
        first, last = number_of(request, "epoch_min", 0), number_of(request, "epoch_max", 2**63)
        following = f"epoch_min={first}&epoch_max={last}&part={at + 1}"
    return checkpoints_reply(request, given, following)


async def readyz(request: ApiRequest) -> Reply:
    """Report that every part is ready, or 503 and which one is not, and why."""
    hub = _hub(request)
    why = await _why_not_ready(hub)
    if why is not None:
        return json_reply(json.dumps({"ok": False, "why": why}), 503)
    return json_reply(json.dumps({"ok": True}))


async def _why_not_ready(hub: ControlHub) -> str | None:
    why = await hub.readiness.problem()
    if why is None:
        found = await asyncio.gather(*(_problem(number, client) for number, client in hub.shards.items()))
        why = next((one for one in found if one is not None), None)
    hub.metrics.ready.set(0 if why else 1)
    return why


async def _problem(number: int, client: PartClient) -> str | None:
    try:
        why = json.loads(await client.call("GET", "/part/ready", timeout_sec=READY_SEC))["why"]
    except ApiError as exc:
        return str(exc)
    return f"{part_name(number)}: {why}" if why is not None else None


async def metrics(request: ApiRequest) -> Reply:
    """Report the metrics of all parts as those of one hub; a part that is silent keeps its last values."""
    hub = _hub(request)
    hub.refresh_gauges()
    answers = await asyncio.gather(
        *(client.call("GET", "/metrics", timeout_sec=READY_SEC) for client in hub.shards.values()),
        return_exceptions=True,
    )
    texts = {
        number: answer if isinstance(answer, bytes) else None
        for number, answer in zip(hub.shards, answers, strict=True)
    }
    if None in texts.values():
        hub.metrics.ready.set(0)
    kind = "text/plain; version=0.0.4; charset=utf-8"
    return Reply(200, merge(hub.metrics.expose(), texts, hub.counter_history), kind)


async def control_entries(request: ApiRequest) -> Reply:
    """``GET /part/control?after=N``: entries of the control label, for a shard that starts."""
    hub = _hub(request)
    frames = await hub.joining.control_after(StreamSeq(number_of(request, "after", 0)))
    return Reply(200, cbor.encode(frames), CBOR)
