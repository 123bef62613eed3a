"""Compare transfers between two logs: each must be debited in one and credited in the other (WAL 5.5, §12).

WAL §6 credits every transfer that the destination's log contains. Only the source's log shows whether the
source was debited, so an auditor who can read both logs compares them here. In a log that both wallets
share, one event is both debit and credit, and ``rules`` checks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from veen_overlays.fold.event import UNOPENED, Event, MemorySeenKeys, Message
from veen_overlays.identifiers import WalletId
from veen_overlays.wallet.account import NEVER_OPENED, WalletState
from veen_overlays.wallet.ledger import LEDGER
from veen_overlays.wallet.records import Transfer
from veen_overlays.wallet.rules import WalCode, WalletViolation, advance


class TransferHalf(NamedTuple):
    """The debit or the credit of a transfer in a log: the first for its wallet, direction and transfer_id."""

    seq: int
    origin: bytes
    transfer: Transfer
    counts: bool
    """Whether it changed the balance (WAL §6): the wallet was open, and not frozen if it was debited."""


Key = tuple[bytes, bytes]
"""(wallet_id, transfer_id)."""


class TransferHalves(NamedTuple):
    """The debits and credits of a log."""

    debits: Mapping[Key, TransferHalf]
    credits: Mapping[Key, TransferHalf]
    opened: frozenset[bytes]
    """The wallets that were opened in this log."""
    sealed: int
    """Number of messages that the reader's keys do not open; a debit or credit may be among them."""


def halves(messages: Iterable[Message]) -> TransferHalves:
    """The debit and the credit of every transfer in a log, read from its start."""
    states: dict[bytes, WalletState] = {}
    debits: dict[Key, TransferHalf] = {}
    credits_: dict[Key, TransferHalf] = {}
    seen, sealed = MemorySeenKeys(), 0
    for message in messages:
        sealed += message.schema == UNOPENED
        event = LEDGER.distinct(message, seen)
        if not isinstance(event, Event):
            continue
        if isinstance(record := event.record, Transfer):
            source = states.get(record.wallet_id, NEVER_OPENED)
            to = states.get(record.to_wallet_id, NEVER_OPENED)
            debit = TransferHalf(event.seq, message.origin, record, source.pays_out)
            transfer_id = bytes(record.transfer_id)
            debits.setdefault((bytes(record.wallet_id), transfer_id), debit)
            # A transfer to the same wallet has no credit (WAL §6).
            if record.to_wallet_id != record.wallet_id:
                credit = debit._replace(counts=to.exists and not to.closed)
                credits_.setdefault((bytes(record.to_wallet_id), transfer_id), credit)
        advance(states, event)
    opened = frozenset(wallet for wallet, state in states.items() if state.exists)
    return TransferHalves(debits, credits_, opened, sealed)


def counterparties(log: TransferHalves) -> frozenset[WalletId]:
    """The wallets of other logs that exchanged payments with the wallets of this log."""
    paid = {half.transfer.to_wallet_id for (wallet, _), half in log.debits.items() if wallet in log.opened}
    payers = {half.transfer.wallet_id for (wallet, _), half in log.credits.items() if wallet in log.opened}
    return frozenset(wallet for wallet in paid | payers if wallet not in log.opened)


def unsettled(
    payer: WalletId, source: TransferHalves, payee: WalletId, destination: TransferHalves
) -> Iterator[WalletViolation]:
    """The transfers from payer to payee that were not both debited and credited.

    A violation names the wallet whose log contains the unmatched debit or credit, and its seq in that log.
    """
    for (wallet, transfer_id), credit in destination.credits.items():
        if wallet == payee and credit.counts and credit.transfer.wallet_id == payer:
            debit = source.debits.get((bytes(payer), transfer_id))
            if (why := _not_debited(credit, debit)) is not None:
                found = WalletViolation(credit.seq, credit.origin, wallet, WalCode.NOT_DEBITED, why)
                yield _unless_sealed(found, debit, source)
    for (wallet, transfer_id), debit in source.debits.items():
        if wallet == payer and debit.counts and debit.transfer.to_wallet_id == payee:
            credited = destination.credits.get((bytes(payee), transfer_id))
            if credited is None or not credited.counts or credited.transfer.wallet_id != payer:
                why = f"{debit.transfer.amount} debited but not credited to {payee.hex()}"
                found = WalletViolation(debit.seq, debit.origin, wallet, WalCode.NOT_CREDITED, why)
                yield _unless_sealed(found, credited, destination)


def _not_debited(credit: TransferHalf, debit: TransferHalf | None) -> str | None:
    amount, payer = credit.transfer.amount, credit.transfer.wallet_id.hex()
    if debit is None or not debit.counts:
        return f"{amount} credited but {payer} was not debited"
    if debit.transfer.to_wallet_id != credit.transfer.to_wallet_id:
        return f"{amount} credited but {payer} was debited for another wallet"
    if debit.transfer.amount != amount:
        return f"{amount} credited but {payer} was debited {debit.transfer.amount}"
    return None


def _unless_sealed(
    found: WalletViolation, other: TransferHalf | None, log: TransferHalves
) -> WalletViolation:
    """Replace the code by UNVERIFIED if the missing half may be in a message that the keys do not open."""
    if other is not None or not log.sealed:
        return found
    why = f"{found.why}, unless one of {log.sealed} messages that these keys do not open is the other half"
    return found._replace(code=WalCode.UNVERIFIED, why=why)
