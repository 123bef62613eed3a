"""The shared context of one connection: the hub's status and time, the API, and the state store."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from veen_core import stream
from veen_core.checkpoint import LabelOrigin
from veen_core.client import Trust
from veen_core.client_state import ClientBounds
from veen_core.ids import Epoch, HubId, Label, RoutingKey, StreamId, UnixTime
from veen_core.limits import Limits
from veen_core.profile import Profile
from veen_core.status import Status
from veen_hub.client.identity import Identity, Randomness
from veen_hub.client.state.group_commit import GroupCommit
from veen_hub.client.state.store import StateStore
from veen_hub.client.trust import check_profile, check_status
from veen_hub.client.wire.endpoints import Endpoints
from veen_hub.client.wire.retry import MIN_ANSWER_SECONDS, Retry, retrying
from veen_hub.client.wire.shared_submits import SharedSubmits
from veen_hub.client.wire.threads import Workers

T = TypeVar("T")
IDENTITY_RECORD: Final = "identity"
"""The record with the hub's identity as last seen."""
PROFILE_RECORD: Final = "fixed/profile"
"""The record with the hub's profile as first seen; its folder separates it from the labels' records."""


class HubTime:
    """The hub's clock: the time last received, advanced by the local monotonic clock (§12).

    A status is not signed. Irreversible steps therefore use ``signed``, the newest hub_ts of a receipt.
    """

    def __init__(self, hub_ts: UnixTime) -> None:
        self._hub_ts = hub_ts
        self._heard = time.monotonic()
        self.signed = UnixTime(0)

    def observe(self, hub_ts: UnixTime) -> None:
        """Advance the clock to the time of a verified receipt; it never goes back (H3)."""
        self.signed = max(self.signed, hub_ts)
        if hub_ts >= self.now():
            self.set(hub_ts)

    def set(self, hub_ts: UnixTime) -> None:
        """Set the clock to the time of a status; this may set it back."""
        self._hub_ts, self._heard = hub_ts, time.monotonic()

    def exact(self) -> float:
        """The hub's time now, in seconds with fractions."""
        return self._hub_ts + (time.monotonic() - self._heard)

    def now(self) -> UnixTime:
        """The hub's time now, in whole seconds."""
        return UnixTime(int(self.exact()))


@dataclass(slots=True, kw_only=True)
class HubConnection:
    """The shared context of one connection."""

    api: Endpoints
    submits: SharedSubmits
    status: Status
    identity: Identity | None
    store: StateStore
    commits: GroupCommit
    retry: Retry
    bounds: ClientBounds
    workers: Workers
    randomness: Randomness
    time: HubTime
    lock_timeout: float
    """Seconds to wait for a record that another process has locked."""
    batch: int
    """Messages per request."""
    max_pow_difficulty: int

    @property
    def hub_id(self) -> HubId:
        return self.status.identity.hub_id

    @property
    def profile(self) -> Profile:
        return self.status.profile

    @property
    def limits(self) -> Limits:
        return self.status.limits

    @property
    def routing_key(self) -> RoutingKey:
        return stream.routing_key(self.hub_id)

    @property
    def epoch(self) -> Epoch:
        """The hub's current epoch."""
        return stream.epoch_at(self.time.now(), self.profile.epoch_sec)

    def label(self, stream_id: StreamId, epoch: Epoch) -> Label:
        return stream.label(self.routing_key, stream_id, epoch)

    def origin(self, stream_id: StreamId) -> LabelOrigin:
        """Return the values from which a stream's labels are derived (H4)."""
        return LabelOrigin(
            routing_key=self.routing_key,
            stream_id=stream_id,
            epoch_sec=self.profile.epoch_sec,
            max_skew_sec=self.limits.max_epoch_skew_sec,
        )

    def trust(self, origin: LabelOrigin | None) -> Trust:
        """Return the keys, profile and limits that a label's log is verified against."""
        return Trust(identity=self.status.identity, profile=self.profile, limits=self.limits, origin=origin)

    async def ask(self, call: Callable[[], Awaitable[T]], *, min_seconds: float = MIN_ANSWER_SECONDS) -> T:
        """Repeat an idempotent request until it is answered; each attempt may take ``min_seconds``."""
        return await retrying(self.retry, call, where=self.api.transport.url, min_seconds=min_seconds)

    async def refresh(self) -> None:
        """Read the status again. The hub's identity may have gained keys; nothing else may differ (§8.4)."""
        status = await self.ask(self.api.status)
        check_status(status, self.status.identity, seen=self.time.signed)
        check_profile(status.profile, self.status.profile)
        if status.identity != self.status.identity:
            await self.workers.run(self.store.save, self.hub_id, IDENTITY_RECORD, status.identity.encode())
        self.status = status
        self.time.set(status.hub_ts)
