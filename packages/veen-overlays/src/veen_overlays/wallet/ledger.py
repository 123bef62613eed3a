"""The wallet overlay, over all wallets of a stream or over one of them (WAL §3.1, §6, §11).

The debit and the credit of a transfer count once per transfer_id and wallet (WAL 5.5), so both are keys of
this overlay. A withdrawal's ``ref`` is a key too: it does not change the fold, but a producer and a verifier
look up the first withdrawal under a ref (WAL §7). Bridged copies are dropped earlier, by their identity
(WALBR0 11.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from veen_core.hashing import H, Ht
from veen_overlays.fold.event import EVENT_TAG, Event, Message, SeenKeys
from veen_overlays.fold.monoid import map_of
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps
from veen_overlays.identifiers import WalletId
from veen_overlays.schema.pattern import string_content, uint
from veen_overlays.schema.record import Record, Undecodable, decode_record
from veen_overlays.wallet import records as wal
from veen_overlays.wallet.account import ACCOUNT, NEVER_OPENED, UNTOUCHED, Account, WalletState
from veen_overlays.wallet.event_summary import CLOSES, FREEZES, UNFREEZES, sets_limit
from veen_overlays.wallet.movements import MovementRun

Accounts = Mapping[bytes, Account]
"""The summary of each wallet that a range names, by wallet_id."""


def control_of(record: Record) -> Account | None:
    """The summary of a control event; None for a payment."""
    match record:
        case wal.Open(created_at=created_at):
            return Account(opened=WalletState(exists=True, last_limit_reset_ts=created_at))
        case wal.Close():
            return CLOSES
        case wal.Limit(daily_limit=limit, ts=ts):
            return sets_limit(limit, ts)
        case wal.Freeze():
            return FREEZES
        case wal.Unfreeze():
            return UNFREEZES
    return None


class MovementRuns(dict[bytes, MovementRun]):
    """A run of payments for each wallet; if ``only`` is given, other wallets are ignored."""

    def __init__(self, only: WalletId | None = None) -> None:
        super().__init__()
        self.only = only
        self._ignored = None if only is None else MovementRun()

    def __missing__(self, wallet: bytes) -> MovementRun:
        if self._ignored is not None and wallet != self.only:
            return self._ignored
        run = self[bytes(wallet)] = MovementRun()
        return run

    def accounts(self) -> dict[bytes, Account]:
        """The summary of each wallet."""
        return {wallet: run.summary() for wallet, run in self.items()}


def lift_into(runs: MovementRuns, record: Record, repeated: tuple[bool, ...]) -> None:
    """Add a record to the runs of the wallets it names; ``repeated`` flags its ``wallet_keys``."""
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


def debit_key(wallet: bytes, transfer: bytes) -> bytes:
    """The key of a transfer's debit: it counts once per wallet (WAL 5.5)."""
    return b"debit" + wallet + transfer


def credit_key(wallet: bytes, transfer: bytes) -> bytes:
    """The key of a transfer's credit: it counts once per wallet (WAL 5.5)."""
    return b"credit" + wallet + transfer


def ref_key(wallet: bytes, ref: bytes) -> bytes:
    """The key of a withdrawal's ref, hashed because a ref may be longer than a store's keys (WAL §7)."""
    return Ht("wallet/ref", wallet + ref)


def wallet_keys(record: Record) -> tuple[bytes, ...]:
    """Debit and credit of a transfer, or the ref of a withdrawal; other records have no keys."""
    match record:
        case wal.Withdraw(wallet_id=wallet, ref=bytes() as ref):
            return (ref_key(wallet, ref),)
        case wal.Transfer(wallet_id=wallet, to_wallet_id=to, transfer_id=transfer):
            debit = debit_key(wallet, transfer)
            # A transfer to the same wallet has no credit: WAL §6 says "else if".
            return (debit,) if to == wallet else (debit, credit_key(to, transfer))
    return ()


