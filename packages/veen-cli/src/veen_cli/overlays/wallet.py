"""``veen wallet``: the commands that change a wallet, after checking the rules (WAL §5, §13).

A wallet has a stream of its own, or shares a ledger with other wallets (``--ledger``). A command folds the
log to its end and checks the rules before it sends. Two producers that act at the same time may both pass the
check; the command of the slower one then fails, and ``veen wallet verify`` reports the event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.numbers import MAX_UINT, Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.overlays.arguments import realm_option
from veen_cli.overlays.ledger_scope import LedgerScope, scope_options
from veen_cli.overlays.overlay_stream import (
    OverlayAccess,
    OverlayStream,
    View,
    access_options,
    refused,
    sent_data,
)
from veen_core.ids import StreamId, UnixTime
from veen_core.receipt import Receipt
from veen_core.stream import stream_id
from veen_overlays.fold.event import Event
from veen_overlays.fold.overlay import Overlay
from veen_overlays.identifiers import CtxId, PrincipalPk, RealmId, WalletId, ctx_id, wallet_id, wallet_stream
from veen_overlays.schema.record import Record
from veen_overlays.wallet import records as wal
from veen_overlays.wallet.account import NEVER_OPENED, WalletState
from veen_overlays.wallet.ledger import LEDGER, Accounts, one_wallet, ref_key, state_of
from veen_overlays.wallet.rules import WalCode, paid_under_ref, refusal, violation_of

_HERE: Final = "veen_cli.overlays.wallet"
COMMANDS: Final = {
    "open": LazyCommand(f"{_HERE}:open_", "Open a wallet."),
    "deposit": LazyCommand(f"{_HERE}:deposit", "Pay money in from outside."),
    "withdraw": LazyCommand(f"{_HERE}:withdraw", "Pay money out."),
    "transfer": LazyCommand("veen_cli.overlays.transfer:transfer", "Pay from one wallet to another."),
    "adjust": LazyCommand(f"{_HERE}:adjust", "Correct a balance, up or down."),
    "limit": LazyCommand(f"{_HERE}:limit", "Set or clear the daily limit of outgoing payments."),
    "freeze": LazyCommand(f"{_HERE}:freeze", "Stop outgoing payments."),
    "unfreeze": LazyCommand(f"{_HERE}:unfreeze", "Allow outgoing payments again."),
    "close": LazyCommand(f"{_HERE}:close", "Close an empty wallet permanently."),
    "balance": LazyCommand("veen_cli.overlays.ledger:balance", "Show a wallet, or all wallets of a ledger."),
    "ledger": LazyCommand("veen_cli.overlays.ledger:ledger", "List the events of a wallet or a ledger."),
    "verify": LazyCommand("veen_cli.overlays.ledger:verify", "Report every event that breaks the rules."),
}
wallet = CommandGroup(
    "wallet", COMMANDS, path="wallet", help="Wallets: balances folded from a log, with rules."
)

wallet_argument = click.argument("wallet", type=Hex(WalletId), metavar="WALLET")
amount_argument = click.argument("amount", type=Integer(1))
ref_option = click.option("--ref", help="Reference of the payment, as text.")
reason_option = click.option("--reason", help="Reason, as text.")


@dataclass(frozen=True, slots=True)
class WalletAccount:
    """A wallet and the stream of its events."""

    wallet: WalletId
    scope: LedgerScope

    @property
    def stream(self) -> StreamId:
        ledger = self.scope.ledger
        return wallet_stream(self.wallet) if ledger is None else stream_id(ledger)

    @property
    def overlay(self) -> Overlay[Accounts]:
        return LEDGER if self.scope.ledger is not None else one_wallet(self.wallet)

    @property
    def description(self) -> str:
        """The description of the stream in errors."""
        ledger = self.scope.ledger
        return f"wallet {self.wallet.hex()}" if ledger is None else f"stream {ledger}"

    async def state(self, view: View[Accounts]) -> WalletState:
        """The wallet's state at the end of the log."""
        return state_of((await view.state()).summary.inner, self.wallet)

    async def send(self, source: OverlayStream, view: View[Accounts], record: Record) -> Receipt:
        """Send a record that the rules allow (WAL §13), and check it again where the hub put it.

        Another producer's event may arrive between the check and the message. If the rules forbid the record
        after that event, the command fails and the record stays in the log.
        """
        policy = self.scope.policy
        authors = () if policy.operators is None else await source.authors()
        if (found := refusal(await self.state(view), record, policy, authors)) is not None:
            raise refused(found.code, found.why)
        if isinstance(record, wal.Withdraw) and record.ref is not None:
            await self._check_ref(view, record.ref)
        receipt = await source.send(record)
        await view.catch_up()
        await self.check_allowed(view, view.position_of(receipt), record)
        return receipt

    async def _check_ref(self, view: View[Accounts], ref: bytes) -> None:
        """Refuse a ref under which a withdrawal has paid out (WAL §7).

        A withdrawal from a frozen or closed wallet paid nothing. Only if the first withdrawal under the ref
        paid nothing is the rest of the log searched for a later one.
        """
        first = await view.first_use(ref_key(self.wallet, ref))
        for position in range(first or view.size + 1, view.size + 1):
            if position != first and not await self._withdraws(view, position, ref):
                continue
            if (await self._state_before(view, position)).pays_out:
                raise refused(WalCode.DUPLICATE_REF, paid_under_ref(position))

    async def _withdraws(self, view: View[Accounts], position: int, ref: bytes) -> bool:
        event = self.overlay.decode(await view.message(position))
        record = event.record if isinstance(event, Event) else None
        return isinstance(record, wal.Withdraw) and (record.wallet_id, record.ref) == (self.wallet, ref)

    async def _state_before(self, view: View[Accounts], position: int) -> WalletState:
        if position == 1:
            return NEVER_OPENED
        return state_of((await view.state(position - 1)).summary.inner, self.wallet)

    async def check_allowed(self, view: View[Accounts], position: int, record: Record) -> None:
        """Raise if the rules forbid the record at its position in the log."""
        found = violation_of(await self._state_before(view, position), record)
        if found is not None:
            raise CommandFailed(
                f"{found.code}: {found.why}: another producer was faster, and message {position} is in the "
                "log although the rules forbid it",
                Exit.PROTOCOL,
                action="run `veen wallet verify` to see it and `veen wallet adjust` to correct the balance",
            )


