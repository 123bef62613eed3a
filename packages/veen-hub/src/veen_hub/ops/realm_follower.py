"""A hub above level core follows its realm's admin streams while it listens (spec-2 §8, H6).

The policy says what to read and what it means; here is who reads it to whom: a connection to the hub that
holds the streams, pinned, made again whenever it fails. While it fails the view grows old, and a view that
is too old lets nothing in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from veen_core.errors import VeenError
from veen_core.ids import Epoch, HubId, Label, StreamId
from veen_hub.admission.policy import REALM, AdmissionPolicy, FollowingPolicy, Surroundings, load_policy
from veen_hub.ops.config import HubConfig, RealmSettings
from veen_hub.ops.logs import log
from veen_storage import ViewStore

if TYPE_CHECKING:
    from veen_hub.hub import Hub

AGAIN_SEC: Final = 0.5
"""After a failure."""
PATIENCE_SEC: Final = 2.0
"""How long one request is tried: the next round comes soon."""


def policy_of(config: HubConfig, hub_id: HubId) -> AdmissionPolicy:
    """The one that the level asks for, or the one that the configuration names."""
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


class Following:
    """Nothing, for a hub whose policy follows nothing."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._task: asyncio.Task[None] | None = None
        self._stores: dict[str, ViewStore] = {}

    def start(self, own_url: str) -> None:
        """``own_url`` is where this hub listens: its realm's streams may be its own."""
        policy, settings = self._hub.policy, self._hub.config.realm
        if settings is not None and isinstance(policy, FollowingPolicy):
            self._task = asyncio.create_task(self._run(policy, settings, own_url))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for store in self._stores.values():
            store.close()
        self._stores = {}

    def _store(self, name: str) -> ViewStore:
        """Opened once: LMDB takes no second opening in one process."""
        if name not in self._stores:
            self._stores[name] = ViewStore(self._hub.store.layout.view(name))
        return self._stores[name]

    async def _run(self, policy: FollowingPolicy, settings: RealmSettings, own_url: str) -> None:
        told = ""
        while True:
            try:
                await self._follow(policy, settings, own_url)
            except Exception as exc:  # noqa: BLE001 - whatever it is, the view grows stale and nothing is let in
                why = f"{type(exc).__name__}: {exc}"
                level = logging.WARNING if isinstance(exc, VeenError) else logging.ERROR
                if why != told:  # once, not twice a second
                    log(level, "the realm cannot be followed", why=why)
                told = why
            await asyncio.sleep(AGAIN_SEC)

    async def _follow(self, policy: FollowingPolicy, settings: RealmSettings, own_url: str) -> None:
        # Only a hub that follows a realm is a client too.
        from veen_hub.client.hub import connect  # noqa: PLC0415
        from veen_hub.client.wire.retry import Retry  # noqa: PLC0415
        from veen_hub.client.wire.transport import Tls  # noqa: PLC0415

        hub = self._hub
        url, trust = settings.url or own_url, settings.pinned or hub.identity.hub_id.hex()
        tls = Tls(ca=str(settings.ca)) if settings.ca is not None else None
        retry = Retry(max_attempts=3, deadline=PATIENCE_SEC)
        async with connect(url, trust=trust, tls=tls, retry=retry) as there:
            await policy.follow(
                Surroundings(
                    reader=there.log_reader(),
                    label_of=lambda stream: there.connection.label(stream, Epoch(0)),
                    epochs_of=there.epoch_labels,
                    stream_of=self._stream_of,
                    learn=self._learn,
                    store=self._store,
                    clock=hub.clock,
                )
            )

    def _stream_of(self, label: Label) -> StreamId | None:
        """In the sequencer, whose the map is."""
        return self._hub.labels.place(label, self._hub.hub_ts).stream

    async def _learn(self, streams: Iterable[StreamId]) -> None:
        known = tuple(streams)
        await self._hub.act(lambda _batch: self._hub.labels.learn(known), reads=True)
