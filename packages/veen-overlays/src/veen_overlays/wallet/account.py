"""The summary monoid of one wallet: what a range of events does to any earlier state (WAL §4, §6).

WAL §6 is a program that turns a state and an event into the next state. The summary of a range is that
program for all its events, as a function of the state before the range. Only five properties of that state
matter: whether the wallet exists, is closed, is frozen, has a limit, and the day of its window. So an
``Account`` holds

    opened           the state after the range, if the range opens a wallet that did not exist
    closes           whether the range closes a wallet that exists
    frozen, limit    the last value that the range sets for each
    reset            the first reset time that a limit sets on a wallet without one
    moves            balance change and lowest point, by the state before: unfrozen, frozen
    windows          the daily window, by the state before: (unfrozen, frozen) x (without, with a limit)

and ``apply`` is WAL §6. The size of an ``Account`` does not depend on the length of the range.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from veen_overlays.fold.monoid import Monoid, int_to_item, item_to_int
from veen_overlays.wallet.window import NO_WINDOW, Window, dump_window, load_window, set_if_zero

LimitSet = tuple[()] | tuple[int | None]
"""Empty if the range sets no limit; else the limit it sets, None for a cleared limit."""


class WalletState(NamedTuple):
    """The state of a wallet (WAL §4), and its lowest balance ever: negative if it was ever overdrawn."""

    exists: bool = False
    closed: bool = False
    balance: int = 0
    frozen: bool = False
    daily_limit: int | None = None
    pending_daily_spent: int = 0
    last_limit_reset_ts: int = 0
    lowest: int = 0

    @property
    def pays_out(self) -> bool:
        """Whether a debit counts (WAL §6)."""
        return self.exists and not self.closed and not self.frozen

    def moved(self, delta: int) -> WalletState:
        """The state after its balance changed; a third of the time of ``_replace``."""
        exists, closed, balance, frozen, limit, spent, reset, lowest = self
        balance += delta
        lowest = balance if balance < lowest else lowest
        return WalletState(exists, closed, balance, frozen, limit, spent, reset, lowest)

    def item(self) -> dict[str, Any]:
        """The fields of WAL §4 in their order: the part that is shown and hashed."""
        fields = self._asdict()
        del fields["lowest"]
        return fields | {
            "balance": int_to_item(self.balance),
            "pending_daily_spent": int_to_item(self.pending_daily_spent),
        }


NEVER_OPENED: Final = WalletState()
"""The state of a wallet before any event (``state0``, WAL §6)."""


class Moves(NamedTuple):
    """The balance change over a range and its lowest point, both relative to the range's start."""

    delta: int
    low: int

    def then(self, after: Moves) -> Moves:
        """The moves of this range followed by another."""
        return Moves(self.delta + after.delta, min(self.low, self.delta + after.low))


NO_MOVES: Final = Moves(0, 0)


class Account(NamedTuple):
    """The summary of a range of one wallet's events; the module explains the fields."""

    opened: WalletState | None = None
    closes: bool = False
    frozen: bool | None = None
    limit: LimitSet = ()
    reset: int = 0
    moves: tuple[Moves, Moves] = (NO_MOVES, NO_MOVES)
    windows: tuple[Window, Window, Window, Window] = (NO_WINDOW,) * 4

    def apply(self, state: WalletState) -> WalletState:
        """The state after the range, given the state before it (WAL §6)."""
        if not state.exists and self.opened is not None:
            return self.opened
        limit = self.limit[0] if self.limit else state.daily_limit
        if not state.exists or state.closed:
            _, reset = set_if_zero(self.reset).apply(state.pending_daily_spent, state.last_limit_reset_ts)
            frozen = state.frozen if self.frozen is None or not state.exists else self.frozen
            return state._replace(frozen=frozen, daily_limit=limit, last_limit_reset_ts=reset)
        moves = self.moves[state.frozen]
        window = self.windows[2 * state.frozen + (state.daily_limit is not None)]
        pending, reset = window.apply(state.pending_daily_spent, state.last_limit_reset_ts)
        return WalletState(
            exists=True,
            closed=self.closes,
            balance=state.balance + moves.delta,
            frozen=state.frozen if self.frozen is None else self.frozen,
            daily_limit=limit,
            pending_daily_spent=pending,
            last_limit_reset_ts=reset,
            lowest=min(state.lowest, state.balance + moves.low),
        )


UNTOUCHED: Final = Account()


def combine(a: Account, b: Account) -> Account:
    """The summary of ``a`` followed by ``b``."""
    if a is UNTOUCHED or b is UNTOUCHED:
        return b if a is UNTOUCHED else a
    moves, windows = _effects_after_close(a, b) if a.closes else _effects(a, b)
    return Account(
        opened=b.opened if a.opened is None else b.apply(a.opened),
        closes=a.closes or b.closes,
        frozen=a.frozen if b.frozen is None else b.frozen,
        limit=b.limit or a.limit,
        reset=a.reset or b.reset,
        moves=moves,
        windows=windows,
    )


Effects = tuple[tuple[Moves, Moves], tuple[Window, Window, Window, Window]]


def _effects_after_close(a: Account, b: Account) -> Effects:
    """Effects of ``b`` on a wallet that ``a`` closed: only a limit still sets the reset time (WAL §6)."""
    late = set_if_zero(b.reset)
    w = a.windows
    return a.moves, (w[0].then(late), w[1].then(late), w[2].then(late), w[3].then(late))


def _effects(a: Account, b: Account) -> Effects:
    """Effects of ``a`` then ``b``: each case of the state before ``a`` leads to one case before ``b``."""
    free = bool(a.frozen)  # a wallet that is unfrozen before ``a`` is frozen before ``b`` if ``a`` froze it
    held = a.frozen is not False
    windows = []
    for entered, frozen in ((0, free), (1, held)):
        for limited in (0, 1):
            has_limit = a.limit[0] is not None if a.limit else limited
            windows.append(a.windows[2 * entered + limited].then(b.windows[2 * frozen + has_limit]))
    moves = a.moves[0].then(b.moves[free]), a.moves[1].then(b.moves[held])
    return moves, (windows[0], windows[1], windows[2], windows[3])


def dump(account: Account) -> list[Any]:
    """The canonical CBOR item of a summary; sums beyond 64 bits are text."""
    opened = account.opened and [
        int_to_item(field) if type(field) is int else field for field in account.opened
    ]
    moves = [int_to_item(n) for move in account.moves for n in move]
    windows = [dump_window(window) for window in account.windows]
    return [opened, account.closes, account.frozen, list(account.limit), account.reset, moves, windows]


def load(item: Any) -> Account:
    """The inverse of ``dump``."""
    opened, closes, frozen, limit, reset, moves, windows = item
    state = opened and WalletState._make(
        item_to_int(field) if type(field) is str else field for field in opened
    )
    free, held = (Moves(item_to_int(moves[n]), item_to_int(moves[n + 1])) for n in (0, 2))
    a, b, c, d = map(load_window, windows)
    return Account(state, closes, frozen, tuple(limit), reset, (free, held), (a, b, c, d))


ACCOUNT: Final[Monoid[Account]] = Monoid(UNTOUCHED, combine, dump, load)
