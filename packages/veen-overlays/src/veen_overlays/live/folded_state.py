"""The result of folding a log, with the receipt that proves which log (core §11.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from veen_core.ids import MmrRoot
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay, StateHash, Summary
from veen_overlays.summary_tree.nodes import SeqRange

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoldedState(Generic[S]):
    """The summary of a range of messages, and the signed receipt of its last entry."""

    overlay: Overlay[S]
    range: SeqRange
    summary: Summary[S]
    receipt: Receipt | None
    """None if the log is empty."""
    stream_root: MmrRoot | None = None
    """Over several labels: the root of all their leaves in stream order, which no hub signs."""

    @property
    def mmr_root(self) -> MmrRoot:
        """The root of the log after the range; for an empty log, the root of an empty MMR."""
        if self.stream_root is not None:
            return self.stream_root
        return Mmr().root if self.receipt is None else self.receipt.mmr_root

    @property
    def view(self) -> Any:
        """The state as the overlay shows it."""
        return self.overlay.view(self.summary.inner)

    @property
    def state_hash(self) -> StateHash:
        """The hash of the state (spec-3 7.4)."""
        return self.overlay.state_hash(self.summary)


async def drive_from(
    steps: Generator[SeqRange, Sequence[Message], T], read: Callable[[SeqRange], Awaitable[Sequence[Message]]]
) -> T:
    """Run a generator of the summary tree, awaiting ``read`` for the messages it needs."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(await read(wanted))
    except StopIteration as done:
        result: T = done.value
        return result
