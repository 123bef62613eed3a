"""Follow the admin streams of a realm and fold them into a hub's policy view (spec-2, RESOLUTIONS H6).

The age of a folded stream is measured from just *before* it was read, because records written later may be
missing. ``refresh`` raises and keeps the old view if a stream cannot be read, contradicts the folded entries,
or has messages but none that the key opens. An old view becomes stale, and a hub with a stale view accepts
nothing. A single message that is not a valid record is counted and changes nothing (core §11.1).

A stream without messages is refused as well if this hub replaced a hub that has some: the successor's own
labels start at 1, and a view without the old revocations would admit revoked clients (RESOLUTIONS P9).

The last receipt of each stream is stored. After a restart the log must still contain it, even if its block
was incomplete and is not part of the stored summary tree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from veen_core.errors import DivergenceError, OpenError, StateError
from veen_core.ids import HubId, Label, StreamId
from veen_core.keys import DhKey
from veen_core.protocols import Clock, LogReader
from veen_core.receipt import Receipt
from veen_overlays.control.policy import FoldedPrefix, Level, PolicyView
from veen_overlays.control.state import AUTHORITIES, LABEL_CLASSES, REVOCATIONS
from veen_overlays.fold.event import UNOPENED
from veen_overlays.fold.overlay import Overlay, Summary
from veen_overlays.identifiers import RealmId
from veen_overlays.live.epochs import Epochs, EpochView
from veen_overlays.live.materializer import Materializer
from veen_overlays.operations.overlays import GRANTS
from veen_overlays.summary_tree.store import SummaryStore

FOLDED_BY: Final[dict[str, tuple[str, Overlay[Any]]]] = {
    "authority": ("authorities", AUTHORITIES),
    "revocation": ("revocations", REVOCATIONS),
    "label-class": ("classes", LABEL_CLASSES),
    "access": ("access", GRANTS),
}
"""For each admin stream: the field of ``PolicyView`` it fills, and the overlay that folds it."""
LAST_RECEIPT_PREFIX: Final = b"last receipt/"
"""Store key of a stream's last receipt, followed by the stream_id."""


InheritedFrom = Callable[[StreamId], Awaitable[HubId | None]]
"""Returns the hub that this one replaced, and which has entries of a stream; None if there is none."""


async def _no_ancestor(_stream: StreamId) -> None:
    return None


class RealmFollower:
    """Folds the admin streams of one realm for one hub, with the reader keys it was given."""

    def __init__(
        self,
        realm: RealmId,
        hub_id: HubId,
        level: Level,
        *,
        reader: LogReader,
        label_of: Callable[[StreamId], Label],
        key: DhKey | Sequence[DhKey],
        store: SummaryStore,
        clock: Clock,
        epochs_of: Callable[[StreamId], Epochs | None] = lambda _stream: None,
        inherited_from: InheritedFrom = _no_ancestor,
        issuers: frozenset[bytes] = frozenset(),
    ) -> None:
        """``epochs_of`` returns None if a stream has one label; ``label_of`` then gives that label."""
        self._inherited_from = inherited_from
        self._empty = PolicyView(level=level, realm=realm, hub_id=hub_id, issuers=issuers)
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
        self._in_no_ancestor: set[str] = set()
        self._last: dict[str, Receipt] = {}

    async def refresh(self) -> PolicyView:
        """Read every stream that the level needs to its end and return the new view; raise if one fails."""
        parts: dict[str, Any] = {}
        for name, view in self._views.items():
            if name not in self._opened:
                await view.open()
                await self._check_last_receipt(name)
                self._opened.add(name)
            as_of = self._clock.now()
            await view.catch_up()
            folded = await view.state()
            self._store_last_receipt(name, folded.receipt)
            self._check_key_opens(name, folded.summary)
            if not view.size and name not in self._in_no_ancestor:
                await self._check_carried_over(name)
            parts[FOLDED_BY[name][0]] = FoldedPrefix(
                label=view.label,
                upto_seq=folded.range.to_seq,
                mmr_root=folded.mmr_root,
                as_of=as_of,
                state=folded.summary.inner,
                labels=view.labels,
            )
        return replace(self._empty, **parts)

    def _check_key_opens(self, name: str, summary: Summary[Any]) -> None:
        """Raise if the key opens no message of the stream: the unread messages may be revocations."""
        unopened = summary.foreign and all(ignored.schema == UNOPENED for ignored in summary.ignored)
        if unopened and not summary.events and not summary.undecodable:
            raise OpenError(
                f"the hub's key opens no message of the {name} stream ({summary.foreign} in all)",
                action="set realm.key to the key that the messages are sealed to, or publish a record sealed "
                "to this key; if this hub holds the stream, start it with `--level core` to publish one",
            )

    async def _check_carried_over(self, name: str) -> None:
        """Raise if this hub replaced a hub that has messages of a stream, and has none itself.

        The streams of replaced hubs never change, so they are looked up once.
        """
        if (old_hub := await self._inherited_from(self._empty.needed()[name][0])) is not None:
            raise StateError(
                f"this hub has no message of the {name} stream, but hub {old_hub.hex()}, which it replaced, "
                "has messages of that stream",
                action="start this hub with `--level core`, mirror the realm's streams from the old hub or "
                "its replica (`veen bridge mirror --realm`), and start it with its level again",
            )
        self._in_no_ancestor.add(name)

    def _last_receipt_key(self, name: str) -> bytes:
        return LAST_RECEIPT_PREFIX + self._empty.needed()[name][0]

    async def _check_last_receipt(self, name: str) -> None:
        """Raise unless the log still contains the last receipt that an earlier run stored."""
        stored = self._store.get(self._last_receipt_key(name))
        if stored is None:
            return
        held = Receipt.decode(stored)
        label = held.label
        head = await self._reader.head(label)
        behind = head is None or head.stream_seq < held.stream_seq
        shown = head if behind else await self._reader.receipt(label, held.stream_seq)
        if behind or shown is None or shown.mmr_root != held.mmr_root:
            raise DivergenceError(
                f"entry {held.stream_seq} of label {label.hex()} is missing or differs from the one this hub "
                f"has folded: the log of the {name} stream was rolled back or rewritten",
                held=stored,
                shown=b"" if shown is None else shown.encode(),
            )

    def _store_last_receipt(self, name: str, receipt: Receipt | None) -> None:
        if receipt is not None and self._last.get(name) != receipt:
            self._store.write({self._last_receipt_key(name): receipt.encode()})
            self._last[name] = receipt
