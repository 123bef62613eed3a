"""``connect`` of the blocking client: each connection runs an event loop in a thread of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veen_core.client_state import ClientBounds
from veen_core.keystore import Secrets
from veen_core.tlog.policy import WitnessPolicy
from veen_hub.client import connecting as asynchronous
from veen_hub.client.blocking.hub import BlockingHub
from veen_hub.client.connecting import LOCK_TIMEOUT_SEC, MAX_POW_DIFFICULTY, MESSAGES_PER_REQUEST
from veen_hub.client.identity import Identity, Randomness
from veen_hub.client.loop_thread import LoopThread
from veen_hub.client.state.store import StateStore
from veen_hub.client.tokens import TokenSource
from veen_hub.client.trust import Pin
from veen_hub.client.wire.retry import Retry
from veen_hub.client.wire.transport import Timeouts, Tls


@contextmanager
def connect(
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
) -> Iterator[BlockingHub]:
    """Connect to the hub at ``url``, if it is the one that ``trust`` names.

    ``successor`` is the address of the hub that replaces this one: after a signed handover, streams send
    there, if that hub is the one that the handover names (P9).
    ``identity`` holds the keys to sign and open with; a client that only verifies needs none. ``witnesses``
    is a witness policy or its file: a quorum of it must have cosigned the hub's log (P2). ``state`` is
    a folder or a ``StateStore``; without it, nothing survives the connection. ``tokens`` is an async function
    that returns a cap token when a gated hub demands one. ``bounds`` limits the use of one client_id,
    ``batch`` is the number of messages per request, ``lock_timeout`` the seconds to wait for a label that
    another process owns, and ``max_pow_difficulty`` the largest proof of work done for a message.
    """
    loop = LoopThread()
    try:
        opening = asynchronous.connect(
            url,
            identity,
            trust=trust,
            successor=successor,
            witnesses=witnesses,
            state=state,
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
        hub = loop.run(opening.__aenter__())
        try:
            yield BlockingHub(loop, hub)
        finally:
            loop.cancel_calls()
            loop.run(opening.__aexit__(None, None, None))
    finally:
        loop.close()
