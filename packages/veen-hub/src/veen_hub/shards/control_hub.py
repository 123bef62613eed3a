"""The coordinator's hub: the control part, and the answers about the whole hub."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Final

from veen_core.errors import ApiError
from veen_core.handover import Handover
from veen_core.ids import AuthRef, ClientId, Label
from veen_core.rejection import Code
from veen_core.status import AuthorizeResponse, HandoverRequest
from veen_core.tlog.tree_head import SignedHead, TreeHead
from veen_hub.hub import Hub
from veen_hub.ops.anchors import AnchorPublisher
from veen_hub.ops.chores import Chore
from veen_hub.ops.config import HubConfig
from veen_hub.ops.hub_log import HubLogService
from veen_hub.ops.logs import log
from veen_hub.shards.forwarding import PartClient
from veen_hub.shards.handing_over import ShardedHandover
from veen_hub.shards.joining import Joining, OwnPart, RemotePart
from veen_hub.shards.merged_metrics import CounterHistory
from veen_hub.shards.merging import Merging
from veen_hub.shards.part_hub import FloorClock, PartHubLog
from veen_hub.shards.submit_link import decode_error
from veen_storage.shards.control_store import ControlStore
from veen_storage.shards.sharded_layout import ShardedLayout, owner_of

AUTHORIZE_SEC: Final = 20.0
"""How long an authorization waits for a shard that is being restarted."""
RETRY_SEC: Final = 0.1
ORDER_SEC: Final = 0.2
"""How often the merged journal is continued while a replica is connected."""


class JoinedHubLogService(HubLogService):
    """The hub log over all parts, with cadence, memories and witnesses of a hub with one shard."""

    def __init__(self, config: HubConfig, hub: ControlHub, anchor: AnchorPublisher | None) -> None:
        super().__init__(
            config,
            hub.store,
            hub.log,
            hub.signing_gate,
            metrics=hub.metrics,
            anchor=anchor,
            hub_ts=lambda: hub.hub_ts,
        )
        self._hub = hub

    async def _make_checkpoint(self) -> SignedHead | None:
        if not self._hub.are_shards_up() or self._hub.signing_gate.is_elsewhere:
            return None
        return await self._hub.joining.join(self.origin)

    async def _record(self, head: TreeHead) -> bool:
        """Record a head where a hub with one shard does, and in every shard, before it leaves the hub."""
        if not self._hub.are_shards_up() or not await super()._record(head):
            return False
        await self._hub.joining.remember(head)
        return True

    async def drain(self) -> None:
        """Make a last hub checkpoint, and let replicas have everything."""
        await super().drain()
        await self._hub.order_batches()


class ControlHub(Hub):
    """The control part: control label, attachments, and the hub log over all parts."""

    store: ControlStore

    def __init__(
        self,
        config: HubConfig,
        store: ControlStore,
        *,
        layout: ShardedLayout,
        clock: FloorClock,
        own_origin: str,
        shards: Mapping[int, PartClient],
        are_shards_up: Callable[[], bool],
        shards_load: Callable[[], float],
        anchor: AnchorPublisher | None,
    ) -> None:
        self._own_origin = own_origin
        self._floor_clock = clock
        self.shards = shards
        self.are_shards_up = are_shards_up
        self._shards_load = shards_load
        self.counter_history = CounterHistory()
        self.anchor = anchor
        super().__init__(config, store, clock=clock, anchor=anchor)
        own = PartHubLog(
            own_origin,
            store,
            store.own_hub_log,
            self.log,
            gate=self.signing_gate,
            clock=clock,
            last_batch=lambda: store.own_last_batch,
        )
        remote = {number: RemotePart(client) for number, client in shards.items()}
        self.joining = Joining(
            store,
            self.log,
            clock,
            own=OwnPart(own),
            shards=remote,
            control_label=self.admission.control_label,
        )
        self.merging = Merging(
            store, layout, self.log, self.joining, shards=remote, announcements=self.announcements
        )
        self.replica_source = self.merging
        self._handing_over = ShardedHandover(
            store,
            self.log,
            self.signing_gate,
            self.uploads,
            origin=self.hub_log.origin,
            joining=self.joining,
            shards=remote,
        )

    def _make_hub_log(self, anchor: AnchorPublisher | None) -> HubLogService:
        return JoinedHubLogService(self.config, self, anchor)

    def owner_of(self, label: Label) -> PartClient | None:
        """Return the shard that owns a label; None for the control label, which this process has."""
        if label == self.admission.control_label:
            return None
        return self.shards[owner_of(label, len(self.shards))]

    @property
    def highest_load(self) -> float:
        return max(self.load, self._shards_load())

    # --- replicas

    async def start(self) -> None:
        await super().start()
        self.merging.loop = asyncio.get_running_loop()
        chore = Chore("merged journal", self.order_batches, ORDER_SEC)
        self._chores.append(asyncio.create_task(chore.repeat()))

    async def order_batches(self) -> None:
        """Let connected replicas have what all parts have committed."""
        if self.announcements.replicas and self.are_shards_up():
            try:
                await self.merging.order()
            except ApiError as exc:  # a shard has just ended
                log(logging.INFO, "merged_journal_waits", error=str(exc))

    async def hand_over(self, request: HandoverRequest) -> Handover:
        """End this hub in favour of its successor; asking again returns the same record."""
        if self.handover is None and not self.are_shards_up():
            raise ApiError(Code.UNAVAILABLE, "a shard of this hub is being started", retry_after=1)
        return await super().hand_over(request)

    # --- tokens

    async def authorize(self, token_bytes: bytes) -> AuthorizeResponse:
        """Record a token (H5), and release its receipt once every shard has it."""
        deadline = asyncio.get_running_loop().time() + AUTHORIZE_SEC
        while True:
            try:
                if not self.are_shards_up():  # one of them may know a newer control label than this process
                    raise ApiError(Code.UNAVAILABLE, "a shard of this hub is being started", retry_after=1)
                async with self.joining.order:
                    answer = await self.authorization.authorize(token_bytes)
                    await self.joining.copy_control()
                    return answer
            except ApiError as exc:
                late = asyncio.get_running_loop().time() >= deadline
                if exc.code != Code.UNAVAILABLE or late or self.stopping.is_set():
                    raise
            await asyncio.sleep(RETRY_SEC)

    # --- attachments

    async def admit_attachment(
        self, label: Label, client: ClientId, auth_ref: AuthRef | None, size: int
    ) -> bytes:
        """Run the auth stage for an attachment (H17) where the label's state is: at its owner."""
        shard = self.owner_of(label)
        if shard is None:
            return await super().admit_attachment(label, client, auth_ref, size)
        asked = {
            "label": label.hex(),
            "client": client.hex(),
            "auth_ref": auth_ref.hex() if auth_ref is not None else None,
            "size": size,
        }
        answer = json.loads(await shard.call("POST", "/part/admit", json.dumps(asked).encode()))
        if "refused" in answer:
            raise decode_error(answer["refused"].encode())
        return bytes.fromhex(answer["writer"])
