"""Follows the admin streams of a realm and keeps the policy view of a hub up to date (spec-2, H6).

A view's age counts from the moment *before* its streams were read to their ends: what a hub did not know
then, it may still not know. A stream that cannot be read, contradicts itself, or holds messages of which the
key opens none, leaves the old view in place, which grows stale, and a stale view lets nothing in. A message
that is no record among others that are is counted and changes nothing (§11.1).

The last receipt of each stream is kept in the store: after a restart the log must still have it, also where
its block was not complete and so is no part of the stored tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from veen_core.errors import DivergenceError, VeenError, VerificationError
from veen_core.ids import HubId, Label, StreamId
from veen_core.keys import DhKey
from veen_core.protocols import Clock, LogReader
from veen_core.receipt import Receipt
from veen_overlays.control.admission import ViewPolicy
from veen_overlays.control.policy import FoldedPrefix, Level, PolicyView
from veen_overlays.control.state import AUTHORITIES, LABEL_CLASSES, REVOCATIONS, SCHEMAS
from veen_overlays.fold.event import UNOPENED
from veen_overlays.fold.overlay import Overlay, Summary
from veen_overlays.identifiers import RealmId
from veen_overlays.live.epochs import Epochs, EpochView
from veen_overlays.live.materializer import Materializer
from veen_overlays.summary_tree.store import Store

FOLDED_BY: Final[dict[str, tuple[str, Overlay[Any]]]] = {
    "authority": ("authorities", AUTHORITIES),
    "revocation": ("revocations", REVOCATIONS),
    "label-class": ("classes", LABEL_CLASSES),
    "meta-schema": ("schemas", SCHEMAS),
}
"""Of each admin stream: which part of the view it is, and its overlay."""
DESCRIBES: Final = "meta-schema"
"""The stream by which nothing is admitted or refused: META0+ only improves discoverability (7.2)."""
LAST_RECEIPT_PREFIX: Final = b"last receipt/"
"""Before a stream's id, in the store."""


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
        epochs_of: Callable[[StreamId], Epochs | None] = lambda _stream: None,
    ) -> None:
        """``label_of`` is asked where ``epochs_of`` says that a stream's label does not change."""
        self._empty = PolicyView(level=level, realm=realm, hub_id=hub_id)
        self._clock, self._reader, self._store = clock, reader, store
        self._views: dict[str, Materializer[Any] | EpochView[Any]] = {}
        for name, (stream, _) in self._empty.needed().items():
            overlay, epochs = FOLDED_BY[name][1], epochs_of(stream)
            self._views[name] = (
                Materializer(overlay, label_of(stream), reader, key=key, store=store)
                if epochs is None
                else EpochView(overlay, epochs, reader, key=key, store=store)
            )
        self._opened: set[str] = set()
        self._last: dict[str, Receipt] = {}

    @property
    def nothing(self) -> PolicyView:
        """Before the first refresh: stale at every level but core."""
        return self._empty

    async def refresh(self) -> PolicyView:
        """Read all streams that the level needs to their ends; a new view, or an error and none."""
        parts: dict[str, FoldedPrefix[Any]] = {}
        for name, view in self._views.items():
            if name not in self._opened:
                await view.open()
                await self._check_last(name)
                self._opened.add(name)
            as_of = self._clock.now()
            await view.catch_up()
            answer = await view.state()
            self._keep_last(name, answer.receipt)
            self._check_opened(name, answer.summary)
            parts[FOLDED_BY[name][0]] = FoldedPrefix(
                label=view.label,
                upto_seq=answer.range.to_seq,
                mmr_root=answer.mmr_root,
                as_of=as_of,
                state=answer.summary.inner,
                labels=view.labels,
            )
        empty = self._empty
        return PolicyView(level=empty.level, realm=empty.realm, hub_id=empty.hub_id, **parts)

    def _check_opened(self, name: str, summary: Summary[Any]) -> None:
        """A stream of which nothing opens is one that this key does not read, and may revoke anybody."""
        closed = summary.foreign and all(fault.schema == UNOPENED for fault in summary.ignored)
        if closed and not summary.events and not summary.undecodable and name != DESCRIBES:
            raise VerificationError(
                f"of the {summary.foreign} messages of the {name} stream the hub's key opens none: give it "
                "the key that they are sealed to, or seal a record to its key (start at level core to write "
                "one, if the stream is this hub's own)"
            )

    def _last_key(self, name: str) -> bytes:
        return LAST_RECEIPT_PREFIX + self._empty.needed()[name][0]

    async def _check_last(self, name: str) -> None:
        """What was the last receipt once, in this run or an earlier one, must stand in the log."""
        kept = self._store.get(self._last_key(name))
        if kept is None:
            return
        held = Receipt.decode(kept)
        label = held.label
        head = await self._reader.head(label)
        behind = head is None or head.stream_seq < held.stream_seq
        shown = head if behind else await self._reader.receipt(label, held.stream_seq)
        if behind or shown is None or shown.mmr_root != held.mmr_root:
            raise DivergenceError(
                f"the log of label {label.hex()} no longer has entry {held.stream_seq} as it was seen: "
                "it was rolled back or rewritten",
                held=kept,
                shown=b"" if shown is None else shown.encode(),
            )

    def _keep_last(self, name: str, receipt: Receipt | None) -> None:
        if receipt is not None and self._last.get(name) != receipt:
            self._store.write({self._last_key(name): receipt.encode()})
            self._last[name] = receipt

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
