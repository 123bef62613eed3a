"""Evidence that a hub signed two hub logs, for a third party that verifies it offline (P1)."""

from __future__ import annotations

import asyncio
import contextlib

from veen_core.errors import VeenError
from veen_core.hub_fork import CutTree, HubLogFork, verify_hub_log_fork
from veen_core.hub_identity import HubIdentity
from veen_core.ids import NodeHash
from veen_core.mmr import peak_positions, subtrees
from veen_core.tlog.tree_head import SignedHead
from veen_hub.client.hub_log.tile_reader import Fetch, TileReader


async def find_hub_log_fork(
    identity: HubIdentity, first: SignedHead, second: SignedHead, fetch: Fetch
) -> HubLogFork | None:
    """Return evidence that two hub checkpoints contradict each other; None if it cannot be made.

    If their sizes differ, the tiles of the larger tree are needed, and the hub may not serve them.
    """
    earlier, later = sorted((first, second), key=lambda each: each.head.size)
    with contextlib.suppress(VeenError):
        evidence = HubLogFork(
            identity=identity,
            origin=later.head.origin,
            earlier=earlier.encode(),
            later=later.encode(),
            cut=await _cut(later, earlier.head.size, fetch) if earlier.head.size < later.head.size else None,
        )
        verify_hub_log_fork(evidence)
        return evidence
    return None


async def _cut(signed: SignedHead, at: int, fetch: Fetch) -> CutTree:
    """Cut a tree at an earlier size, from its tiles."""
    reader = TileReader(fetch, signed.head)
    before = await asyncio.gather(*(reader.node(*place) for place in reversed(peak_positions(at))))
    after = await asyncio.gather(*(reader.node(*place) for place in subtrees(at, signed.head.size)))
    return CutTree(before=tuple(map(NodeHash, before)), after=tuple(map(NodeHash, after)))