def emit(
    access: OverlayAccess, account: WalletAccount, make: Callable[[UnixTime], Record], done: str
) -> Answer:
    """Check the record, send it, and show the wallet afterwards."""

    async def work() -> tuple[Record, Receipt, WalletState]:
        async with access.at(account.stream) as source, source.view(account.overlay) as view:
            record = make(source.now)
            receipt = await account.send(source, view, record)
            return record, receipt, await account.state(view)

    record, receipt, state = loop.run(work())
    return Answer(
        {**sent_data(record, receipt, account.stream.hex()), **state_data(account.wallet, state)},
        [f"{done}; the balance is {state.balance}", f"  wallet {account.wallet.hex()}"],
    )


def state_data(wallet: WalletId, state: WalletState) -> dict[str, Any]:
    """The JSON of a wallet's state."""
    return {"wallet": wallet.hex(), **state._asdict()}


def _ref(text: str | None) -> bytes | None:
    return text.encode() if text is not None else None


@command("veen wallet open --realm shop --currency EUR", name="open")
@realm_option
@click.option("--currency", required=True, help="Currency code, such as EUR.")
@click.option(
    "--ctx", type=Hex(CtxId), help="Account that owns the wallet [default: your account in the realm]."
)
@scope_options
@access_options
def open_(
    out: Output,
    *,
    access: OverlayAccess,
    realm: RealmId,
    currency: str,
    ctx: CtxId | None,
    scope: LedgerScope,
) -> Answer:
    """Open a wallet.

    The wallet's id is derived from realm, account and currency, so an account has one wallet per currency.
    Opening it twice is refused.
    """
    del out
    if not currency or not currency.isascii():
        raise refused(WalCode.INVALID_CURRENCY, "a currency code must be ASCII text (WAL 2.2)")
    owner = ctx or ctx_id(PrincipalPk(access.identity.client_id), realm)
    wallet = wallet_id(realm, owner, currency)

    def make(now: UnixTime) -> Record:
        return wal.Open(wallet_id=wallet, realm_id=realm, ctx_id=owner, currency=currency, created_at=now)

    return emit(access, WalletAccount(wallet, scope), make, f"opened a wallet in {currency}")


@command("veen wallet deposit WALLET 500 --ref 'invoice 17'")
@wallet_argument
@amount_argument
@ref_option
@scope_options
@access_options
def deposit(
    out: Output, *, access: OverlayAccess, wallet: WalletId, amount: int, ref: str | None, scope: LedgerScope
) -> Answer:
    """Pay money in from outside.

    AMOUNT is in the currency's smallest unit.
    """
    del out

    def make(now: UnixTime) -> Record:
        return wal.Deposit(wallet_id=wallet, amount=amount, ts=now, ref=_ref(ref))

    return emit(access, WalletAccount(wallet, scope), make, f"deposited {amount}")


