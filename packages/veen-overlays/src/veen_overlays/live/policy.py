"""The admission policy of a hub above level core: follows the realm, answers from the view (spec-2 §8, H6).

A hub finds this policy by the entry point ``realm`` in the group ``veen_hub.policies``, calls it with its
hub_id and its settings, and runs ``follow`` while it listens. Streams that authority records name are made
known to the hub *before* the view that contains those records takes effect: a replica that does not know a
stream's label could not refuse messages for it.

Folded streams are kept in the store that the hub provides. After a restart the policy continues from there,
and detects a stream that was rolled back in the meantime.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from veen_core.cap import Rate
from veen_core.errors import ConfigError, DecodeError
from veen_core.hashing import H
from veen_core.ids import HubId, Label, StreamId
from veen_core.keys import DhKey
from veen_core.keystore import Secrets, is_exposed
from veen_core.protocols import Clock, LogReader
from veen_overlays.control.admission import ViewPolicy
from veen_overlays.control.policy import FOREVER_SEC, Level, PolicyView
from veen_overlays.identifiers import parse_realm
from veen_overlays.live.epochs import Epochs
from veen_overlays.live.realm import RealmFollower
from veen_overlays.summary_tree.store import SummaryStore


class HubServices(Protocol):
    """The services that a hub gives to a policy: the shape of veen-hub's ``PolicyServices``."""

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
    def store(self) -> Callable[[str], SummaryStore]: ...
    @property
    def issuers(self) -> frozenset[bytes]: ...
    @property
    def epochs_of(self) -> Callable[[StreamId], Epochs | None]: ...
    @property
    def inherited_from(self) -> Callable[[StreamId], Awaitable[HubId | None]]: ...


class RealmPolicy(ViewPolicy):
    """Admission policy that follows a realm; it accepts nothing without a view, or with a stale one."""

    def __init__(self, hub_id: HubId, options: Mapping[str, Any]) -> None:
        view = PolicyView(level=Level(options["level"]), realm=parse_realm(options["realm"]), hub_id=hub_id)
        rates = {name: Rate(per_sec=each[0], burst=each[1]) for name, each in options["rates"].items()}
        super().__init__(view, lambda _label: None, options["max_age_sec"], rates)
        self._keys = _read_keys(Path(options["key"]))
        self._refresh_sec: float = options["refresh_sec"]
        self._known: frozenset[StreamId] = frozenset()
        self._clock: Clock | None = None

    @property
    def _view_name(self) -> str:
        """The store name for this set of keys: another set opens other messages, so it has its own store."""
        return f"realm-{H(b''.join(key.public for key in self._keys)).hex()[:16]}"

    def retention(self) -> Mapping[Label, int]:
        """Retention by label (LCLASS0 6.2); a stale view prunes nothing and keeps its own streams."""
        if self._clock is None or self.view.stale(self._clock.now(), self._max_age_sec) is not None:
            return dict.fromkeys(self.view.own_labels, FOREVER_SEC)
        return super().retention()

    async def follow(self, services: HubServices) -> None:
        """Renew the view for ever; raise if a stream cannot be read or contradicts what was folded."""
        self._stream_of, self._clock = services.stream_of, services.clock
        follower = RealmFollower(
            self.view.realm,
            self.view.hub_id,
            self.view.level,
            reader=services.reader,
            label_of=services.label_of,
            key=self._keys,
            store=services.store(self._view_name),
            clock=services.clock,
            epochs_of=services.epochs_of,
            inherited_from=services.inherited_from,
            issuers=services.issuers,
        )
        while True:
            view = await follower.refresh()
            if not view.named_streams <= self._known:
                await services.learn(view.named_streams)
                self._known |= view.named_streams
            self.view = view
            self.stale(services.clock.now())  # updates the age in the status even if no message arrives
            await asyncio.sleep(self._refresh_sec)


def _read_keys(path: Path) -> tuple[DhKey, ...]:
    """Read the realm's reader keys from a file that only its owner may read."""
    try:
        if is_exposed(path.stat(), os.geteuid(), (os.getegid(), *os.getgroups())):
            raise ConfigError(
                f"realm.key: other users can read {path}", action=f"run `chmod 600 {path}` and start again"
            )
        return Secrets.decode(path.read_bytes()).dh_keys
    except OSError as exc:
        raise ConfigError(
            f"realm.key: cannot read {path}: {exc.strerror}",
            action="check the path and its permissions",
        ) from None
    except DecodeError:
        raise ConfigError(
            f"realm.key: {path} is not a file of secret keys",
            action="name the secrets.cbor of an identity that `veen keygen` made",
        ) from None
