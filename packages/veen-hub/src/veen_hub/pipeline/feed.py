"""The feed: delivers each durable entry of a label to its followers, encoded once (H15).

A follower that is up to date is served from memory; one that is behind reads pages from storage. Nothing is
buffered per follower: the handler drops a follower that does not read.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from veen_core import cbor
from veen_core.entry import Entry
from veen_core.ids import Label, StreamSeq

MAX_RECENT_ENTRIES: Final = 1_024
MAX_RECENT_BYTES: Final = 4 * 1_048_576
"""Together with ``MAX_RECENT_ENTRIES``, bounds what a followed label keeps encoded in memory."""
MAX_DELIVERY_BYTES: Final = 1_048_576
"""Most bytes a follower is sent in one write, unless one entry is larger."""


def encode_item(entry: Entry, *, with_receipt: bool = True) -> bytes:
    """Encode a stream item (§10.4.2) around bytes that are canonical already.

    On the control label ``msg`` is the cap token's map, because that is what the entry holds (H5).
    """
    head = b"\xa3\x01" if with_receipt else b"\xa2\x01"
    tail = b"\x03" + entry.receipt_bytes if with_receipt else b""
    return b"".join((head, cbor.encode(entry.stream_seq), b"\x02", entry.msg_bytes, tail))


@dataclass(slots=True)
class _Followed:
    followers: int = 0
    recent: deque[tuple[StreamSeq, bytes]] = field(default_factory=deque)
    size: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, stream_seq: StreamSeq, item: bytes) -> None:
        if self.recent and self.recent[-1][0] != stream_seq - 1:
            self.recent.clear()  # entries were committed while the label had no follower; keep no gap
            self.size = 0
        self.recent.append((stream_seq, item))
        self.size += len(item)
        while len(self.recent) > MAX_RECENT_ENTRIES or (
            self.size > MAX_RECENT_BYTES and len(self.recent) > 1
        ):
            self.size -= len(self.recent.popleft()[1])


class Feed:
    """Recent entries of followed labels; used from the event loop only."""

    def __init__(self) -> None:
        self._labels: dict[Label, _Followed] = {}
        self.followers = 0
        """Followers of all labels; the only attribute that other threads may read."""

    def announce(self, entries: list[Entry]) -> None:
        """Add the entries of a committed batch, and wake the followers of their labels."""
        touched: set[Label] = set()
        for entry in entries:
            if (followed := self._labels.get(entry.label)) is not None:
                followed.add(entry.stream_seq, encode_item(entry))
                touched.add(entry.label)
        for label in touched:
            followed = self._labels[label]
            followed.changed.set()
            followed.changed = asyncio.Event()

    def join(self, label: Label) -> None:
        self._labels.setdefault(label, _Followed()).followers += 1
        self.followers += 1

    def leave(self, label: Label) -> None:
        followed = self._labels[label]
        followed.followers -= 1
        self.followers -= 1
        if followed.followers == 0:
            del self._labels[label]

    def recent(self, label: Label, start: StreamSeq) -> tuple[bytes, StreamSeq] | None:
        """Return the items from ``start`` on and the next seq; None if memory does not have ``start``."""
        held = self._labels[label].recent
        if not held or held[0][0] > start or held[-1][0] < start:
            return None
        parts: list[bytes] = []
        size = 0
        for _seq, data in itertools.islice(held, start - held[0][0], None):
            if parts and size + len(data) > MAX_DELIVERY_BYTES:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts), StreamSeq(start + len(parts))

    def changed(self, label: Label) -> asyncio.Event:
        """Return the event that is set by the next announcement for this label."""
        return self._labels[label].changed
