"""The daily window: what a range does to (pending_daily_spent, last_limit_reset_ts) (WAL 5.4, 5.7, §6).

A range does not know with which reset time it will be entered, and needs to know little: a limited
debit keeps what is pending if the reset lies on its own day and starts afresh otherwise, and a limit
sets a reset time that is 0. So one of three cases applies, and each has one outcome:

    zero    the reset time is 0
    same    it is not 0 and lies on ``day``, the day of the range's first limited debit
    other   it is not 0 and lies on another day

A range without limited debits has ``day`` None, and all reset times but 0 are ``same``.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from veen_overlays.fold.monoid import int_to_item, item_to_int

DAY_SEC: Final = 86_400
"""``needs_reset``: the two times lie on different days of UTC (WAL 5.7, its canonical choice)."""


class Outcome(NamedTuple):
    """Pending afterwards is ``spent``, plus what was pending before if it is kept."""

    kept: bool
    spent: int
    reset: int | None
    """The new reset time; None: as it was."""

    def then(self, after: Outcome) -> Outcome:
        spent = after.spent + self.spent if after.kept else after.spent
        reset = self.reset if after.reset is None else after.reset
        return Outcome(self.kept and after.kept, spent, reset)


UNCHANGED: Final = Outcome(True, 0, None)


class Window(NamedTuple):
    """The three outcomes."""

    day: int | None
    zero: Outcome
    same: Outcome
    other: Outcome

    def outcome(self, reset: int) -> Outcome:
        """For a known reset time."""
        if reset == 0:
            return self.zero
        return self.same if self.day is None or reset // DAY_SEC == self.day else self.other

    def _of_day(self, day: int) -> Outcome:
        """For a reset time that is not 0 and lies on ``day``."""
        return self.same if self.day is None or self.day == day else self.other

    def then(self, after: Window) -> Window:
        """One range, then the other."""
        if after is NO_WINDOW or self is NO_WINDOW:
            return self if after is NO_WINDOW else after
        zero = self.zero.then(after.outcome(self.zero.reset or 0))
        if self.day is None:
            return Window(after.day, zero, after.same, after.other)
        same, other = self.same, self.other
        same_after = after._of_day(self.day) if same.reset is None else after.outcome(same.reset)
        assert other.reset is not None  # its first debit was on another day
        return Window(self.day, zero, same.then(same_after), other.then(after.outcome(other.reset)))

    def apply(self, pending: int, reset: int) -> tuple[int, int]:
        out = self.outcome(reset)
        return (pending if out.kept else 0) + out.spent, reset if out.reset is None else out.reset


NO_WINDOW: Final = Window(None, UNCHANGED, UNCHANGED, UNCHANGED)
"""The identity."""


def set_if_zero(ts: int) -> Window:
    """A limit that is not null: the reset time becomes its ts if it was 0 (§6)."""
    return Window(None, Outcome(True, 0, ts), UNCHANGED, UNCHANGED) if ts else NO_WINDOW


def debits(first_ts: int, spent: int, reset: int | None) -> Window:
    """Limited debits in a row, the first at ``first_ts``.

    ``reset`` is when they last started a new day, None if all lie on one day; ``spent`` is their sum
    since then.
    """
    day = first_ts // DAY_SEC
    if reset is not None:
        fresh = Outcome(False, spent, reset)
        return Window(day, fresh, fresh, fresh)
    fresh, kept = Outcome(False, spent, first_ts), Outcome(True, spent, None)
    return Window(day, fresh if day else kept, kept, fresh)


def dump_window(window: Window) -> Any:
    if window == NO_WINDOW:
        return None
    outcomes = ([out.kept, int_to_item(out.spent), out.reset] for out in window[1:])
    return [window.day, *outcomes]


def load_window(item: Any) -> Window:
    if item is None:
        return NO_WINDOW
    zero, same, other = (Outcome(kept, item_to_int(spent), reset) for kept, spent, reset in item[1:])
    return Window(item[0], zero, same, other)
