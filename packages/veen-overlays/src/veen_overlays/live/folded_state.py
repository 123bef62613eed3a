"""What a view answers with: a summary, and what it rests on (§11.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from veen_core.ids import MmrRoot
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay, StateHash, Summary
from veen_overlays.summary_tree.nodes import Range

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoldedState(Generic[S]):
    """A summary, and the signed receipt of the last entry it rests on."""

    overlay: Overlay[S]
    range: Range
    summary: Summary[S]
    receipt: Receipt | None
    """None only of a log that holds nothing."""
    across: MmrRoot | None = None
    """Over several labels: the root of all their leaves in the stream's order, which no hub signs."""

    @property
    def mmr_root(self) -> MmrRoot:
        """Of the prefix that ends with the range; of nothing, the root of an empty log."""
        if self.across is not None:
            return self.across
        return Mmr().root if self.receipt is None else self.receipt.mmr_root

    @property
    def view(self) -> Any:
        return self.overlay.view(self.summary.inner)

    @property
    def state_hash(self) -> StateHash:
        return self.overlay.state_hash(self.summary)


async def drive_from(
    steps: Generator[Range, Sequence[Message], T], read: Callable[[Range], Awaitable[Sequence[Message]]]
) -> T:
    """``tree.drive``, with a log that has to be waited for."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(await read(wanted))
    except StopIteration as done:
        result: T = done.value
        return result
