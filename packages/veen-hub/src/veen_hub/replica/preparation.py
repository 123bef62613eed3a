"""Before a replica opens its directory: the first copy of the primary, and the primary's newer keys (P9).

A directory that exists already is never copied again: the replica continues where it stopped. If the primary
cannot be reached, an existing replica starts without asking it.
"""

from __future__ import annotations

import asyncio
import logging

from veen_core import hub_identity
from veen_core.errors import IdentityError, VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Signature
from veen_core.status import Status
from veen_hub.client.errors import Unreachable
from veen_hub.ops.config import HubConfig
from veen_hub.ops.logs import log
from veen_hub.replica.primary import Primary, check_pinned
from veen_storage import Layout, read_registry
from veen_storage.copies.replica_identity import adopt_identity, check_without_keys
from veen_storage.copies.snapshot import SnapshotTarget


async def prepare_replica(config: HubConfig) -> None:
    """Make the data directory of a replica ready to be opened."""
    layout = Layout(config.data_dir)
    check_without_keys(layout, config.keys_dir)
    primary = Primary(config)
    try:
        if not layout.version.exists():
            await _copy(config, primary, layout)
        else:
            await _refresh(config, primary, layout)
    finally:
        await primary.close()


async def _refresh(config: HubConfig, primary: Primary, layout: Layout) -> None:
    hub_id = read_registry(layout).hub_id
    check_pinned(config, hub_id)
    try:
        status = await primary.status()
    except Unreachable as exc:
        log(logging.WARNING, "primary_unreachable", error=str(exc))
        return
    check_identity(status.identity, status.identity_sig, hub_id)
    try:
        adopt_identity(layout, hub_id, status.identity, status.identity_sig)
    except IdentityError as exc:  # an older record: the follower stops, and what is here stays readable
        log(logging.ERROR, "identity_refused", error=str(exc))


async def _copy(config: HubConfig, primary: Primary, layout: Layout) -> None:
    status = await primary.status()
    hub_id = _first_identity(config, status)
    log(logging.INFO, "replica_copying", hub_id=hub_id.hex(), primary=primary.url)
    target = await asyncio.to_thread(SnapshotTarget, layout.root, hub_id)
    async for items in primary.snapshot():
        await asyncio.to_thread(_take_all, target, items)
    batch = await asyncio.to_thread(target.finish)
    log(logging.INFO, "replica_copied", hub_id=hub_id.hex(), bytes=target.bytes_received, batch=batch)


def _take_all(target: SnapshotTarget, items: list[bytes]) -> None:
    for item in items:
        target.take(item)


def _first_identity(config: HubConfig, status: Status) -> HubId:
    hub_id = status.identity.hub_id
    check_pinned(config, hub_id)
    check_identity(status.identity, status.identity_sig, hub_id)
    if config.replica_pinned is None:
        note = "the hub at this address is taken for the primary"
        log(logging.WARNING, "replica_unpinned", hub_id=hub_id.hex(), note=note, action="set replica_pinned")
    return hub_id


def check_identity(identity: HubIdentity, signature: Signature, hub_id: HubId) -> None:
    """Raise unless the identity record is that of the hub, with a valid signature (core §8.4)."""
    try:
        hub_identity.verify_identity(identity, pinned=hub_id)
        hub_identity.verify_identity_signature(identity, signature)
    except VeenError as exc:
        raise VeenError(
            f"the hub at replica_of is not the primary of this replica: {exc}",
            action="check the address; a replica of another hub needs a data directory of its own",
        ) from exc
