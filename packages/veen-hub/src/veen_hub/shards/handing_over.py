"""Handing a sharded hub over: the steps of ``replica.handover``, for all parts.

Step 3 is the last round of the joined hub log. Every shard's gate is closed before it begins, so no part
accepts anything after its place in that round. A shard that ends meanwhile ends the attempt: the hub stays
primary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from veen_core.handover import Handover
from veen_core.status import HandoverRequest
from veen_hub.pipeline.log_access import LogAccess
from veen_hub.pipeline.signing_gate import SigningGate
from veen_hub.pipeline.uploads import Uploads
from veen_hub.replica.handover import HandoverService
from veen_hub.shards.gate_copy import encode_gate
from veen_hub.shards.joining import Joining, RemotePart
from veen_storage.shards.control_store import ControlStore


class ShardedHandover(HandoverService):
    """Hands over one hub with several shards; used from the event loop."""

    def __init__(
        self,
        store: ControlStore,
        access: LogAccess,
        gate: SigningGate,
        uploads: Uploads,
        *,
        origin: str,
        joining: Joining,
        shards: Mapping[int, RemotePart],
    ) -> None:
        super().__init__(store, access, gate, uploads, origin=origin, hub_ts=lambda: store.hub_ts)
        self._joining = joining
        self._shards = shards

    async def _close(self, request: HandoverRequest) -> Handover:
        state = encode_gate(self._gate, has_ended=False)
        await asyncio.gather(*(shard.send_gate(state) for shard in self._shards.values()))
        hub_ts = await self._joining.close(self._origin)
        return await self._access.read(lambda: self._record(request, hub_ts))