@command("veen wallet withdraw WALLET 200")
@wallet_argument
@amount_argument
@ref_option
@scope_options
@access_options
def withdraw(
    out: Output, *, access: OverlayAccess, wallet: WalletId, amount: int, ref: str | None, scope: LedgerScope
) -> Answer:
    """Pay money out.

    Refused with exit code 6 if AMOUNT exceeds the balance or the daily limit, if the wallet is frozen, or if
    it has paid out under the same --ref before: a retry must not pay twice.
    """
    del out

    def make(now: UnixTime) -> Record:
        return wal.Withdraw(wallet_id=wallet, amount=amount, ts=now, ref=_ref(ref))

    return emit(access, WalletAccount(wallet, scope), make, f"withdrew {amount}")


@command(
    "veen wallet adjust WALLET --by -20 --reason 'counted twice'",
)
@wallet_argument
@click.option(
    "--by",
    "delta",
    type=Integer(-MAX_UINT),
    required=True,
    help="Amount to add; a negative amount is subtracted.",
)
@click.option("--reason", required=True, help="Reason; readers of the log see it.")
@ref_option
@scope_options
@access_options
def adjust(
    out: Output,
    *,
    access: OverlayAccess,
    wallet: WalletId,
    delta: int,
    reason: str,
    ref: str | None,
    scope: LedgerScope,
) -> Answer:
    """Correct a balance, up or down.

    For operators. The balance cannot go below zero.
    """
    del out

    def make(now: UnixTime) -> Record:
        return wal.Adjust(wallet_id=wallet, delta=delta, ts=now, reason=reason, ref=_ref(ref))

    return emit(access, WalletAccount(wallet, scope), make, f"adjusted by {delta}")


@command("veen wallet limit WALLET 1000", "veen wallet limit WALLET --none")
@wallet_argument
@click.argument("amount", type=Integer(0), required=False)
@click.option("--none", "clear", is_flag=True, help="Clear the limit.")
@scope_options
@access_options
def limit(
    out: Output,
    *,
    access: OverlayAccess,
    wallet: WalletId,
    amount: int | None,
    clear: bool,
    scope: LedgerScope,
) -> Answer:
    """Set or clear the daily limit of outgoing payments.

    A day is a UTC day.
    """
    del out
    if clear == (amount is not None):
        raise click.UsageError("name an amount, or --none to clear the limit.")

    def make(now: UnixTime) -> Record:
        return wal.Limit(wallet_id=wallet, daily_limit=amount, ts=now)

    done = "cleared the limit" if amount is None else f"limited to {amount} per day"
    return emit(access, WalletAccount(wallet, scope), make, done)


@command("veen wallet freeze WALLET --reason 'card lost'")
@wallet_argument
@reason_option
@scope_options
@access_options
def freeze(
    out: Output, *, access: OverlayAccess, wallet: WalletId, reason: str | None, scope: LedgerScope
) -> Answer:
    """Stop outgoing payments.

    Deposits and incoming transfers are still possible.
    """
    del out

    def make(now: UnixTime) -> Record:
        return wal.Freeze(wallet_id=wallet, ts=now, reason=reason)

    return emit(access, WalletAccount(wallet, scope), make, "frozen")


@command("veen wallet unfreeze WALLET")
@wallet_argument
@reason_option
@scope_options
@access_options
def unfreeze(
    out: Output, *, access: OverlayAccess, wallet: WalletId, reason: str | None, scope: LedgerScope
) -> Answer:
    """Allow outgoing payments again."""
    del out

    def make(now: UnixTime) -> Record:
        return wal.Unfreeze(wallet_id=wallet, ts=now, reason=reason)

    return emit(access, WalletAccount(wallet, scope), make, "unfrozen")


@command("veen wallet close WALLET")
@wallet_argument
@scope_options
@access_options
def close(out: Output, *, access: OverlayAccess, wallet: WalletId, scope: LedgerScope) -> Answer:
    """Close an empty wallet permanently.

    A closed wallet accepts no payment and makes none. Its id cannot be opened again.
    """
    del out

    def make(now: UnixTime) -> Record:
        return wal.Close(wallet_id=wallet, ts=now)

    return emit(access, WalletAccount(wallet, scope), make, "closed")