class _BulkFold:
    """Fold of many messages that reads payments from their bytes and decodes only other records.

    Measured on 50,000 wallet events, as a share of the rate of bare ``cbor2.loads`` (the benchmark's
    ``overlays.fold``, target 0.10): 0.12 to 0.15 with this class, 0.06 if each payment is decoded into its
    record first, 0.025 by lifting each event and combining summaries.
    """

    def __init__(self, only: WalletId | None) -> None:
        self.only = only
        self.shapes = {bytes(shape.SCHEMA): (shape,) for shape in wal.WALLET_RECORDS}

    def __call__(
        self, messages: Iterable[Message], seen: SeenKeys
    ) -> tuple[dict[bytes, Account], int, list[Message]]:
        runs, ignored, events = MovementRuns(self.only), [], 0
        first = seen.first
        deposit, withdraw, transfer = map(_match_groups, (wal.Deposit, wal.Withdraw, wal.Transfer))
        deposit_id, withdraw_id = bytes(wal.Deposit.SCHEMA), bytes(wal.Withdraw.SCHEMA)
        transfer_id = bytes(wal.Transfer.SCHEMA)
        for message in messages:
            seq, msg_id, schema, body, parent_id = message[:5]
            if not first(H(EVENT_TAG + (parent_id or msg_id) + schema + body), seq):
                continue
            if schema == deposit_id and (groups := deposit(body)) is not None:
                runs[groups[0]].credit(uint(groups[1]))
            elif schema == withdraw_id and (groups := withdraw(body)) is not None:
                runs[groups[0]].debit(uint(groups[1]), uint(groups[2]))
                if groups[3] is not None:
                    first(ref_key(groups[0], string_content(groups[3])), seq)
            elif schema == transfer_id and (groups := transfer(body)) is not None:
                wallet, to, amount, ts, transfer_ = groups[:5]
                if first(debit_key(wallet, transfer_), seq):
                    runs[wallet].debit(uint(amount), uint(ts))
                if to != wallet and first(credit_key(to, transfer_), seq):
                    runs[to].credit(uint(amount))
            elif not self._add_decoded(runs, message, seen):
                ignored.append(message)
                continue
            events += 1
        return runs.accounts(), events, ignored

    def _add_decoded(self, runs: MovementRuns, message: Message, seen: SeenKeys) -> bool:
        """Decode and add any wallet record; return False if the message is not one."""
        shapes = self.shapes.get(message.schema)
        record = Undecodable("") if shapes is None else decode_record(shapes, message.body)
        if isinstance(record, Undecodable):
            return False
        repeated = tuple([not seen.first(key, message.seq) for key in wallet_keys(record)])
        lift_into(runs, record, repeated)
        return True


def _match_groups(record: type[Record]) -> Any:
    assert record.PATTERN is not None
    return record.PATTERN.groups


def _lifter(only: WalletId | None) -> Callable[[Event], Accounts]:
    def lift(event: Event) -> Accounts:
        if (control := control_of(event.record)) is not None:
            wallet = event.record.wallet_id  # type: ignore[attr-defined]  # every wallet record has one
            return {bytes(wallet): control} if only in (None, wallet) else {}
        runs = MovementRuns(only)
        lift_into(runs, event.record, event.repeated)
        return runs.accounts()

    return lift


def state_of(accounts: Accounts, wallet: bytes) -> WalletState:
    """The state of a wallet, given the summaries of a whole prefix of the log."""
    return accounts.get(bytes(wallet), UNTOUCHED).apply(NEVER_OPENED)


def _states(accounts: Accounts) -> dict[bytes, Any]:
    states = ((wallet, state_of(accounts, wallet)) for wallet in sorted(accounts))
    return {wallet: state.item() for wallet, state in states if state != NEVER_OPENED}


_TABLE: Final = table_of_maps(
    {
        "wallet_id": ColumnType.BYTES,
        "exists": ColumnType.BOOL,
        "closed": ColumnType.BOOL,
        "balance": ColumnType.INTEGER,
        "frozen": ColumnType.BOOL,
        "daily_limit": ColumnType.UINT,
        "pending_daily_spent": ColumnType.INTEGER,
        "last_limit_reset_ts": ColumnType.UINT,
    },
    key="wallet_id",
)


def _overlay(only: WalletId | None, title: str) -> Overlay[Accounts]:
    return Overlay(
        name="wallet.ledger",
        scope=only or b"",
        title=title,
        schemas=wal.WALLET_RECORDS,
        monoid=map_of(ACCOUNT),
        lift=_lifter(only),
        view=_states,
        table=_TABLE,
        keys=wallet_keys,
        bulk=_BulkFold(only),
    )


LEDGER: Final = _overlay(None, "Every wallet of the stream: balance, limit, freeze, closure (WAL §6).")


def one_wallet(wallet: WalletId) -> Overlay[Accounts]:
    """The overlay of one wallet on its own stream; it leaves out the wallets of counterparties (WAL 3.1)."""
    return _overlay(wallet, "One wallet of the stream (WAL §6).")
