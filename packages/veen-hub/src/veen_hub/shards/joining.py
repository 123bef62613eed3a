"""What must happen in one order across all parts: tokens, and the hub log (RESOLUTIONS P1, H5).

The hub log commits to every entry that is older than its newest head. So each round of the join

1. gives every shard the entries of the control label that it lacks,
2. lets all parts cover their entries in their own hub logs, until all have done so at the same hub_ts,
3. reads the new entries of these logs, and appends the newest head of each label to the joined hub log.

A token is appended to the control label and copied to all shards between two rounds, never during one. Then
a copied entry is never older than what a shard's own hub log has covered. While a shard does not answer,
there is no round and no authorization, and the other shards continue to accept messages.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from veen_core import cbor
from veen_core.errors import ApiError, VeenError
from veen_core.hub_log import LabelHead
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.rejection import Code
from veen_core.tlog.tiles import decode_bundle
from veen_core.tlog.tree_head import SignedHead, TreeHead
from veen_hub.ops.hub_log.memories import WHAT_HELPS
from veen_hub.pipeline.log_access import LogAccess
from veen_hub.shards.forwarding import PartClient
from veen_hub.shards.part_hub import FloorClock, KnownHistories, PartHubLog, PartPlace
from veen_storage.shards.control_store import ControlStore
from veen_storage.shards.joined_hub_log import JoinedUpTo
from veen_storage.shards.seen_hub_log import SeenHubLog
from veen_storage.shards.sharded_layout import CONTROL, owner_of, part_name

MAX_ATTEMPTS: Final = 8
"""Attempts to let all parts extend at one hub_ts; one fails if a new second begins meanwhile."""
CALL_SEC: Final = 10.0
MAX_CONTROL_ENTRIES: Final = 256
"""Entries of the control label that are copied in one call."""


class HistoryLostError(VeenError):
    """A part has less than another part has seen of it: its directory is older than the others."""


class Part(Protocol):
    """A part as the join sees it."""

    name: str

    async def extend(self, floor: UnixTime) -> PartPlace: ...
    async def close(self, floor: UnixTime) -> PartPlace: ...
    async def heads(self, start: int, end: int) -> bytes: ...
    async def root_at(self, size: int) -> bytes | None: ...


Cover = Callable[[Part, UnixTime], Awaitable[PartPlace]]
"""Lets a part cover its entries."""


async def extend(part: Part, floor: UnixTime) -> PartPlace:
    return await part.extend(floor)


class RemotePart:
    """A shard in a process of its own."""

    def __init__(self, client: PartClient) -> None:
        self.name = client.name
        self._client = client

    async def extend(self, floor: UnixTime) -> PartPlace:
        return await self._cover("extend", floor)

    async def close(self, floor: UnixTime) -> PartPlace:
        return await self._cover("close", floor)

    async def _cover(self, how: str, floor: UnixTime) -> PartPlace:
        answer = await self._client.call("POST", f"/part/{how}?floor={floor}", timeout_sec=CALL_SEC)
        found = json.loads(answer)
        return PartPlace(
            hub_ts=UnixTime(found["hub_ts"]),
            size=found["size"],
            root=bytes.fromhex(found["root"]),
            batch=found["batch"],
        )

    async def send_gate(self, state: bytes) -> None:
        """Let the shard take over the state of the signing gate."""
        await self._client.call("POST", "/part/gate", state, timeout_sec=CALL_SEC)

    async def last_batch(self) -> int:
        """Return the last durable batch of the shard's journal."""
        answer = await self._client.call("GET", "/part/batch", timeout_sec=CALL_SEC)
        return int(json.loads(answer)["last"])

    async def heads(self, start: int, end: int) -> bytes:
        return await self._client.call("GET", f"/part/heads?from={start}&to={end}")

    async def root_at(self, size: int) -> bytes | None:
        return await self._client.call("GET", f"/part/place?size={size}", timeout_sec=CALL_SEC) or None

    async def known(self) -> KnownHistories:
        """Return what the shard has seen of the control label and of the joined hub log."""
        found = json.loads(await self._client.call("GET", "/part/known", timeout_sec=CALL_SEC))
        return KnownHistories(
            control_seq=found["control_seq"],
            control_root=bytes.fromhex(found["control_root"]),
            hub_log_size=found["hub_log_size"],
            hub_log_root=bytes.fromhex(found["hub_log_root"]),
        )

    async def remember(self, head: TreeHead) -> None:
        """Let the shard record a hub checkpoint durably."""
        body = json.dumps({"size": head.size, "root": head.root.hex()}).encode()
        await self._client.call("POST", "/part/remember", body, timeout_sec=CALL_SEC)

    async def copy_control(self, frames: Sequence[bytes]) -> StreamSeq:
        """Append entries of the control label; return the last one that the shard has."""
        body = cbor.encode(list(frames))
        answer = json.loads(await self._client.call("POST", "/part/control", body, timeout_sec=CALL_SEC))
        return StreamSeq(answer["control"])


