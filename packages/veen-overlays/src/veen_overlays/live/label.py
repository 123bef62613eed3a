"""Read one label from its start and check that each entry extends the entries before it (core §5.1).

The ``LogReader`` has verified an entry's signatures. This module checks, by the root that the receipt signs,
that the entry follows the entries read before. It does so before the entry is folded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from veen_core.entry import Entry
from veen_core.errors import DivergenceError
from veen_core.ids import Label, MmrRoot, StreamSeq
from veen_core.mmr import Mmr
from veen_core.protocols import LogReader
from veen_core.receipt import Receipt

PAGE_ENTRIES: Final = 256
"""Entries per request."""


def extend(mmr: Mmr, entry: Entry, last: Receipt | None) -> Mmr:
    """The MMR with the entry appended; raise with both receipts as evidence if its receipt disagrees."""
    receipt, after = entry.receipt, mmr.copy()
    after.add(receipt.leaf_hash)
    if (receipt.stream_seq, receipt.mmr_root) != (after.size, after.root):
        raise DivergenceError(
            f"entry {entry.stream_seq} of label {entry.label.hex()} does not extend the entries read before",
            held=b"" if last is None else last.encode(),
            shown=receipt.encode(),
        )
    return after


async def receipt_at(
    reader: LogReader, label: Label, seq: int, root: MmrRoot, *, held: bytes = b""
) -> Receipt:
    """Fetch the receipt of an entry; raise, with ``held`` as evidence, unless it has the folded root."""
    receipt = await reader.receipt(label, StreamSeq(seq))
    if (receipt.label, receipt.stream_seq, receipt.mmr_root) != (label, seq, root):
        raise DivergenceError(
            f"the root of label {label.hex()} at entry {seq} differs from the root that was folded",
            held=held,
            shown=receipt.encode(),
        )
    return receipt


@dataclass(slots=True)
class ReadPrefix:
    """The part of a label that was read: its MMR and its last receipt."""

    label: Label
    mmr: Mmr = field(default_factory=Mmr)
    last: Receipt | None = None

    async def entries(self, reader: LogReader, upto: int | None = None) -> AsyncIterator[Entry]:
        """The next entries, up to the label's end or to ``upto``; the prefix grows with each of them."""
        while upto is None or self.mmr.size < upto:
            room = PAGE_ENTRIES if upto is None else min(PAGE_ENTRIES, upto - self.mmr.size)
            entries = await reader.page(self.label, StreamSeq(self.mmr.size + 1), room)
            for entry in entries:
                self.mmr, self.last = extend(self.mmr, entry, self.last), entry.receipt
                yield entry
            if len(entries) < room:
                return
