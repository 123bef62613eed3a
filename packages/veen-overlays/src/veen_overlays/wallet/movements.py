"""Consecutive payments of one wallet, added up as plain integers (WAL 5.3-5.6).

Between two control events (open, close, limit, freeze, unfreeze) only amounts change, so a run of payments
needs no combining of summaries. A single payment is a run of one.
"""

from __future__ import annotations

from veen_overlays.wallet.account import UNTOUCHED, Account, Moves, combine
from veen_overlays.wallet.window import DAY_SEC, NO_WINDOW, debits


class MovementRun:
    """The summary of a wallet up to its last control event, and the sums of the payments after it.

    ``free`` and ``free_low`` are the balance change and its lowest point if the wallet is unfrozen before
    the run, ``held`` and ``held_low`` if it is frozen.
    """

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
        """Add an incoming payment; it counts whether or not the wallet is frozen."""
        self.moved = True
        self.free += amount
        self.held += amount

    def adjust(self, delta: int) -> None:
        """Add a correction, which may lower the balance; it counts whether or not the wallet is frozen."""
        self.credit(delta)
        self.free_low = min(self.free_low, self.free)
        self.held_low = min(self.held_low, self.held)

    def debit(self, amount: int, ts: int) -> None:
        """Add an outgoing payment; it counts only if the wallet is not frozen, and against a daily limit."""
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
        """End the run with a control event, given as its summary."""
        self._start(combine(self.summary(), account))

    def summary(self) -> Account:
        """The summary of all events so far."""
        if not self.moved:
            return self.account
        window = NO_WINDOW if self.first_ts is None else debits(self.first_ts, self.spent, self.reset)
        moves = Moves(self.free, self.free_low), Moves(self.held, self.held_low)
        movements = Account(moves=moves, windows=(NO_WINDOW, window, NO_WINDOW, NO_WINDOW))
        return combine(self.account, movements)
