"""``connect``: check the hub's identity, and open a connection to it or to its successor (§8.4, §9, P9)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from veen_core.client_state import ClientBounds
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_core.keystore import Secrets
from veen_core.profile import Profile
from veen_core.status import Status
from veen_core.tlog.policy import WitnessPolicy
from veen_hub.client.cutover import SilentHub, stored_handover
from veen_hub.client.errors import Unreachable
from veen_hub.client.hub import Hub
from veen_hub.client.hub_log import Confirmations, HubCheckpoints, load_policy
from veen_hub.client.identity import Identity, Randomness
from veen_hub.client.state.group_commit import GroupCommit
from veen_hub.client.state.records import decode_record
from veen_hub.client.state.store import FileStateStore, MemoryStateStore, StateStore
from veen_hub.client.tokens import TokenSource
from veen_hub.client.trust import Pin, check_profile, check_status
from veen_hub.client.wire.connection import IDENTITY_RECORD, PROFILE_RECORD, HubConnection, HubTime
from veen_hub.client.wire.endpoints import Endpoints
from veen_hub.client.wire.retry import Retry, retrying
from veen_hub.client.wire.shared_submits import MAX_SHARED_MESSAGES, SharedSubmits
from veen_hub.client.wire.threads import Workers
from veen_hub.client.wire.transport import Timeouts, Tls
from veen_hub.client.wire.transport_choice import transport_to

MESSAGES_PER_REQUEST: Final = 256
"""Messages per request. A request costs a sync on both sides and a round trip: with 64 messages per request
``send_many`` took 192 µs a message, with 128 it took 166, with 256 it took 162."""
LOCK_TIMEOUT_SEC: Final = 10.0
"""Seconds to wait for a label that another process owns."""
MAX_POW_DIFFICULTY: Final = 22
"""Largest proof of work done for a message: about six seconds of hashing."""


@asynccontextmanager
async def connect(
    url: str,
    identity: Identity | Secrets | None = None,
    *,
    trust: Pin,
    successor: str | None = None,
    witnesses: WitnessPolicy | Path | str | None = None,
    state: StateStore | Path | str | None = None,
    tokens: TokenSource | None = None,
    tls: Tls | None = None,
    timeouts: Timeouts | None = None,
    retry: Retry | None = None,
    bounds: ClientBounds | None = None,
    batch: int = MESSAGES_PER_REQUEST,
    lock_timeout: float = LOCK_TIMEOUT_SEC,
    max_pow_difficulty: int = MAX_POW_DIFFICULTY,
    randomness: Randomness = os.urandom,
) -> AsyncIterator[Hub]:
    """Connect to the hub at ``url``, if it is the one that ``trust`` names.

    The scheme of ``url`` names the transport: ``http(s)://``, ``h3://``, ``nats://host/prefix`` or ``file:///spool``.

    ``successor`` is the address of the hub that replaces this one: after a signed handover, streams send
    there, if that hub is the one that the handover names (P9).
    ``identity`` holds the keys to sign and open with; a client that only verifies needs none. ``witnesses``
    is a witness policy or its file: a quorum of it must have cosigned the hub's log (P2). ``state`` is
    a folder or a ``StateStore``; without it, nothing survives the connection. ``tokens`` is an async function
    that returns a cap token when a gated hub demands one. ``bounds`` limits the use of one client_id,
    ``batch`` is the number of messages per request, ``lock_timeout`` the seconds to wait for a label that
    another process owns, and ``max_pow_difficulty`` the largest proof of work done for a message.
    """
    watched = load_policy(witnesses) if witnesses is not None else None
    store = state if isinstance(state, StateStore) else FileStateStore(state) if state else MemoryStateStore()
    policy, workers = retry or Retry(), Workers()
    transport = transport_to(url, tls=tls, timeouts=timeouts or Timeouts())
    hub: Hub | None = None

    def connect_successor(address: str, new_hub: HubId) -> AbstractAsyncContextManager[Hub]:
        return connect(
            address,
            identity,
            trust=new_hub,
            witnesses=watched,
            state=store,
            tokens=tokens,
            tls=tls,
            timeouts=timeouts,
            retry=retry,
            bounds=bounds,
            batch=batch,
            lock_timeout=lock_timeout,
            max_pow_difficulty=max_pow_difficulty,
            randomness=randomness,
        )

    try:
        api = Endpoints(transport, workers)
        try:
            status = await retrying(policy, api.status, where=transport.url)
        except Unreachable:
            if successor is None or (record := stored_handover(store, trust)) is None:
                raise
            async with connect_successor(successor, record.new_hub) as new:
                new.predecessor = SilentHub(store, record.old_hub)
                yield new
            return
        await workers.run(_check_hub, store, status, trust)
        api.control_label = status.control_label
        connection = HubConnection(
            api=api,
            submits=SharedSubmits(api, min(batch, MAX_SHARED_MESSAGES)),
            status=status,
            identity=Identity.of(identity) if identity is not None else None,
            store=store,
            commits=GroupCommit(store, status.identity.hub_id, workers),
            retry=policy,
            bounds=bounds or ClientBounds(),
            workers=workers,
            randomness=randomness,
            time=HubTime(status.hub_ts),
            lock_timeout=lock_timeout,
            batch=batch,
            max_pow_difficulty=max_pow_difficulty,
        )
        hub = Hub(
            connection,
            tokens,
            await _watch(connection, watched) if watched is not None else None,
            partial(connect_successor, successor) if successor is not None else None,
        )
        if status.handover is not None:
            await hub.cut_over()
        yield hub.current
    finally:
        try:
            if hub is not None:
                await hub.close()
        finally:
            await transport.close()
            workers.close()


async def _watch(connection: HubConnection, policy: WitnessPolicy) -> Confirmations:
    """Accept the hub's newest checkpoint, or refuse a hub without a quorum of recent cosignatures (P2)."""
    checkpoints = HubCheckpoints(connection, policy)
    await checkpoints.refresh()
    checkpoints.check_age()
    return Confirmations(checkpoints)


def _check_hub(store: StateStore, status: Status, trust: Pin) -> None:
    """Check the hub against the pin, then against what this client has stored about it before (§8.4)."""
    check_status(status, trust)
    hub_id, shown = status.identity.hub_id, status.identity
    if (profile := store.load(hub_id, PROFILE_RECORD)) is not None:
        check_profile(status.profile, decode_record(Profile, profile, PROFILE_RECORD))
    else:
        store.save(hub_id, PROFILE_RECORD, status.profile.encode())
    content = store.load(hub_id, IDENTITY_RECORD)
    if content is not None:
        check_status(status, decode_record(HubIdentity, content, IDENTITY_RECORD))
    if content != shown.encode():
        store.save(hub_id, IDENTITY_RECORD, shown.encode())
