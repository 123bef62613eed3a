"""The merged journal of a sharded hub as a feed of batches, for a replica (RESOLUTIONS P9, ADR 0033).

Each batch is made from the part's own batch when it is sent, and is the same each time. What concerns the
part alone is left out: its own hub log, and a shard's copy of the control label. A batch may be empty then,
and keeps its number. A round of the joined hub log is a batch with one extension.
"""

from __future__ import annotations

from typing import Final

from veen_core.checkpoint import Checkpoint
from veen_core.entry import decode_frame
from veen_core.ids import Label
from veen_storage.commit.journal_format import (
    CHECKPOINT,
    ENTRY,
    HUB_CHECKPOINT,
    Item,
    encode_batch,
    split_segment,
)
from veen_storage.read.journal_feed import READ_BYTES, BatchesGoneError, JournalFeed
from veen_storage.shards.joined_hub_log import JoinedHubLog
from veen_storage.shards.merged_order import ROUND, MergedOrder, Ordered
from veen_storage.shards.sharded_layout import CONTROL, ShardedLayout, part_name

ONE_BATCH: Final = 1
"""Bytes to ask a part's feed for: it returns at least one batch."""


class MergedFeed:
    """A position in the merged journal, with the interface of ``JournalFeed``."""

    def __init__(
        self,
        layout: ShardedLayout,
        order: MergedOrder,
        joined: JoinedHubLog,
        control_label: Label,
        after: int,
    ) -> None:
        self._layout = layout
        self._order = order
        self._joined = joined
        self._control_label = control_label
        self._feeds: dict[int, JournalFeed] = {}
        self._record: Ordered | None = None
        self.next = after + 1
        """Number of the batch that ``read`` returns first."""

    def read(self, max_bytes: int = READ_BYTES) -> tuple[bytes, int]:
        """Return whole batches, one after the other, and how many; nothing if none is in the order yet."""
        parts, size, count = list[bytes](), 0, 0
        last = self._order.last
        if self.next < self._order.first:
            raise BatchesGoneError(f"batch {self.next} of the merged journal is no longer kept")
        while self.next <= last and size < max_bytes:
            parts.append(self._read_one())
            self.next += 1
            size, count = size + len(parts[-1]), count + 1
        return b"".join(parts), count

    def _read_one(self) -> bytes:
        record = self._record
        if record is None or self.next >= record.end:
            record = self._record = self._order.find(self.next)
        if record.part != ROUND:
            return encode_batch(self.next, self._items_of(record))
        extension = self._joined.round_extension(record.last)
        if extension is None:
            raise BatchesGoneError(f"round {record.last} of the hub log is no longer kept")
        return encode_batch(self.next, [Item(HUB_CHECKPOINT, extension)])

    def _items_of(self, record: Ordered) -> list[Item]:
        """Return the items of a part's batch that belong to the whole hub."""
        number = record.first + self.next - record.number
        feed = self._feeds.get(record.part)
        if feed is None or feed.next != number:
            if feed is not None:
                feed.close()
            feed = JournalFeed(self._layout.part(record.part), lambda: number, number - 1)
            self._feeds[record.part] = feed
        else:
            feed.last = lambda: number  # it is durable
        data, _count = feed.read(ONE_BATCH)
        ((_offset, batch),) = split_segment(part_name(record.part), data, last=False)
        return [item for item in batch.items if self._is_shared(record.part, item)]

    def _is_shared(self, part: int, item: Item) -> bool:
        if item.kind == HUB_CHECKPOINT:
            return False
        if part == CONTROL:
            return True
        if item.kind == ENTRY:
            return decode_frame(item.data).label != self._control_label
        if item.kind == CHECKPOINT:
            return Checkpoint.decode(item.data).label_curr != self._control_label
        return True

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.close()
