"""Realm follower: keeps the policy's view of the realm's admin streams up to date (spec-2 §8, H6).

The policy decides what to read and how to interpret it. This module gives the policy a pinned connection to
the hub that has the streams, and reconnects after every failure. While reading fails, the view ages; once it
is older than ``realm.max_view_age_sec``, the hub refuses all messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from veen_core.errors import (
    ConfigError,
    DecodeError,
    DivergenceError,
    IdentityError,
    OpenError,
    StateError,
    VeenError,
    VerificationError,
)
from veen_core.ids import Epoch, HubId, Label, StreamId, UnixTime
from veen_core.protocols import Clock
from veen_hub.admission.labels import LabelMap
from veen_hub.admission.policy import REALM, AdmissionPolicy, FollowingPolicy, PolicyServices, load_policy
from veen_hub.ops.config import HubConfig, RealmSettings
from veen_hub.ops.logs import log
from veen_hub.pipeline.log_access import LogAccess
from veen_storage import Layout, ViewStore
from veen_storage.copies.inherited import holder_of_stream

RETRY_SEC: Final = 0.5
"""Pause after a failure."""
REPEAT_LOG_SEC: Final = 60.0
"""A failure for the same reason is logged again after this time."""
REQUEST_SEC: Final = 2.0
"""Longest time one request is retried before the connection is made again."""


def policy_of(config: HubConfig, hub_id: HubId) -> AdmissionPolicy:
    """Load the policy that the level requires, or the one that the configuration names."""
    settings = config.realm
    if config.level == "core" or settings is None:
        return load_policy(config.policy.name, hub_id, config.policy.options)
    options = {
        "level": config.level,
        "realm": settings.id,
        "key": settings.key,
        "max_age_sec": settings.max_view_age_sec,
        "refresh_sec": settings.refresh_ms / 1_000,
        "rates": {name: (rate.per_sec, rate.burst) for name, rate in settings.rates.items()},
    }
    return load_policy(REALM, hub_id, options)


def failure_reason(error: Exception) -> str:
    """Return the stable key for a failure to follow the realm: the field ``reason`` of the log event."""
    # Imported here: only a hub that follows a realm needs the client.
    from veen_hub.client.errors import Refused, Unreachable  # noqa: PLC0415

    reasons: tuple[tuple[type[Exception], str], ...] = (
        (Unreachable, "unreachable"),
        (Refused, "refused"),
        (IdentityError, "wrong_hub"),
        (OpenError, "wrong_key"),
        (StateError, "not_carried_over"),
        (DivergenceError, "rolled_back"),
        (VerificationError, "invalid"),
        (DecodeError, "invalid"),
        (ConfigError, "config"),
    )
    return next((reason for kind, reason in reasons if isinstance(error, kind)), "internal")


class RealmFollowing:
    """Runs a ``FollowingPolicy`` while the hub listens; does nothing for other policies."""

    def __init__(
        self,
        policy: AdmissionPolicy,
        settings: RealmSettings | None,
        *,
        hub_id: HubId,
        layout: Layout,
        labels: LabelMap,
        log_access: LogAccess,
        clock: Clock,
        hub_ts: Callable[[], UnixTime],
        issuers: frozenset[bytes],
    ) -> None:
        self._policy = policy
        self._settings = settings
        self._hub_id = hub_id
        self._layout = layout
        self._labels = labels
        self._log = log_access
        self._clock = clock
        self._hub_ts = hub_ts
        self._issuers = issuers
        self._task: asyncio.Task[None] | None = None
        self._stores: dict[str, ViewStore] = {}

    def start(self, own_url: str) -> None:
        """Start following; ``own_url`` is used if this hub holds the admin streams itself."""
        if self._settings is not None and isinstance(self._policy, FollowingPolicy):
            self._task = asyncio.create_task(self._run(self._policy, self._settings, own_url))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for store in self._stores.values():
            store.close()
        self._stores = {}

    def _store(self, name: str) -> ViewStore:
        """Open a store once: LMDB does not allow a second opening in one process."""
        if name not in self._stores:
            self._stores[name] = ViewStore(self._layout.view(name))
        return self._stores[name]

    async def _run(self, policy: FollowingPolicy, settings: RealmSettings, own_url: str) -> None:
        logged, logged_at = "", 0.0
        while True:
            try:
                await self._follow(policy, settings, own_url)
            except Exception as exc:  # noqa: BLE001 - after any failure the view ages and the hub fails closed
                reason, now = failure_reason(exc), time.monotonic()
                level = logging.WARNING if isinstance(exc, VeenError) else logging.ERROR
                if reason != logged or now - logged_at >= REPEAT_LOG_SEC:
                    log(level, "realm_follow_failed", reason=reason, error=f"{type(exc).__name__}: {exc}")
                    logged, logged_at = reason, now
            await asyncio.sleep(RETRY_SEC)

    async def _follow(self, policy: FollowingPolicy, settings: RealmSettings, own_url: str) -> None:
        # Imported here: only a hub that follows a realm needs the client.
        from veen_hub.client.connecting import connect  # noqa: PLC0415
        from veen_hub.client.wire.retry import Retry  # noqa: PLC0415
        from veen_hub.client.wire.transport import Tls  # noqa: PLC0415

        url, trust = settings.url or own_url, settings.pinned or self._hub_id.hex()
        tls = Tls(ca=str(settings.ca)) if settings.ca is not None else None
        retry = Retry(max_attempts=3, deadline=REQUEST_SEC)
        async with connect(url, trust=trust, tls=tls, retry=retry) as source:
            await policy.follow(
                PolicyServices(
                    reader=source.log_reader(),
                    label_of=lambda stream: source.connection.label(stream, Epoch(0)),
                    epochs_of=source.epoch_labels,
                    stream_of=self._stream_of,
                    learn=self._learn,
                    store=self._store,
                    clock=self._clock,
                    inherited_from=self._inherited_from,
                    issuers=self._issuers,
                )
            )

    def _stream_of(self, label: Label) -> StreamId | None:
        """Find a label's stream; called in the sequencer's thread, which owns the label map."""
        return self._labels.look_up(label, self._hub_ts()).stream

    async def _inherited_from(self, stream: StreamId) -> HubId | None:
        if self._settings is None or self._settings.url is not None:
            return None
        return await asyncio.to_thread(holder_of_stream, self._layout.root, stream)

    async def _learn(self, streams: Iterable[StreamId]) -> None:
        known = tuple(streams)
        await self._log.act(lambda _batch: self._labels.learn(known), reads=True)
