"""What a range of events does to the daily limit's window (WAL 5.4, 5.7, §6).

The window is the pair (pending_daily_spent, last_limit_reset_ts). A summary of a range does not know the
reset time before the range, but only three cases differ. A limited debit adds to the pending amount if the
reset time lies on the debit's day, and starts a new window otherwise; setting a limit sets a reset time that
is 0. So a range has one outcome for each case of the reset time before it:

    zero    it is 0
    same    it lies on ``day``, the day of the range's first limited debit
    other   it lies on another day

A range without limited debits has ``day`` None; every reset time but 0 is then ``same``.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from veen_overlays.fold.monoid import int_to_item, item_to_int

DAY_SEC: Final = 86_400
"""Seconds of a UTC day; a window ends with its day (``needs_reset``, WAL 5.7)."""


class WindowOutcome(NamedTuple):
    """The window after a range: pending is ``spent``, plus the earlier pending amount if ``kept``."""

    kept: bool
    spent: int
    reset: int | None
    """The new reset time; None leaves it unchanged."""

    def then(self, after: WindowOutcome) -> WindowOutcome:
        """The outcome of this range followed by another."""
        spent = after.spent + self.spent if after.kept else after.spent
        reset = self.reset if after.reset is None else after.reset
        return WindowOutcome(self.kept and after.kept, spent, reset)


UNCHANGED: Final = WindowOutcome(True, 0, None)


class Window(NamedTuple):
    """The outcomes of a range for the three cases of the reset time before it."""

    day: int | None
    zero: WindowOutcome
    same: WindowOutcome
    other: WindowOutcome

    def outcome(self, reset: int) -> WindowOutcome:
        """The outcome for a known reset time."""
        if reset == 0:
            return self.zero
        return self.same if self.day is None or reset // DAY_SEC == self.day else self.other

    def _of_day(self, day: int) -> WindowOutcome:
        """The outcome if the reset time before the range is not 0 and lies on ``day``."""
        return self.same if self.day is None or self.day == day else self.other

    def then(self, after: Window) -> Window:
        """The window of this range followed by another range."""
        if after is NO_WINDOW or self is NO_WINDOW:
            return self if after is NO_WINDOW else after
        zero = self.zero.then(after.outcome(self.zero.reset or 0))
        if self.day is None:
            return Window(after.day, zero, after.same, after.other)
        same, other = self.same, self.other
        same_after = after._of_day(self.day) if same.reset is None else after.outcome(same.reset)
        assert other.reset is not None  # the first debit lay on another day and started a new window
        return Window(self.day, zero, same.then(same_after), other.then(after.outcome(other.reset)))

    def apply(self, pending: int, reset: int) -> tuple[int, int]:
        """(pending_daily_spent, last_limit_reset_ts) after the range."""
        out = self.outcome(reset)
        return (pending if out.kept else 0) + out.spent, reset if out.reset is None else out.reset


NO_WINDOW: Final = Window(None, UNCHANGED, UNCHANGED, UNCHANGED)
"""The window of a range that changes nothing; the identity of ``then``."""


def set_if_zero(ts: int) -> Window:
    """The window of a limit that is not null: a reset time of 0 becomes ``ts`` (WAL §6)."""
    return Window(None, WindowOutcome(True, 0, ts), UNCHANGED, UNCHANGED) if ts else NO_WINDOW


def debits(first_ts: int, spent: int, reset: int | None) -> Window:
    """The window of consecutive limited debits, the first at ``first_ts``.

    ``reset`` is the time of the last debit that started a new day, or None if all lie on one day. ``spent``
    is the sum of the debits from there on.
    """
    day = first_ts // DAY_SEC
    if reset is not None:
        fresh = WindowOutcome(False, spent, reset)
        return Window(day, fresh, fresh, fresh)
    fresh, kept = WindowOutcome(False, spent, first_ts), WindowOutcome(True, spent, None)
    return Window(day, fresh if day else kept, kept, fresh)


def dump_window(window: Window) -> Any:
    """The CBOR item of a window; null for ``NO_WINDOW``."""
    if window == NO_WINDOW:
        return None
    outcomes = ([out.kept, int_to_item(out.spent), out.reset] for out in window[1:])
    return [window.day, *outcomes]


def load_window(item: Any) -> Window:
    """The inverse of ``dump_window``."""
    if item is None:
        return NO_WINDOW
    zero, same, other = (WindowOutcome(kept, item_to_int(spent), reset) for kept, spent, reset in item[1:])
    return Window(item[0], zero, same, other)
