"""Searching a label's log for messages whose answer was lost (RESYNC0.1).

A message is in the log after the entry that it acknowledged (I6): soon after that entry if it was sent long
ago, close to the head if it was sent just now. The search therefore alternates between both ends, and reads
at most twice as many entries as from the nearer end. If a message is not in the log, the whole range is read.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing

from veen_core.ids import NO_ENTRIES, LeafHash, StreamSeq
from veen_core.receipt import Receipt
from veen_hub.client.errors import NotFound
from veen_hub.client.label.label_log import SEARCH_PAGE_ENTRIES, LabelLog


async def find(log: LabelLog, leaves: Iterable[LeafHash], after: StreamSeq) -> list[Receipt]:
    """Return the receipts of those messages that are in the log after ``after``; not yet verified."""
    missing, found = set(leaves), list[Receipt]()
    head = await log.head()
    last = head.stream_seq if head is not None else NO_ENTRIES
    for start, end in from_both_ends(after + 1, last, SEARCH_PAGE_ENTRIES):
        async with aclosing(_receipts(log, start, end)) as pages:
            async for receipts in pages:
                found += [receipt for receipt in receipts if receipt.leaf_hash in missing]
                missing -= {receipt.leaf_hash for receipt in receipts}
        if not missing:
            break
    return found


def from_both_ends(first: int, last: int, size: int) -> Iterator[tuple[StreamSeq, StreamSeq]]:
    """Split ``first`` to ``last`` into ranges of ``size``, taken from both ends in turn."""
    while first <= last:
        end = min(last, first + size - 1)
        yield StreamSeq(first), StreamSeq(end)
        first = end + 1
        if first <= last:
            start = max(first, last - size + 1)
            yield StreamSeq(start), StreamSeq(last)
            last = start - 1


async def _receipts(
    log: LabelLog, start: StreamSeq, end: StreamSeq
) -> AsyncGenerator[Sequence[Receipt], None]:
    """Yield the receipts of all entries; one request per entry where payloads are pruned."""
    at, readable = start, start
    while at <= end:
        if at < readable:
            found = [await log.fetch(at)]
        else:
            try:
                entries, _more = await log.page(at, SEARCH_PAGE_ENTRIES, end)
            except NotFound as exc:
                readable = StreamSeq(max(at + 1, exc.stream_seq or end + 1))
                continue
            if not entries:
                return
            found = [entry.receipt for entry in entries]
        yield found
        at = StreamSeq(at + len(found))
