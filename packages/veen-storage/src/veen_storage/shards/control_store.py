"""The control part of a sharded hub, with what joins all parts: the hub log, and the journal for replicas.

To readers, the hub log of this store is the joined one. The part's own hub log is ``own_hub_log``. To
replicas, its journal is the merged one. The store locks the hub's whole directory, and not only its part: it
is the coordinator's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from veen_core.tlog.tree_head import SignedHead
from veen_storage.commit.kept_segments import JournalKeeping
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.shards.fence import Fence, PartStore, raise_fence
from veen_storage.shards.joined_hub_log import JoinedHubLog
from veen_storage.shards.joined_rounds import Round
from veen_storage.shards.merged_feed import MergedFeed
from veen_storage.shards.merged_order import BrokenOrderError, MergedOrder, order_between, order_file
from veen_storage.shards.sharded_layout import CONTROL, ShardedLayout, control_label_of

LOGGER: Final = logging.getLogger("veen_storage")


class ControlStore(PartStore):
    """The open directory of the control part, and the joined hub log."""

    def __init__(self, layout: ShardedLayout, files: Files, **opening: Any) -> None:
        path = layout.fence(CONTROL)
        with ExitStack() as stack:
            lock = DirectoryLock(Layout(layout.root))
            stack.callback(lock.release)
            super().__init__(layout.part(CONTROL).root, Fence(path, raise_fence(path, files)), **opening)
            stack.callback(super().close)
            self.own_hub_log = self.hub_log
            self.joined = JoinedHubLog(layout.joined, self.identity, files)
            stack.callback(self.joined.close)
            self.hub_log = self.joined.reader
            keeping: JournalKeeping | None = opening.get("keeping")
            if keeping is not None and keeping.max_bytes:
                self.joined.keep_rounds_sec = keeping.max_age_sec
            self._sharded = layout
            self._order = MergedOrder(order_file(layout.joined), files)
            stack.callback(self._order.close)
            self._opened = stack.pop_all()

    def publish(self, signed: SignedHead) -> None:
        """Make a hub checkpoint of the joined hub log the one that is served; durable when this returns."""
        with self._publishing:
            self.joined.publish(signed)

    # --- the merged journal (``merged_order``)

    @property
    def last_batch(self) -> int:
        """The last batch of the merged journal."""
        return self._order.last

    @property
    def merged_hub_log_size(self) -> int:
        """Size of the joined hub log in the merged journal."""
        return self._order.place.size if self._order.place is not None else 0

    @property
    def own_last_batch(self) -> int:
        """The last durable batch of the control part."""
        return super().last_batch

    def journal_feed(self, after: int) -> MergedFeed:  # type: ignore[override]  # the same interface
        """Return the feed of the merged journal after a batch, for a replica."""
        control_label = control_label_of(self.registry.hub_id)
        return MergedFeed(self._sharded, self._order, self.joined, control_label, after)

    def order_upto(self, ends: Mapping[int, int]) -> bool:
        """Continue the merged journal up to these batches of the parts; return whether it grew.

        Call while no round of the joined hub log is running, from one thread at a time. Nothing is done
        before the first replica, and without an order that can be continued.
        """
        place = self._order.place
        if place is None:
            return False
        try:
            records = order_between(place, self._rounds_after(place.size), ends)
        except BrokenOrderError as exc:
            LOGGER.warning("merged_journal_broken: %s", exc)
            self._order.give_up()
            return False
        self._order.extend(records)
        return bool(records)

    def order_for_copy(self, ends: Mapping[int, int]) -> int:
        """Continue or begin the merged journal; return the number of the batch at this place."""
        self.order_upto(ends)
        if self._order.place is None:
            self._order.start(self.joined.size, ends)
        return self._order.last

    def _rounds_after(self, size: int) -> list[Round]:
        rounds = self.joined.rounds_after(size)
        newest = rounds[-1].size if rounds else size
        if newest != self.joined.size:
            raise BrokenOrderError(f"the rounds of the hub log after {newest} are not kept")
        return rounds

    def close(self) -> None:
        """Close the joined hub log and the part, and release the directory. Safe to call twice."""
        self._opened.close()
