"""The follower: keeps a query view up to date with the logs of its feeds (core §9, §12, RESOLUTIONS P13).

``open`` checks that every log still contains what the view covers. ``catch_up`` reads all feeds to their ends
and commits. ``follow`` continues with each entry as soon as the hub shows it. While one page is opened in a
thread, the next is fetched and verified.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from veen_core.entry import Entry
from veen_core.errors import DivergenceError, VeenError
from veen_core.ids import Epoch, HubId, Label, StreamSeq
from veen_core.rejection import Code
from veen_overlays.live.epochs import EPOCHS_PER_REQUEST, MARGIN_EPOCHS
from veen_overlays.live.label import receipt_at
from veen_overlays.live.query_view.feed.feeds import StreamFeed, add_entries, add_pruned
from veen_overlays.live.query_view.feed.growing import GrowingSource
from veen_overlays.live.query_view.view import QueryView

T = TypeVar("T")

PAGE_ENTRIES: Final = 1_000
"""Entries that are opened at a time: about 0.1 s of work in a thread."""
COMMIT_SECONDS: Final = 0.5
"""Least time between two commits while entries trickle in."""
WINDOW_SECONDS: Final = 5.0
"""Time between two checks of the epochs that a hub accepts."""


class ViewFollower:
    """Writes one view. Call ``open``, then ``catch_up`` or ``follow``; only one of them at a time."""

    def __init__(self, view: QueryView, feeds: Sequence[StreamFeed]) -> None:
        self.view, self._feeds = view, tuple(feeds)
        self._committed_at = 0.0

    @property
    def homes(self) -> dict[str, HubId]:
        """The streams that a scope may name, each with the hub that the coverage names while it is empty."""
        return {feed.stream: feed.home for feed in reversed(self._feeds)}

    async def open(self) -> None:
        """Check that each log still has the root that the view covers; raise ``DivergenceError`` if not."""
        for feed in self._feeds:
            for source in self.view.sources():
                if (source.stream, source.hub_id) == (feed.stream, feed.hub_id) and source.size:
                    await self._check(feed, source)

    async def _check(self, feed: StreamFeed, source: GrowingSource) -> None:
        head = await feed.reader.head(source.label)
        if (head.stream_seq if head else 0) < source.size:
            raise DivergenceError(
                f"the log of label {source.label.hex()} has fewer than the {source.size} entries that the "
                "view covers: it was rolled back, or this is another hub",
                held=source.last,
                shown=b"" if head is None else head.encode(),
            )
        await receipt_at(feed.reader, source.label, source.size, source.mmr.root, held=source.last)

    # --- reading to the end

    async def catch_up(self) -> None:
        """Read every feed to its end, and commit."""
        for feed in self._feeds:
            await self._catch_up(feed)
        self.view.note_homes(self.homes)
        await self._commit()

    async def settle(self) -> None:
        """Merge small files; call it when all logs are read to their ends and few entries are expected."""
        await _in_thread(lambda: self.view.compact(settle=True))

    async def _catch_up(self, feed: StreamFeed) -> None:
        if feed.origin_log is not None:
            await feed.origin_log.catch_up(self.view)
        complete = True
        async for epoch, label in self._labels(feed):
            complete &= await self._read(feed, feed.source_in(self.view, label, epoch))
        if feed.origin_log is not None and complete:
            feed.origin_log.note(self.view)

    async def _labels(self, feed: StreamFeed) -> AsyncIterator[tuple[int, Label]]:
        """The labels that may have entries which the view lacks; labels of past epochs are closed."""
        if isinstance(feed.labels, Label):
            yield 0, feed.labels
            return
        epochs, window = feed.labels, feed.labels.window()
        if window.start - MARGIN_EPOCHS > self.view.next_epoch(feed.name, epochs.since):
            closed = (await epochs.confirmed()).start - MARGIN_EPOCHS
            while (start := self.view.next_epoch(feed.name, epochs.since)) < closed:
                some = range(start, min(start + EPOCHS_PER_REQUEST, closed))
                labels = [epochs.label_of(Epoch(n)) for n in some]
                heads = await asyncio.gather(*(feed.reader.page(each, StreamSeq(1), 1) for each in labels))
                for n, label, first in zip(some, labels, heads, strict=True):
                    if first:
                        yield n, label
                    await epochs.forget(label)
                self.view.close_epochs(feed.name, some.stop)
        for n in range(self.view.next_epoch(feed.name, epochs.since), window.stop):
            yield n, epochs.label_of(Epoch(n))

    async def _read(self, feed: StreamFeed, source: GrowingSource) -> bool:
        """Read a label to its end; False if an entry waits for its origin."""
        fetched = asyncio.create_task(self._page(feed, source.label, source.size + 1))
        try:
            while page := await fetched:
                if isinstance(page, _Pruned):
                    await self._add_pruned(feed, source, page)
                    fetched = asyncio.create_task(self._page(feed, source.label, source.size + 1))
                    continue
                following = page[-1].stream_seq + 1
                fetched = asyncio.create_task(self._page(feed, source.label, following))
                if not await self._add(feed, source, page):
                    return False
        finally:
            fetched.cancel()
            await asyncio.gather(fetched, return_exceptions=True)
        return True

    async def _page(self, feed: StreamFeed, label: Label, start: int) -> Sequence[Entry] | _Pruned:
        """Return the next entries, or how many were pruned; nothing at the end of the log."""
        try:
            return await feed.reader.page(label, StreamSeq(start), PAGE_ENTRIES)
        except VeenError as exc:
            if getattr(exc, "code", None) is not Code.NOT_FOUND:
                raise
            head = await feed.reader.head(label)
            end = 1 + (head.stream_seq if head else 0)
            readable = getattr(exc, "stream_seq", None) or end  # None: no later entry can be read
            if not start < readable <= end:
                raise
            return _Pruned(readable)

    async def _add_pruned(self, feed: StreamFeed, source: GrowingSource, pruned: _Pruned) -> None:
        """Add entries whose payloads retention has pruned: their receipts remain, one request for each."""
        while source.size + 1 < pruned.readable:
            receipt = await feed.reader.receipt(source.label, StreamSeq(source.size + 1))
            add_pruned(self.view, feed, source, receipt)
            await self._commit_if_full()

    async def _add(self, feed: StreamFeed, source: GrowingSource, entries: Sequence[Entry]) -> bool:
        added = await _in_thread(lambda: add_entries(self.view, feed, source, entries))
        await self._commit_if_full()
        return added == len(entries)

    async def _commit_if_full(self) -> None:
        if self.view.wants_commit:
            await self._commit()

    async def _commit(self) -> None:
        if self.view.has_changes:
            await _in_thread(self.view.commit)
            await _in_thread(self.view.compact)
        self._committed_at = time.monotonic()

    # --- following

    async def follow(self) -> None:
        """Read every feed to its end, then add entries as they appear, for ever."""
        grown = asyncio.Event()
        watching: dict[Label, asyncio.Task[None]] = {}
        try:
            while True:
                grown.clear()
                await self.catch_up()
                await self.settle()
                self._watch(watching, grown)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(grown.wait(), WINDOW_SECONDS)
                await asyncio.sleep(max(0.0, self._committed_at + COMMIT_SECONDS - time.monotonic()))
        finally:
            for task in watching.values():
                task.cancel()
            await asyncio.gather(*watching.values(), return_exceptions=True)

    def _watch(self, watching: dict[Label, asyncio.Task[None]], grown: asyncio.Event) -> None:
        """Watch every label that may grow; a failed watch raises its error."""
        for label in [label for label, task in watching.items() if task.done()]:
            watching.pop(label).result()
        wanted = {label: (feed, epoch) for feed in self._feeds for epoch, label in _growing(feed)}
        for label in watching.keys() - wanted.keys():
            watching.pop(label).cancel()
        for label in wanted.keys() - watching.keys():
            feed, epoch = wanted[label]
            after = feed.source_in(self.view, label, epoch).size + 1
            watching[label] = asyncio.create_task(_wait_for(feed, label, after, grown))


async def _in_thread(call: Callable[[], T]) -> T:
    """Run ``call`` in a thread. If cancelled, wait until the thread no longer writes the view, then raise."""
    running = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


class _Pruned(NamedTuple):
    """The payloads of the next entries were pruned, up to one that is readable or the end of the log."""

    readable: int


def _growing(feed: StreamFeed) -> Iterator[tuple[int, Label]]:
    """The labels of a feed that accept messages now."""
    if isinstance(feed.labels, Label):
        yield 0, feed.labels
    else:
        yield from ((n, feed.labels.label_of(Epoch(n))) for n in feed.labels.window())


async def _wait_for(feed: StreamFeed, label: Label, seq: int, grown: asyncio.Event) -> None:
    """Wait until the hub shows an entry."""
    entries = feed.reader.follow(label, StreamSeq(seq))
    try:
        async for _ in entries:
            break
    finally:
        if isinstance(entries, AsyncGenerator):
            await entries.aclose()
    grown.set()
