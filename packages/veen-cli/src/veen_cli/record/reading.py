"""Read one label without a silent gap: pruned entries keep their receipts, missing ones raise (SDR0 I2)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from veen_cli.record.session import RecordedLabel
from veen_core.entry import Entry
from veen_core.errors import VerificationError
from veen_core.ids import StreamSeq
from veen_core.receipt import Receipt
from veen_hub.client import Hub, HubLogReader, NotFound


class MissingEntriesError(VerificationError):
    """The hub does not show entries of a range that it has signed (SDR0 I2)."""


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """A verified receipt, and its entry unless retention has pruned the payload."""

    label: RecordedLabel
    receipt: Receipt
    entry: Entry | None


async def read_label(
    hub: Hub, label: RecordedLabel, first: int, last: int
) -> AsyncGenerator[FoundEntry, None]:
    """Yield every entry from ``first`` to ``last``; raise ``MissingEntriesError`` if one is not there."""
    reader, at = hub.log_reader(), first
    while at <= last:
        readable = last + 1
        try:
            async with aclosing(_pages(reader, label, at, last)) as found:
                async for each in found:
                    yield each
                    at = each.receipt.stream_seq + 1
        except NotFound as exc:
            # The payload of entry ``at`` was pruned; the hub names the next entry that can be read, if any.
            readable = max(at + 1, min(last + 1, exc.stream_seq or last + 1))
        else:
            if at <= last:
                raise MissingEntriesError(
                    f"the hub shows no entry {at} of stream {label.stream}; the range ends at {last}",
                    action="keep the checkpoint as evidence, and ask the hub's operator",
                )
        for seq in range(at, readable if at <= last else at):
            yield FoundEntry(label, await _receipt(reader, label, seq), None)
            at = seq + 1


async def _pages(
    reader: HubLogReader, label: RecordedLabel, first: int, last: int
) -> AsyncGenerator[FoundEntry, None]:
    async with aclosing(reader.pages(label.label, StreamSeq(first), StreamSeq(last))) as pages:
        async for entries in pages:
            for entry in entries:
                yield FoundEntry(label, entry.receipt, entry)


async def _receipt(reader: HubLogReader, label: RecordedLabel, seq: int) -> Receipt:
    try:
        return await reader.receipt(label.label, StreamSeq(seq))
    except NotFound as exc:
        raise MissingEntriesError(
            f"the hub has neither entry nor receipt {seq} of stream {label.stream}: {exc.hub_message}",
            action="keep the checkpoint as evidence, and ask the hub's operator",
        ) from None


async def first_at(hub: Hub, label: RecordedLabel, hub_ts: int, size: int) -> int:
    """Return the first entry that is not older than ``hub_ts``, by binary search over receipts (H3)."""
    reader, low, high = hub.log_reader(), 1, size + 1
    while low < high:
        middle = (low + high) // 2
        receipt = await _receipt(reader, label, middle)
        low, high = (low, middle) if receipt.hub_ts >= hub_ts else (middle + 1, high)
    return low
