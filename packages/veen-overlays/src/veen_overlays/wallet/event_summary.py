"""The summary of one wallet event, from the bytes that the pattern of its record has matched.

This saves a fold that knows the state before the event from decoding the record. A summary depends on no
earlier event, so the events with keys are not here: openings, transfers, and withdrawals with a ref.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from veen_overlays.schema.pattern import NULL, is_text, signed, uint
from veen_overlays.schema.record import Record
from veen_overlays.wallet import records as wal
from veen_overlays.wallet.account import Account, Moves
from veen_overlays.wallet.movements import MovementRun
from veen_overlays.wallet.window import set_if_zero

Groups = tuple[Any, ...]
CLOSES: Final = Account(closes=True)
FREEZES: Final = Account(frozen=True)
UNFREEZES: Final = Account(frozen=False)


def sets_limit(limit: int | None, ts: int) -> Account:
    """The summary of a limit, or of its removal."""
    if limit is None:
        return Account(limit=(None,))
    window = set_if_zero(ts)
    return Account(limit=(limit,), reset=ts, windows=(window,) * 4)


def _limited(groups: Groups) -> Account:
    _wallet, limit, ts = groups
    return sets_limit(None if limit == NULL else uint(limit), uint(ts))


def _deposited(groups: Groups) -> Account:
    moves = Moves(uint(groups[1]), 0)
    return Account(moves=(moves, moves))


def _withdrawn(groups: Groups) -> Account | None:
    _wallet, amount, ts, ref = groups
    if ref is not None:
        return None
    run = MovementRun()
    run.debit(uint(amount), uint(ts))
    return run.summary()


def _adjusted(groups: Groups) -> Account | None:
    _wallet, delta, _ts, reason, _ref = groups
    if not is_text(reason):
        return None
    change = signed(delta)
    moves = Moves(change, min(change, 0))
    return Account(moves=(moves, moves))


def _frozen(groups: Groups) -> Account | None:
    return FREEZES if groups[2] is None or is_text(groups[2]) else None


def _unfrozen(groups: Groups) -> Account | None:
    return UNFREEZES if groups[2] is None or is_text(groups[2]) else None


SUMMARIES: Final[Mapping[type[Record], Callable[[Groups], Account | None]]] = {
    wal.Close: lambda _groups: CLOSES,
    wal.Deposit: _deposited,
    wal.Withdraw: _withdrawn,
    wal.Adjust: _adjusted,
    wal.Limit: _limited,
    wal.Freeze: _frozen,
    wal.Unfreeze: _unfrozen,
}
"""By record: the summary of a matched body. None: the record has a key or is invalid, and must be decoded."""
