"""The feed: delivers each durable entry of a label to its followers, encoded once for all of them (H15).

A follower that is behind reads from storage. One that is up to date is served from memory, and nothing is
buffered for it here:

- If its transport has a ``LiveWriter``, the feed writes to it, without waking a task.
- Otherwise, or if the client reads too slowly for that, its own task is woken and reads ``recent``.

The feed serves ``FOLLOWERS_AT_ONCE`` followers at a time and lets the event loop do other work in between:
with 5,000 followers a submit must not wait until all of them are served.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from veen_core.entry import Entry
from veen_core.ids import NO_ENTRIES, Label, StreamSeq
from veen_hub.pipeline.stream_items import encode_items

MAX_RECENT_ENTRIES: Final = 1_024
MAX_RECENT_BYTES: Final = 4 * 1_048_576
"""Together with ``MAX_RECENT_ENTRIES``, bounds what a followed label keeps encoded in memory."""
MAX_DELIVERY_BYTES: Final = 64 * 1_024
"""Most bytes a follower is sent in one write, unless one entry is larger."""
MAX_DELIVERIES: Final = 16
"""Deliveries of one label that are kept joined; nearly all followers are at the same entry."""
FOLLOWERS_AT_ONCE: Final = 64
"""Followers that are served without a pause; a write to a socket takes some 10 µs."""


class LiveWriter(Protocol):
    """Sends items to one client whose answer has begun."""

    def write(self, data: bytes) -> bool:
        """Send items; return False if the client is gone, or must read before it is sent more."""

    async def drain(self) -> None:
        """Wait until the client has read enough, or is gone."""


@dataclass(slots=True, eq=False)
class FeedFollower:
    """One live stream of a label."""

    label: Label
    at: StreamSeq
    """The next entry that it needs."""
    writer: LiveWriter | None
    woken: asyncio.Future[None] | None = None
    """What its task waits for; None while the task reads and sends by itself."""

    @property
    def is_waiting(self) -> bool:
        return self.woken is not None and not self.woken.done()

    def wake(self) -> None:
        """Let its task continue, if it waits."""
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)


@dataclass(slots=True)
class _Followed:
    followers: int = 0
    newest: StreamSeq = NO_ENTRIES
    """The newest entry that was announced since the label is followed."""
    recent: deque[tuple[StreamSeq, bytes]] = field(default_factory=deque)
    size: int = 0
    waiting: dict[FeedFollower, None] = field(default_factory=dict)
    """Followers that were up to date, in the order in which they began to wait."""
    unserved: deque[FeedFollower] = field(default_factory=deque)
    """Followers that may need entries; while it is not empty, the feed serves them."""
    has_more: bool = False
    """Whether entries were announced since the feed began to serve ``unserved``."""
    deliveries: dict[StreamSeq, tuple[bytes, StreamSeq]] = field(default_factory=dict)

    def add(self, stream_seq: StreamSeq, item: bytes) -> None:
        if self.recent and self.recent[-1][0] != stream_seq - 1:
            self.recent.clear()  # entries were committed while the label had no follower; keep no gap
            self.size = 0
        self.newest = stream_seq
        self.recent.append((stream_seq, item))
        self.size += len(item)
        while len(self.recent) > MAX_RECENT_ENTRIES or (
            self.size > MAX_RECENT_BYTES and len(self.recent) > 1
        ):
            self.size -= len(self.recent.popleft()[1])

    def delivery(self, start: StreamSeq) -> tuple[bytes, StreamSeq] | None:
        """Return the items from ``start`` on and the next seq; None if memory does not have ``start``."""
        if (made := self.deliveries.get(start)) is not None:
            return made
        held = self.recent
        if not held or held[0][0] > start or held[-1][0] < start:
            return None
        parts: list[bytes] = []
        size = 0
        for _seq, data in itertools.islice(held, start - held[0][0], None):
            if parts and size + len(data) > MAX_DELIVERY_BYTES:
                break
            parts.append(data)
            size += len(data)
        if len(self.deliveries) >= MAX_DELIVERIES:
            self.deliveries.clear()
        made = self.deliveries[start] = b"".join(parts), StreamSeq(start + len(parts))
        return made


class Feed:
    """Recent entries of followed labels; used from the event loop only."""

    def __init__(self) -> None:
        self.give_turn: Callable[[], None] = lambda: None
        """Called between parts of the work, so that the sequencer is not delayed."""
        self._labels: dict[Label, _Followed] = {}
        self.followers = 0
        """Followers of all labels; the only attribute that other threads may read."""

    # --- followers

    def join(self, label: Label, at: StreamSeq, writer: LiveWriter | None = None) -> FeedFollower:
        """Add a follower that needs entry ``at`` next; its task reads until it is up to date."""
        self._labels.setdefault(label, _Followed()).followers += 1
        self.followers += 1
        return FeedFollower(label, at, writer)

    def leave(self, follower: FeedFollower) -> None:
        followed = self._labels[follower.label]
        followed.followers -= 1
        self.followers -= 1
        if followed.followers == 0:
            del self._labels[follower.label]

    def recent(self, label: Label, start: StreamSeq) -> tuple[bytes, StreamSeq] | None:
        """Return the items from ``start`` on and the next seq; None if memory does not have ``start``."""
        return self._labels[label].delivery(start)

    def has(self, follower: FeedFollower) -> bool:
        """Return whether the entry that a follower needs was announced."""
        return self._labels[follower.label].newest >= follower.at

    def is_current(self, follower: FeedFollower) -> bool:
        """Return whether a follower has every entry; later ones will be announced."""
        newest = self._labels[follower.label].newest
        return newest != NO_ENTRIES and newest == follower.at - 1

    async def wait(self, follower: FeedFollower) -> None:
        """Wait, while the feed sends entries to the follower, until its task must look itself.

        That is when it is woken, when the feed cannot send to it, or when its client reads too slowly.
        """
        waiting = self._labels[follower.label].waiting
        follower.woken = asyncio.get_running_loop().create_future()
        waiting[follower] = None
        try:
            await follower.woken
        finally:
            del waiting[follower]
            follower.woken = None
        if follower.writer is not None:
            await follower.writer.drain()

    def wake_all(self) -> None:
        """Let the tasks of all followers continue: the hub stops."""
        for followed in self._labels.values():
            for follower in followed.waiting:
                follower.wake()

    # --- entries

    def announce(self, entries: list[Entry]) -> None:
        """Add the entries of a committed batch, and serve the followers of their labels."""
        touched: set[Label] = set()
        for entry in entries:
            if (followed := self._labels.get(entry.label)) is not None:
                followed.add(entry.stream_seq, b"".join(encode_items((entry.content,), entry.stream_seq)))
                touched.add(entry.label)
        for label in touched:
            followed = self._labels[label]
            followed.deliveries.clear()
            if followed.unserved:
                followed.has_more = True  # begin again only after the others: none must wait for ever
            else:
                followed.unserved.extend(followed.waiting)
                self._serve_some(followed)

    def _serve_some(self, followed: _Followed) -> None:
        """Serve some followers now, and the others after what waits for the event loop."""
        for _ in range(min(FOLLOWERS_AT_ONCE, len(followed.unserved))):
            follower = followed.unserved.popleft()
            if follower.is_waiting and follower.at <= followed.newest:
                self._serve(followed, follower)
        if followed.has_more and not followed.unserved:
            followed.has_more = False
            followed.unserved.extend(followed.waiting)
        if followed.unserved:
            self.give_turn()
            asyncio.get_running_loop().call_soon(self._serve_some, followed)

    @staticmethod
    def _serve(followed: _Followed, follower: FeedFollower) -> None:
        found = followed.delivery(follower.at) if follower.writer is not None else None
        if found is None or follower.writer is None:
            follower.wake()
            return
        data, follower.at = found
        if not follower.writer.write(data):
            follower.wake()
        elif follower.at <= followed.newest:
            followed.unserved.append(follower)
