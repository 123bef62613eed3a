"""Movements in a row: the fast part of a wallet's fold (WAL 5.3-5.6).

Between two control events (open, close, limit, freeze, unfreeze) only amounts move, and a whole run of
movements needs one pass over plain integers. One movement alone is a run of one: ``lift`` uses it too.
"""

from __future__ import annotations

from veen_overlays.wallet.account import UNTOUCHED, Account, Moves, combine
from veen_overlays.wallet.window import DAY_SEC, NO_WINDOW, debits


class MovementRun:
    """A wallet's summary so far, and the movements after it."""

    __slots__ = (
        *("account", "moved", "free", "free_low", "held", "held_low"),
        *("first_ts", "reset", "day", "spent"),
    )

    def __init__(self, account: Account = UNTOUCHED) -> None:
        self._start(account)

    def _start(self, account: Account) -> None:
        self.account = account
        self.moved = False
        self.free = self.free_low = self.held = self.held_low = 0
        self.first_ts: int | None = None
        self.reset: int | None = None
        self.day: int | None = None
        self.spent = 0

    def credit(self, amount: int) -> None:
        """Goes through, frozen or not."""
        self.moved = True
        self.free += amount
        self.held += amount

    def adjust(self, delta: int) -> None:
        """Likewise, and may lower the balance."""
        self.credit(delta)
        self.free_low = min(self.free_low, self.free)
        self.held_low = min(self.held_low, self.held)

    def debit(self, amount: int, ts: int) -> None:
        """Only of a wallet that is not frozen; counts against the day's limit where there is one."""
        self.moved = True
        self.free -= amount
        self.free_low = min(self.free_low, self.free)
        day = ts // DAY_SEC
        if day == self.day:
            self.spent += amount
            return
        if self.first_ts is None:
            self.first_ts = ts
        else:
            self.reset = ts
        self.day, self.spent = day, amount

    def control(self, account: Account) -> None:
        """A control event ends the run."""
        self._start(combine(self.summary(), account))

    def summary(self) -> Account:
        """Everything so far."""
        if not self.moved:
            return self.account
        window = NO_WINDOW if self.first_ts is None else debits(self.first_ts, self.spent, self.reset)
        moves = Moves(self.free, self.free_low), Moves(self.held, self.held_low)
        movements = Account(moves=moves, windows=(NO_WINDOW, window, NO_WINDOW, NO_WINDOW))
        return combine(self.account, movements)
