"""Follows the admin streams of a realm and keeps the policy view of a hub up to date (spec-2, H6).

A view's age counts from the moment *before* its streams were read to their ends: what a hub did not know
then, it may still not know. A stream that cannot be read, or contradicts itself, leaves the old view in
place, which grows stale, and a stale view lets nothing in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from veen_core.errors import VeenError
from veen_core.ids import HubId, Label, StreamId
from veen_core.keys import DhKey
from veen_core.protocols import Clock, LogReader
from veen_overlays.control.admission import ViewPolicy
from veen_overlays.control.policy import Bound, Level, PolicyView
from veen_overlays.control.state import AUTHORITIES, LABEL_CLASSES, REVOCATIONS, SCHEMAS
from veen_overlays.identifiers import RealmId
from veen_overlays.live.materializer import Materializer
from veen_overlays.overlay import Overlay
from veen_overlays.store import Store

FOLDED_BY: Final[dict[str, tuple[str, Overlay[Any]]]] = {
    "authority": ("authorities", AUTHORITIES),
    "revocation": ("revocations", REVOCATIONS),
    "label-class": ("classes", LABEL_CLASSES),
    "meta-schema": ("schemas", SCHEMAS),
}
"""Of each admin stream: which part of the view it is, and its overlay."""


class RealmFollower:
    """One realm, seen by one hub with a key it was given."""

    def __init__(
        self,
        realm: RealmId,
        hub_id: HubId,
        level: Level,
        *,
        reader: LogReader,
        label_of: Callable[[StreamId], Label],
        key: DhKey | Sequence[DhKey],
        store: Store,
        clock: Clock,
    ) -> None:
        self._empty = PolicyView(level=level, realm=realm, hub_id=hub_id)
        self._clock = clock
        self._views = {
            name: Materializer(FOLDED_BY[name][1], label_of(stream), reader, key=key, store=store)
            for name, (stream, _) in self._empty.needed().items()
        }
        self._opened: set[str] = set()

    @property
    def nothing(self) -> PolicyView:
        """Before the first refresh: stale at every level but core."""
        return self._empty

    async def refresh(self) -> PolicyView:
        """Read all streams that the level needs to their ends; a new view, or an error and none."""
        parts: dict[str, Bound[Any]] = {}
        for name, view in self._views.items():
            if name not in self._opened:
                await view.open()
                self._opened.add(name)
            as_of = self._clock.now()
            await view.catch_up()
            answer = await view.state()
            parts[FOLDED_BY[name][0]] = Bound(
                view.label, answer.range.to_seq, answer.mmr_root, as_of, answer.summary.inner
            )
        empty = self._empty
        return PolicyView(level=empty.level, realm=empty.realm, hub_id=empty.hub_id, **parts)

    async def run(
        self, policy: ViewPolicy, every_sec: float, failed: Callable[[VeenError], None] = lambda _: None
    ) -> None:
        """Keep a hub's policy up to date, for ever; ``failed`` is told why a view could not be renewed."""
        while True:
            try:
                policy.view = await self.refresh()
            except VeenError as exc:
                failed(exc)
            await asyncio.sleep(every_sec)