class OwnPart:
    """The control part, in this process."""

    name = part_name(CONTROL)

    def __init__(self, own: PartHubLog) -> None:
        self.extend = own.extend
        self.close = own.close
        self.heads = own.heads
        self.root_at = own.root_at


@dataclass(frozen=True, slots=True)
class _Round:
    """All parts' own hub logs at one moment."""

    hub_ts: UnixTime
    places: Mapping[int, PartPlace]


class Joining:
    """Joins the parts of one hub; used from the event loop."""

    def __init__(
        self,
        store: ControlStore,
        access: LogAccess,
        clock: FloorClock,
        *,
        own: OwnPart,
        shards: Mapping[int, RemotePart],
        control_label: Label,
    ) -> None:
        self._store = store
        self._access = access
        self._clock = clock
        self._shards = shards
        self._parts: dict[int, Part] = {CONTROL: own, **shards}
        self._control_label = control_label
        self._copied: dict[int, StreamSeq] = {}
        """The last entry of the control label that each shard has; unknown after its restart."""
        self._remembered: TreeHead | None = None
        """The newest hub checkpoint that every shard has recorded."""
        self._ends = 0
        """How often a shard has ended."""
        self.order = asyncio.Lock()
        """Held during a round, and while a token is authorized."""

    # --- tokens

    def forget(self, number: int) -> None:
        """Forget what a shard has, because its process has ended."""
        self._copied.pop(number, None)
        self._ends += 1

    async def copy_control(self) -> None:
        """Give every shard the entries of the control label that it lacks; raise unless all have them."""
        await asyncio.gather(*map(self._copy_to, self._shards))

    async def _copy_to(self, number: int) -> None:
        shard = self._shards[number]
        if number not in self._copied:
            self._copied[number] = await shard.copy_control(())
        while frames := await self.control_after(self._copied[number]):
            self._copied[number] = await shard.copy_control(frames)

    async def control_after(self, after: StreamSeq) -> list[bytes]:
        """Return entries of the control label after one, as frames."""
        head = self._store.read.head(self._control_label)
        if head is None or head.stream_seq <= after:
            return []
        start = StreamSeq(after + 1)
        found = await self._access.read(
            lambda: self._store.read.entries(self._control_label, start, MAX_CONTROL_ENTRIES)
        )
        return [entry.frame(entry.entry_hash) for entry in found]  # type: ignore[union-attr]  # never pruned

    # --- the hub log

    async def check_place(self, number: int) -> None:
        """Raise ``HistoryLostError`` if a part lacks what the coordinator has seen of it, or vice versa.

        A coordinator that was restored alone would sign a second history of the control label, and a second
        hub log. The shards have copies of the one, and remember the size and root of the other.
        """
        part = self._parts[number]
        upto = self._store.joined.joined_upto(part.name)
        if upto is not None and upto.size and await part.root_at(upto.size) != upto.root:
            raise HistoryLostError(
                f"{part.name} lacks entries that the hub log has: its directory is older than the others",
                action=WHAT_HELPS,
            )
        if number == CONTROL:
            return
        known = await self._shards[number].known()
        lacking = await self._access.read(lambda: self._lacking(known))
        if lacking is not None:
            raise HistoryLostError(
                f"{part.name} has seen a longer {lacking} than the coordinator has: parts/control or joined "
                "is older than the shards",
                action=WHAT_HELPS,
            )

    def _lacking(self, known: KnownHistories) -> str | None:
        """Return which history is not a continuation of what a shard has seen; None if all are."""
        read, log = self._store.read, self._store.joined.reader
        head, seq = read.head(self._control_label), StreamSeq(known.control_seq)
        if seq and (head is None or head.stream_seq < seq):
            return "control label"
        if seq and read.root(self._control_label, seq) != known.control_root:
            return "control label"
        if not SeenHubLog(known.hub_log_size, known.hub_log_root).is_continued_by(log):
            return "hub log"
        return None

    async def remember(self, head: TreeHead) -> None:
        """Let every shard record a hub checkpoint that is shown next; raise E.UNAVAILABLE unless all did."""
        if head != self._remembered:
            await asyncio.gather(*(shard.remember(head) for shard in self._shards.values()))
            self._remembered = head

    async def join(self, origin: str) -> SignedHead | None:
        """Run one round; None if no label has grown. Raise E.UNAVAILABLE while a shard does not answer."""
        async with self.order:
            ends = self._ends
            await self.copy_control()
            signed, _hub_ts = await self._round(origin, extend, ends)
            return signed

    async def close(self, origin: str) -> UnixTime:
        """Run the last round, while the gates of all parts are closed; return its hub_ts (P9)."""
        async with self.order:
            _signed, hub_ts = await self._round(origin, lambda part, floor: part.close(floor), self._ends)
            return hub_ts

    async def _round(self, origin: str, cover: Cover, ends: int) -> tuple[SignedHead | None, UnixTime]:
        """Run one round; raise if a shard has ended since there were ``ends`` of them."""
        found = await self._cover_all(cover)
        heads, upto = await self._new_heads(found)
        if self._ends != ends:  # the process that answered may be another one now
            raise ApiError(Code.UNAVAILABLE, "a shard ended while its heads were read", retry_after=1)
        joined, store = self._store.joined, self._store
        batches = {number: place.batch for number, place in found.places.items()}
        signed = await self._access.read(
            lambda: joined.extend(heads, origin, store.sign_hub_log_head, found.hub_ts, upto, batches=batches)
        )
        return signed, found.hub_ts

    async def _cover_all(self, cover: Cover) -> _Round:
        """Let all parts cover their entries at one hub_ts."""
        places: dict[int, PartPlace] = {}
        floor = max(self._clock.now(), self._store.joined.hub_ts)
        for _attempt in range(MAX_ATTEMPTS):
            behind = [
                number for number in self._parts if number not in places or places[number].hub_ts != floor
            ]
            made = await asyncio.gather(
                *(cover(self._parts[number], floor) for number in behind), return_exceptions=True
            )
            for number, place in zip(behind, made, strict=True):
                if isinstance(place, PartPlace):
                    places[number] = place
                    self._clock.raise_to(place.hub_ts)  # a token that follows is no older, whatever failed
            failed = [one for one in made if isinstance(one, BaseException)]
            if failed:
                raise failed[0]
            newest = max(place.hub_ts for place in places.values())
            if all(place.hub_ts == newest for place in places.values()):
                return _Round(newest, places)
            floor = newest
        raise ApiError(Code.UNAVAILABLE, "the parts of this hub did not agree on one time", retry_after=1)

    async def _new_heads(self, found: _Round) -> tuple[list[LabelHead], dict[str, JoinedUpTo]]:
        """Return the newest head of each label that has grown, in order of labels, from its owner's log."""
        heads: dict[Label, LabelHead] = {}
        upto: dict[str, JoinedUpTo] = {}
        for number, place in found.places.items():
            part = self._parts[number]
            before = self._store.joined.joined_upto(part.name)
            start = before.size if before is not None else 0
            if place.size < start:
                raise HistoryLostError(
                    f"{part.name} has lost entries that the hub log has", action=WHAT_HELPS
                )
            if place.size == start:
                continue
            upto[part.name] = JoinedUpTo(place.size, place.root)
            for data in decode_bundle(await part.heads(start, place.size)):
                head = LabelHead.decode(data)
                if self._owner(head.label) == number:
                    heads[head.label] = head
        newest = self._store.joined.newest_seq
        grown = await self._access.read(
            lambda: [head for head in heads.values() if head.upto_seq > newest(head.label)]
        )
        return sorted(grown, key=lambda head: head.label), upto

    def _owner(self, label: Label) -> int:
        return CONTROL if label == self._control_label else owner_of(label, len(self._shards))
