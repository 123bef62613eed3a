"""One wallet as a monoid: what a range of events does to any state it may meet (WAL §4, §6).

§6 is a program over a state; a summary of a range is that program with the state left open. Little of
the state decides: whether the wallet exists, is closed, is frozen, has a limit, and on which day its
window stands. So an ``Account`` holds

    opened           the state after the range if the wallet did not exist before it and the range opens it
    closes           whether the range closes a wallet that exists
    frozen, limit    the last word of the range on each
    reset            the first reset time that a limit offers to a wallet without one
    moves            balance change and lowest point: of a wallet that enters unfrozen, and frozen
    windows          the daily window: entering (unfrozen, frozen) x (without, with a limit)

and ``apply`` is §6. Its size does not depend on the length of the range.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from veen_overlays.fold.monoid import Monoid, int_to_item, item_to_int
from veen_overlays.wallet.window import NO_WINDOW, Window, dump_window, load_window, set_if_zero

LimitSet = tuple[()] | tuple[int | None]
"""Nothing said, or the limit said: a value or None for none."""


class State(NamedTuple):
    """WAL §4, with the lowest balance that ever was: negative if a prefix was ever overdrawn."""

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
        """Whether a debit counts (§6)."""
        return self.exists and not self.closed and not self.frozen

    def item(self) -> dict[str, Any]:
        """§4's fields in their order: what is shown and hashed."""
        fields = self._asdict()
        del fields["lowest"]
        return fields | {
            "balance": int_to_item(self.balance),
            "pending_daily_spent": int_to_item(self.pending_daily_spent),
        }


NEVER_OPENED: Final = State()
"""``state0`` (§6)."""


class Moves(NamedTuple):
    """The balance's change over a range, and its lowest point within, both relative to its start."""

    delta: int
    low: int

    def then(self, after: Moves) -> Moves:
        return Moves(self.delta + after.delta, min(self.low, self.delta + after.low))


NO_MOVES: Final = Moves(0, 0)


class Account(NamedTuple):
    """See the module."""

    opened: State | None = None
    closes: bool = False
    frozen: bool | None = None
    limit: LimitSet = ()
    reset: int = 0
    moves: tuple[Moves, Moves] = (NO_MOVES, NO_MOVES)
    windows: tuple[Window, Window, Window, Window] = (NO_WINDOW,) * 4

    def apply(self, state: State) -> State:
        """§6, for all events of the range at once."""
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
        return State(
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
    """``a`` before ``b``."""
    if a is UNTOUCHED or b is UNTOUCHED:
        return b if a is UNTOUCHED else a
    moves, windows = _shut(a, b) if a.closes else _joined(a, b)
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


def _shut(a: Account, b: Account) -> Effects:
    """Of a closed wallet only a limit can still touch the reset time (§6)."""
    late = set_if_zero(b.reset)
    w = a.windows
    return a.moves, (w[0].then(late), w[1].then(late), w[2].then(late), w[3].then(late))


def _joined(a: Account, b: Account) -> Effects:
    """Each case of entering ``a`` leads into one case of entering ``b``."""
    free = bool(a.frozen)  # entered unfrozen, ``b`` finds it frozen only if ``a`` froze it
    held = a.frozen is not False
    windows = []
    for entered, frozen in ((0, free), (1, held)):
        for limited in (0, 1):
            has_limit = a.limit[0] is not None if a.limit else limited
            windows.append(a.windows[2 * entered + limited].then(b.windows[2 * frozen + has_limit]))
    moves = a.moves[0].then(b.moves[free]), a.moves[1].then(b.moves[held])
    return moves, (windows[0], windows[1], windows[2], windows[3])


def dump(account: Account) -> list[Any]:
    """Canonical: state and windows as arrays, big sums as text."""
    opened = account.opened and [
        int_to_item(field) if type(field) is int else field for field in account.opened
    ]
    moves = [int_to_item(n) for move in account.moves for n in move]
    windows = [dump_window(window) for window in account.windows]
    return [opened, account.closes, account.frozen, list(account.limit), account.reset, moves, windows]


def load(item: Any) -> Account:
    opened, closes, frozen, limit, reset, moves, windows = item
    state = opened and State._make(item_to_int(field) if type(field) is str else field for field in opened)
    free, held = (Moves(item_to_int(moves[n]), item_to_int(moves[n + 1])) for n in (0, 2))
    a, b, c, d = map(load_window, windows)
    return Account(state, closes, frozen, tuple(limit), reset, (free, held), (a, b, c, d))


ACCOUNT: Final[Monoid[Account]] = Monoid(UNTOUCHED, combine, dump, load)
