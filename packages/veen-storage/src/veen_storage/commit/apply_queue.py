"""The queue of durable batches that wait for the applier, and the thread that applies them in rounds."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from veen_core.errors import VeenError
from veen_storage.commit.applier import ROUND_BYTES
from veen_storage.commit.changes import Changes
from veen_storage.commit.tail import Tail
from veen_storage.errors import PoisonedError

GATHER_BYTES: Final = 4 * 1_048_576
"""A round starts when this much waits, or after ``GATHER_SECONDS``: a round has fixed costs."""
GATHER_SECONDS: Final = 0.25


class ApplyQueue:
    """Durable batches that are not applied yet; one thread puts them, one applies them."""

    def __init__(
        self,
        tail: Tail,
        apply_round: Callable[[list[Changes]], None],
        *,
        poison: Callable[[str], None],
        poisoned: Callable[[], str | None],
    ) -> None:
        """``apply_round`` applies batches to the index; ``poison`` makes the journal refuse further ones."""
        self.waiting: deque[Changes] = deque()
        self.thread: threading.Thread | None = None
        self._tail = tail
        self._apply_round = apply_round
        self._poison = poison
        self._poisoned = poisoned
        self._changed = threading.Condition()
        self._closing = False
        self._busy = False
        self._hurry = False
        self._failed = False
        """A round failed, so no later round may be applied."""

    def start(self) -> None:
        """Apply in the background from now on; without this, only ``apply`` and ``apply_all`` apply."""
        self.thread = threading.Thread(target=self._run, name="veen-applier", daemon=True)
        self.thread.start()

    def put(self, changes: Changes) -> None:
        with self._changed:
            self.waiting.append(changes)
            if len(self.waiting) == 1 or self._gathered():  # otherwise the applier is awake already
                self._changed.notify_all()

    def apply(self) -> None:
        """Apply one round of waiting batches, as the background thread does."""
        with self._changed:
            if self._failed:  # the failed round comes first, and only reopening can apply it
                raise PoisonedError(f"{self._poisoned()}: reopen the data directory")
            round_ = self._take_round()
        if round_:
            self._apply_taken(round_)

    def apply_all(self, timeout: float) -> None:
        """Apply everything that is durable, in the background thread if there is one, else in this thread."""
        if self.thread is not None:
            self.settle(timeout)
        while self.thread is None and self.waiting:
            self.apply()

    def settle(self, timeout: float) -> bool:
        """Wait until everything put so far is applied; return whether it is."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            idle = self._changed.wait_for(
                lambda: self._poisoned() is not None or not (self.waiting or self._busy), timeout
            )
            self._hurry = False
        return idle and self._poisoned() is None

    def close(self) -> None:
        """Apply what waits and end the thread. Safe to call twice."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def _take_round(self) -> list[Changes]:
        taken: list[Changes] = []
        size = 0
        while self.waiting and size < ROUND_BYTES:
            taken.append(change := self.waiting.popleft())
            size += change.size
        return taken

    def _apply_taken(self, taken: list[Changes]) -> None:
        try:
            self._apply_round(taken)
        except BaseException as exc:
            self._failed = True
            self._poison(f"applying failed: {exc}")
            self._tail.wake()
            raise

    def _run(self) -> None:
        """Run the background thread until the queue closes or a round fails."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.waiting or self._closing)
                # Let a few batches gather, unless ``settle`` waits for them.
                self._changed.wait_for(lambda: self._hurry or self._gathered(), GATHER_SECONDS)
                taken = self._take_round()
                if not taken:
                    return
                self._busy = True
            try:
                self._apply_taken(taken)
            except (OSError, VeenError):
                return  # the journal is poisoned and holds the reason
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _gathered(self) -> bool:
        return self._closing or self._tail.size >= GATHER_BYTES
