"""The wallet overlay: all wallets of a stream, or one of them (WAL §3.1, §6, §11).

A transfer's debit and its credit each count once per transfer_id and wallet (5.5): those are the keys
this overlay names. Bridged copies are dropped before, by their identity (WALBR0 11.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from veen_core.hashing import H
from veen_overlays.fold.event import EVENT_TAG, Event, Message, SeenKeys
from veen_overlays.fold.monoid import map_of
from veen_overlays.fold.overlay import Overlay
from veen_overlays.identifiers import WalletId
from veen_overlays.schema.pattern import uint
from veen_overlays.schema.record import Record, Undecodable, decode_record
from veen_overlays.wallet import records as wal
from veen_overlays.wallet.account import ACCOUNT, NEVER_OPENED, UNTOUCHED, Account, State
from veen_overlays.wallet.movements import MovementRun
from veen_overlays.wallet.window import set_if_zero

Accounts = Mapping[bytes, Account]


def control_of(record: Record) -> Account | None:
    """The summary of an event that moves nothing; None for a movement."""
    match record:
        case wal.Open(created_at=created_at):
            return Account(opened=State(exists=True, last_limit_reset_ts=created_at))
        case wal.Close():
            return Account(closes=True)
        case wal.Limit(daily_limit=None):
            return Account(limit=(None,))
        case wal.Limit(daily_limit=limit, ts=ts):
            window = set_if_zero(ts)
            return Account(limit=(limit,), reset=ts, windows=(window,) * 4)
        case wal.Freeze():
            return Account(frozen=True)
        case wal.Unfreeze():
            return Account(frozen=False)
    return None


def lift_into(runs: MovementRuns, record: Record, repeated: tuple[bool, ...]) -> None:
    """One record into the runs of the wallets it names."""
    match record:
        case wal.Deposit(wallet_id=wallet, amount=amount):
            runs[wallet].credit(amount)
        case wal.Withdraw(wallet_id=wallet, amount=amount, ts=ts):
            runs[wallet].debit(amount, ts)
        case wal.Adjust(wallet_id=wallet, delta=delta):
            runs[wallet].adjust(delta)
        case wal.Transfer(wallet_id=wallet, to_wallet_id=to, amount=amount, ts=ts):
            if not (repeated and repeated[0]):
                runs[wallet].debit(amount, ts)
            if to != wallet and not (repeated and repeated[1]):
                runs[to].credit(amount)
        case _:
            control = control_of(record)
            assert control is not None
            runs[record.wallet_id].control(control)  # type: ignore[attr-defined]  # every wallet record has one


class MovementRuns(dict[bytes, MovementRun]):
    """A run for each wallet that is named; of others than ``only``, if given, nothing is kept."""

    def __init__(self, only: WalletId | None = None) -> None:
        super().__init__()
        self.only = only
        self._ignored = MovementRun()

    def __missing__(self, wallet: bytes) -> MovementRun:
        if self.only is not None and wallet != self.only:
            return self._ignored
        run = self[bytes(wallet)] = MovementRun()
        return run

    def accounts(self) -> dict[bytes, Account]:
        return {wallet: run.summary() for wallet, run in self.items()}


def debit_key(wallet: bytes, transfer: bytes) -> bytes:
    """A transfer_id counts once per wallet and direction (5.5)."""
    return b"debit" + wallet + transfer


def credit_key(wallet: bytes, transfer: bytes) -> bytes:
    return b"credit" + wallet + transfer


def transfer_keys(record: Record) -> tuple[bytes, ...]:
    """Debit and credit of a transfer; other records have no keys."""
    if not isinstance(record, wal.Transfer):
        return ()
    debit = debit_key(record.wallet_id, record.transfer_id)
    if record.to_wallet_id == record.wallet_id:  # §6 says "else if": to oneself there is no credit
        return (debit,)
    return debit, credit_key(record.to_wallet_id, record.transfer_id)


def _expression(record: type[Record]) -> Any:
    assert record.PATTERN is not None
    return record.PATTERN.groups


class _Bulk:
    """Folds many messages: movements straight from their bytes, the rest by the general way."""

    def __init__(self, only: WalletId | None) -> None:
        self.only = only
        self.shapes = {bytes(shape.SCHEMA): (shape,) for shape in wal.WALLET_RECORDS}

    def __call__(
        self, messages: Iterable[Message], seen: SeenKeys
    ) -> tuple[dict[bytes, Account], int, list[Message]]:
        runs, aside, events = MovementRuns(self.only), [], 0
        first = seen.first
        deposit, withdraw, transfer = map(_expression, (wal.Deposit, wal.Withdraw, wal.Transfer))
        deposit_id, withdraw_id = bytes(wal.Deposit.SCHEMA), bytes(wal.Withdraw.SCHEMA)
        transfer_id = bytes(wal.Transfer.SCHEMA)
        for message in messages:
            seq, msg_id, schema, body, parent_id = message
            if not first(H(EVENT_TAG + (parent_id or msg_id) + schema + body), seq):
                continue
            if schema == deposit_id and (groups := deposit(body)) is not None:
                runs[groups[0]].credit(uint(groups[1]))
            elif schema == withdraw_id and (groups := withdraw(body)) is not None:
                runs[groups[0]].debit(uint(groups[1]), uint(groups[2]))
            elif schema == transfer_id and (groups := transfer(body)) is not None:
                wallet, to, amount, ts, transfer_ = groups[:5]
                if first(debit_key(wallet, transfer_), seq):
                    runs[wallet].debit(uint(amount), uint(ts))
                if to != wallet and first(credit_key(to, transfer_), seq):
                    runs[to].credit(uint(amount))
            elif not self._slowly(runs, message, seen):
                aside.append(message)
                continue
            events += 1
        return runs.accounts(), events, aside

    def _slowly(self, runs: MovementRuns, message: Message, seen: SeenKeys) -> bool:
        """Any record, in any canonical form; False if it is none."""
        shapes = self.shapes.get(message.schema)
        record = Undecodable("") if shapes is None else decode_record(shapes, message.body)
        if isinstance(record, Undecodable):
            return False
        repeated = tuple([not seen.first(key, message.seq) for key in transfer_keys(record)])
        lift_into(runs, record, repeated)
        return True


def _lifter(only: WalletId | None) -> Any:
    def lift(event: Event) -> Accounts:
        runs = MovementRuns(only)
        lift_into(runs, event.record, event.repeated)
        return runs.accounts()

    return lift


def state_of(accounts: Accounts, wallet: bytes) -> State:
    """A wallet after a prefix that starts with the log."""
    return accounts.get(bytes(wallet), UNTOUCHED).apply(NEVER_OPENED)


def _states(accounts: Accounts) -> dict[bytes, Any]:
    states = ((wallet, state_of(accounts, wallet)) for wallet in sorted(accounts))
    return {wallet: state.item() for wallet, state in states if state != NEVER_OPENED}


def _overlay(only: WalletId | None, title: str) -> Overlay[Accounts]:
    return Overlay(
        name="wallet.ledger",
        scope=only or b"",
        title=title,
        schemas=wal.WALLET_RECORDS,
        monoid=map_of(ACCOUNT),
        lift=_lifter(only),
        view=_states,
        keys=transfer_keys,
        bulk=_Bulk(only),
    )


LEDGER: Final = _overlay(None, "Every wallet of the stream: balance, limit, freeze, closure (WAL §6).")


def one_wallet(wallet: WalletId) -> Overlay[Accounts]:
    """Only this wallet: on its own stream, counterparties would fill the summaries (WAL 3.1)."""
    return _overlay(wallet, "One wallet of the stream (WAL §6).")
