"""Messages that ``BlockingStream.send_many`` sends, as an iterator of their receipts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from veen_core.ids import (
    Label,
)
from veen_core.receipt import Receipt
from veen_hub.client.loop_thread import LoopThread
from veen_hub.client.sending.send_many import Sending


class BlockingSending:
    """Messages that ``BlockingStream.send_many`` sends: an iterator of their receipts, in order.

    ``acknowledged`` counts the messages that the hub has made durable, beginning with the first; it is
    correct after an error or Ctrl-C too. ``settle`` finds out which unanswered messages are in the log.
    """

    def __init__(
        self,
        loop: LoopThread,
        batches: Iterator[Sending],
        confirm: Callable[[Iterable[Receipt]], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """``confirm`` waits until a quorum of witnesses covers the newest receipt of each label (P2)."""
        self._loop = loop
        self._batches = batches
        self._confirm = confirm
        self._current: Sending | None = None
        self._before = 0
        self._last: Receipt | None = None
        self._receipts = self._send()

    def _send(self) -> Iterator[Receipt]:
        newest: dict[Label, Receipt] = {}
        for sending in self._batches:
            self._before, self._last = self.acknowledged, self.last
            self._current = sending
            yield from self._loop.each(sending)
            newest |= sending.newest
        if self._confirm is not None:
            self._loop.run(self._confirm(newest.values()))

    def __iter__(self) -> BlockingSending:
        return self

    def __next__(self) -> Receipt:
        return next(self._receipts)

    @property
    def acknowledged(self) -> int:
        """Messages that the hub has made durable, beginning with the first."""
        return self._before + (self._current.acknowledged if self._current is not None else 0)

    @property
    def last(self) -> Receipt | None:
        """The receipt of the last message acknowledged."""
        return self._current.last if self._current is not None and self._current.last else self._last

    @property
    def unanswered(self) -> int:
        """Messages after the acknowledged ones that may or may not have reached the hub."""
        return self._current.unanswered if self._current is not None else 0

    def settle(self) -> None:
        """Settle the unanswered messages; afterwards ``acknowledged`` is exact. See ``Sending.settle``."""
        if self._current is not None:
            self._loop.run(self._current.settle())
