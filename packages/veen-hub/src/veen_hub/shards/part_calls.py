"""The calls between coordinator and shard, as a shard answers them at its unix socket.

| call | |
|---|---|
| ``GET /part/place?size=N`` | root of the first N entries of the part's own hub log, or nothing |
| ``POST /part/extend?floor=T`` | cover every entry so far, at T or later; end of the part's own hub log |
| ``POST /part/close?floor=T`` | the same for the last time, while the gate is closed |
| ``GET /part/heads?from=A&to=B`` | entries of the part's own hub log |
| ``GET /part/batch`` | the last durable batch of the part's journal |
| ``GET /part/known`` | what the part has seen of the control label and of the hub log of all parts |
| ``POST /part/remember`` | record durably the hub checkpoint that is shown next |
| ``POST /part/control`` | append entries of the control label; the last one that the part has |
| ``POST /part/gate`` | let the part sign, or stop it; how many messages wait there |
| ``POST /part/serve`` | listen at the hub's address |
| ``GET /part/ready`` | why the part cannot accept messages, or nothing |
| ``POST /part/admit`` | run the auth stage for an attachment (H17) |
| ``POST /part/checkpoint``, ``/part/anchor``, ``/part/retention`` | upkeep now, at an admin's request |
| ``POST /part/drain``, ``/part/stop`` | accept nothing more, and settle what was accepted; end |

Only processes of the hub's user reach the socket.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from veen_core import cbor
from veen_core.checkpoint import Checkpoint
from veen_core.errors import AdmissionError, ApiError
from veen_core.ids import AuthRef, ClientId, Label, UnixTime
from veen_core.rejection import Code
from veen_hub.api.content import json_reply
from veen_hub.api.reading import number_of
from veen_hub.api.reply import Reply
from veen_hub.api.request import ApiRequest
from veen_hub.api.routes import Route
from veen_hub.shards.part_hub import PartPlace
from veen_hub.shards.shard_hub import ShardHub
from veen_hub.shards.submit_link import encode_error

MAX_CONTROL_BYTES: Final = 8 * 1_048_576
BYTES: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class PartCalls:
    """Answers the calls of the coordinator in one shard's process."""

    hub: ShardHub
    serve: Callable[[], Awaitable[None]]
    drain: Callable[[], Awaitable[None]]
    stop: Callable[[], None]

    def routes(self) -> list[Route]:
        posts: dict[str, Callable[[ApiRequest], Awaitable[Reply]]] = {
            "extend": self._extend,
            "close": self._close,
            "remember": self._remember,
            "control": self._control,
            "gate": self._gate,
            "serve": self._serve,
            "admit": self._admit,
            "checkpoint": self._checkpoint,
            "anchor": self._anchor,
            "retention": self._retention,
            "drain": self._drain,
            "stop": self._stop,
        }
        gets = {
            "place": self._place,
            "heads": self._heads,
            "known": self._known,
            "batch": self._batch,
            "ready": self._ready,
        }
        return [
            *(Route("POST", f"/part/{name}", handler) for name, handler in posts.items()),
            *(Route("GET", f"/part/{name}", handler) for name, handler in gets.items()),
        ]

    # --- the hub log

    async def _place(self, request: ApiRequest) -> Reply:
        root = await self.hub.hub_log.root_at(number_of(request, "size", 0))
        return Reply(200, root or b"", BYTES)

    async def _extend(self, request: ApiRequest) -> Reply:
        return _placed(await self.hub.hub_log.extend(UnixTime(number_of(request, "floor", 0))))

    async def _close(self, request: ApiRequest) -> Reply:
        return _placed(await self.hub.hub_log.close(UnixTime(number_of(request, "floor", 0))))

    async def _batch(self, _request: ApiRequest) -> Reply:
        return json_reply(json.dumps({"last": self.hub.store.last_batch}))

    async def _heads(self, request: ApiRequest) -> Reply:
        start, end = number_of(request, "from", 0), number_of(request, "to", 0)
        return Reply(200, await self.hub.hub_log.heads(start, end), BYTES)

    async def _known(self, _request: ApiRequest) -> Reply:
        known = await self.hub.known_histories()
        return json_reply(
            json.dumps(
                {
                    "control_seq": known.control_seq,
                    "control_root": known.control_root.hex(),
                    "hub_log_size": known.hub_log_size,
                    "hub_log_root": known.hub_log_root.hex(),
                }
            )
        )

    async def _remember(self, request: ApiRequest) -> Reply:
        asked: dict[str, Any] = json.loads(await _body(request))
        await self.hub.remember_hub_log(asked["size"], bytes.fromhex(asked["root"]))
        return json_reply("{}")

    # --- tokens

    async def _control(self, request: ApiRequest) -> Reply:
        body = await _body(request)
        frames = [bytes(frame) for frame in cbor.decode_items(body)] if body else []
        return json_reply(json.dumps({"control": await self.hub.copy_control(frames)}))

    # --- running

    async def _gate(self, request: ApiRequest) -> Reply:
        """Open or close the signing gate as the coordinator's is (RESOLUTIONS P3)."""
        if self.hub.gate_copy.take(await _body(request)):
            await self.hub.upkeep.stop()  # the hub has handed over
        return json_reply(json.dumps({"load": self.hub.load}))

    async def _serve(self, _request: ApiRequest) -> Reply:
        await self.serve()
        return json_reply("{}")

    async def _ready(self, _request: ApiRequest) -> Reply:
        return json_reply(json.dumps({"why": await self.hub.readiness.problem()}))

    async def _drain(self, _request: ApiRequest) -> Reply:
        await self.drain()
        return json_reply("{}")

    async def _stop(self, _request: ApiRequest) -> Reply:
        self.stop()
        return json_reply("{}")

    # --- requests about labels of this part

    async def _admit(self, request: ApiRequest) -> Reply:
        asked: dict[str, Any] = json.loads(await _body(request))
        auth_ref = AuthRef.from_hex(asked["auth_ref"]) if asked["auth_ref"] is not None else None
        label, client = Label.from_hex(asked["label"]), ClientId.from_hex(asked["client"])
        try:
            writer = await self.hub.admit_attachment(label, client, auth_ref, asked["size"])
        except (AdmissionError, ApiError) as exc:
            return json_reply(json.dumps({"refused": encode_error(exc).decode()}))
        return json_reply(json.dumps({"writer": writer.hex()}))

    async def _checkpoint(self, request: ApiRequest) -> Reply:
        return await self._at_labels(request, self.hub.upkeep.checkpoint)

    async def _anchor(self, request: ApiRequest) -> Reply:
        return await self._at_labels(request, self.hub.upkeep.anchor)

    async def _at_labels(
        self, request: ApiRequest, do: Callable[[Label | None], Awaitable[list[Checkpoint]]]
    ) -> Reply:
        asked: dict[str, Any] = json.loads(await _body(request))
        made = await do(Label.from_hex(asked["label"]) if asked["label"] is not None else None)
        control = self.hub.admission.control_label
        return Reply(200, b"".join(one.encode() for one in made if one.label_curr != control), BYTES)

    async def _retention(self, _request: ApiRequest) -> Reply:
        chunks, entries = await self.hub.upkeep.prune()
        return json_reply(json.dumps({"chunks": chunks, "entries": entries}))


async def _body(request: ApiRequest) -> bytes:
    parts, size = [], 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > MAX_CONTROL_BYTES:
            raise ApiError(Code.LIMIT, "a call between parts is too large")
        parts.append(part)
    return b"".join(parts)


def _placed(place: PartPlace) -> Reply:
    found = {
        "hub_ts": place.hub_ts,
        "size": place.size,
        "root": place.root.hex(),
        "batch": place.batch,
    }
    return json_reply(json.dumps(found))
