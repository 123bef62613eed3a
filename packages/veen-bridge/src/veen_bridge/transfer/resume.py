"""Finding how far a target's log already holds source labels (RESOLUTIONS P8).

Transfer is in order, so one position per source label is the whole state. The target's messages are read in
order, from where the caller's verified state ends; each is compared with the next entry of each source label
that may be missing. Memory is bounded by the number of labels, whatever the length of the logs.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Sequence,
)

from veen_bridge.transfer.origin import OriginEntry
from veen_bridge.transfer.recognition import is_copy
from veen_core.ids import Label, LeafHash, StreamSeq
from veen_core.keys import DhKey
from veen_hub.client import Message

Unmatched = Callable[[Message], Awaitable[None]]
"""Called for each message of the target that is no copy of an expected entry."""


class OriginCursor:
    """The entries of one source label in order, from the first that the target may lack."""

    def __init__(self, label: Label, held: int, entries: AsyncGenerator[OriginEntry, None]) -> None:
        """``entries`` begin at ``held + 1``; the target holds everything up to ``held``."""
        self.label = label
        self.held = StreamSeq(held)
        self.next: OriginEntry | None = None
        """The first entry that the target is not known to hold; None at the end of the source's log."""
        self._entries = entries

    async def load(self) -> OriginEntry | None:
        """Read the next entry, unless it is already there."""
        if self.next is None:
            self.next = await anext(self._entries, None)
        return self.next

    async def advance(self) -> OriginEntry | None:
        """Note that the target holds ``next``, and read the one after it."""
        if self.next is not None:
            self.held, self.next = self.next.seq, None
        return await self.load()

    async def aclose(self) -> None:
        """Stop reading the source."""
        await self._entries.aclose()

    async def rest(self) -> AsyncIterator[OriginEntry]:
        """Yield the entries that the target lacks."""
        while (origin := await self.load()) is not None:
            self.next = None
            yield origin


async def find_held(
    messages: AsyncIterable[Message],
    cursors: Iterable[OriginCursor],
    *,
    readers: Sequence[DhKey] = (),
    unmatched: Unmatched | None = None,
) -> None:
    """Advance each cursor past the entries of which ``messages`` has a copy.

    ``messages`` are those of the target in order. ``readers`` are the source's reader keys, with which
    resealed copies are recognised.
    """
    expected: dict[LeafHash, OriginCursor] = {}
    for cursor in cursors:
        await _expect(expected, cursor, await cursor.load())
    async for message in messages:
        parent = message.header.parent_id if message.is_open else None
        found = expected.get(parent) if parent is not None else None
        if found is not None and found.next is not None and is_copy(message, found.next, readers):
            del expected[found.next.msg_id]
            await _expect(expected, found, await found.advance())
        elif unmatched is not None:
            await unmatched(message)


async def _expect(
    expected: dict[LeafHash, OriginCursor], cursor: OriginCursor, origin: OriginEntry | None
) -> None:
    if origin is not None:
        expected[origin.msg_id] = cursor
