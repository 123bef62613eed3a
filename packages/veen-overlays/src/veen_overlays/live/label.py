"""One label, read from its start: each entry must extend what was read before it (§5.1).

The ``LogReader`` has verified an entry's signatures. That it follows *these* entries is checked here, by the
root its receipt signs, before anything of it is folded.
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
"""Entries asked for at a time."""


def extended(mmr: Mmr, entry: Entry, last: Receipt | None) -> Mmr:
    """The label's tree with the entry in it; a receipt that says otherwise is evidence."""
    receipt, after = entry.receipt, mmr.copy()
    after.add(receipt.leaf_hash)
    if (receipt.stream_seq, receipt.mmr_root) != (after.size, after.root):
        raise DivergenceError(
            f"entry {entry.stream_seq} of label {entry.label.hex()} does not extend what was read",
            held=b"" if last is None else last.encode(),
            shown=receipt.encode(),
        )
    return after


async def receipt_at(
    reader: LogReader, label: Label, seq: int, root: MmrRoot, *, held: bytes = b""
) -> Receipt:
    """The log's receipt, which must have the root that was folded; ``held`` is what we have against it."""
    receipt = await reader.receipt(label, StreamSeq(seq))
    if (receipt.label, receipt.stream_seq, receipt.mmr_root) != (label, seq, root):
        raise DivergenceError(
            f"the log of label {label.hex()} has another root at {seq} than what was folded",
            held=held,
            shown=receipt.encode(),
        )
    return receipt


@dataclass(slots=True)
class Prefix:
    """A label as far as it was read."""

    label: Label
    mmr: Mmr = field(default_factory=Mmr)
    last: Receipt | None = None

    async def entries(self, reader: LogReader, upto: int | None = None) -> AsyncIterator[Entry]:
        """The next ones, to the label's end or to ``upto``; the prefix grows along."""
        while upto is None or self.mmr.size < upto:
            room = PAGE_ENTRIES if upto is None else min(PAGE_ENTRIES, upto - self.mmr.size)
            entries = await reader.page(self.label, StreamSeq(self.mmr.size + 1), room)
            for entry in entries:
                self.mmr, self.last = extended(self.mmr, entry, self.last), entry.receipt
                yield entry
            if len(entries) < room:
                return
