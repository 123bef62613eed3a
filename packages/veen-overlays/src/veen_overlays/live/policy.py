"""The policy of a hub above level core: follows its realm and answers from the view (spec-2 §8, H6).

A hub finds it by the entry point ``realm`` of the group ``veen_hub.policies``, calls it with its hub_id and
its settings, and runs ``follow`` while it listens. The streams that authority records name are made known
to the hub *before* the view that has them counts: a replica that could not tell a stream's label would
accept for it.

What was folded is kept in the store that the hub hands over, so a restart takes it up, and what the streams
once said they may not take back.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from veen_core.cap import Rate
from veen_core.errors import ConfigError, DecodeError
from veen_core.hashing import H
from veen_core.ids import HubId, Label, StreamId
from veen_core.keys import DhKey
from veen_core.keystore import Secrets
from veen_core.protocols import Clock, LogReader
from veen_overlays.control.admission import ViewPolicy
from veen_overlays.control.policy import FOREVER_SEC, Level, PolicyView
from veen_overlays.identifiers import RealmId, realm_id
from veen_overlays.live.epochs import Epochs
from veen_overlays.live.realm import RealmFollower
from veen_overlays.summary_tree.store import Store


class HubServices(Protocol):
    """What the hub hands over: ``veen_hub.admission.policy.Surroundings``, by shape."""

    @property
    def reader(self) -> LogReader: ...
    @property
    def label_of(self) -> Callable[[StreamId], Label]: ...
    @property
    def stream_of(self) -> Callable[[Label], StreamId | None]: ...
    @property
    def learn(self) -> Callable[[Iterable[StreamId]], Awaitable[None]]: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def store(self) -> Callable[[str], Store]: ...
    @property
    def epochs_of(self) -> Callable[[StreamId], Epochs | None]: ...


class RealmPolicy(ViewPolicy):
    """Before the first view, and from one that is too old, nothing is accepted."""

    def __init__(self, hub_id: HubId, options: Mapping[str, Any]) -> None:
        view = PolicyView(level=Level(options["level"]), realm=_realm(options["realm"]), hub_id=hub_id)
        rates = {name: Rate(per_sec=each[0], burst=each[1]) for name, each in options["rates"].items()}
        super().__init__(view, lambda _label: None, options["max_age_sec"], rates)
        self._keys = _keys(Path(options["key"]))
        self._refresh_sec: float = options["refresh_sec"]
        self._known: frozenset[StreamId] = frozenset()
        self._clock: Clock | None = None

    @property
    def _view_name(self) -> str:
        """A view of other keys is another view: what a key does not open is nothing to it."""
        return f"realm-{H(b''.join(key.public for key in self._keys)).hex()[:16]}"

    def retention(self) -> Mapping[Label, int]:
        """LCLASS0 6.2; by a view too old nothing is pruned, and the labels it knows as own are kept."""
        if self._clock is None or self.view.stale(self._clock.now(), self._max_age_sec) is not None:
            return dict.fromkeys(self.view.own_labels, FOREVER_SEC)
        return super().retention()

    async def follow(self, around: HubServices) -> None:
        """Renew the view, for ever; whatever cannot be read or contradicts itself is raised."""
        self._stream_of, self._clock = around.stream_of, around.clock
        follower = RealmFollower(
            self.view.realm,
            self.view.hub_id,
            self.view.level,
            reader=around.reader,
            label_of=around.label_of,
            key=self._keys,
            store=around.store(self._view_name),
            clock=around.clock,
            epochs_of=around.epochs_of,
        )
        while True:
            view = await follower.refresh()
            if not view.named_streams <= self._known:
                await around.learn(view.named_streams)
                self._known |= view.named_streams
            self.view = view
            self.stale(around.clock.now())  # a status is of this moment, also of a hub that nobody writes to
            await asyncio.sleep(self._refresh_sec)


def _realm(text: str) -> RealmId:
    try:
        return RealmId.from_hex(text)
    except DecodeError:
        return realm_id(text)


def _keys(path: Path) -> tuple[DhKey, ...]:
    """The secrets of the realm's reader, which nobody else may read."""
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"realm.key: {path} can be read by others: `chmod 600 {path}` first")
        return Secrets.decode(path.read_bytes()).dh_keys
    except OSError as exc:
        raise ConfigError(f"realm.key: {path}: {exc.strerror}") from None
    except DecodeError:
        raise ConfigError(f"realm.key: {path} does not hold secrets: `veen keygen` makes them") from None
