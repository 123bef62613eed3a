"""Transfers between two logs: each debited in one and credited in the other, exactly once (WAL 5.5, §12).

A wallet's log is folded alone, and §6 credits whatever transfer the destination's log holds: that its source
was debited stands in the source's log, and nothing in the destination's proves it. Whoever can read both
compares them here. Within one log, shared by many wallets, one event is both halves and ``rules`` judges it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from veen_overlays.fold.event import UNOPENED, Event, MemorySeenKeys, Message
from veen_overlays.identifiers import WalletId
from veen_overlays.wallet.account import NEVER_OPENED, State
from veen_overlays.wallet.ledger import LEDGER
from veen_overlays.wallet.records import Transfer
from veen_overlays.wallet.rules import Violation, WalCode, advance


class Half(NamedTuple):
    """A transfer's debit or credit as a log has it; of one transfer_id, wallet and direction the first."""

    seq: int
    origin: bytes
    transfer: Transfer
    counts: bool
    """Whether §6 moved the balance: not of a closed wallet or one never opened; no debit of a frozen one."""


Key = tuple[bytes, bytes]
"""Wallet and transfer_id."""


class Halves(NamedTuple):
    """What a log says of transfers."""

    debits: Mapping[Key, Half]
    credits: Mapping[Key, Half]
    opened: frozenset[bytes]
    """The wallets whose log it is."""
    sealed: int
    """Messages that the reader's keys do not open: a half may be among them."""


def halves(messages: Iterable[Message]) -> Halves:
    """Both halves of every transfer in a log, from its start."""
    states: dict[bytes, State] = {}
    debits: dict[Key, Half] = {}
    credits_: dict[Key, Half] = {}
    seen, sealed = MemorySeenKeys(), 0
    for message in messages:
        sealed += message.schema == UNOPENED
        event = LEDGER.distinct(message, seen)
        if not isinstance(event, Event):
            continue
        if isinstance(record := event.record, Transfer):
            source = states.get(record.wallet_id, NEVER_OPENED)
            to = states.get(record.to_wallet_id, NEVER_OPENED)
            debit = Half(event.seq, message.origin, record, source.pays_out)
            transfer_id = bytes(record.transfer_id)
            debits.setdefault((bytes(record.wallet_id), transfer_id), debit)
            if record.to_wallet_id != record.wallet_id:  # to oneself there is no credit (§6)
                credit = debit._replace(counts=to.exists and not to.closed)
                credits_.setdefault((bytes(record.to_wallet_id), transfer_id), credit)
        advance(states, event)
    opened = frozenset(wallet for wallet, state in states.items() if state.exists)
    return Halves(debits, credits_, opened, sealed)


def counterparties(log: Halves) -> frozenset[WalletId]:
    """Wallets that this log's own pay or are paid by, and whose log is another."""
    paid = {half.transfer.to_wallet_id for (wallet, _), half in log.debits.items() if wallet in log.opened}
    payers = {half.transfer.wallet_id for (wallet, _), half in log.credits.items() if wallet in log.opened}
    return frozenset(wallet for wallet in paid | payers if wallet not in log.opened)


def unsettled(payer: WalletId, source: Halves, payee: WalletId, destination: Halves) -> Iterator[Violation]:
    """Transfers from one wallet to another that its log and the other's do not both have, and count.

    A violation names the wallet in whose log the half stands that has no other, and its seq there.
    """
    for (wallet, transfer_id), credit in destination.credits.items():
        if wallet == payee and credit.counts and credit.transfer.wallet_id == payer:
            debit = source.debits.get((bytes(payer), transfer_id))
            if (why := _not_debited(credit, debit)) is not None:
                found = Violation(credit.seq, credit.origin, wallet, WalCode.NOT_DEBITED, why)
                yield _unless_sealed(found, debit, source)
    for (wallet, transfer_id), debit in source.debits.items():
        if wallet == payer and debit.counts and debit.transfer.to_wallet_id == payee:
            credited = destination.credits.get((bytes(payee), transfer_id))
            if credited is None or not credited.counts or credited.transfer.wallet_id != payer:
                why = f"{debit.transfer.amount} debited, and not credited to {payee.hex()}"
                found = Violation(debit.seq, debit.origin, wallet, WalCode.NOT_CREDITED, why)
                yield _unless_sealed(found, credited, destination)


def _not_debited(credit: Half, debit: Half | None) -> str | None:
    amount, payer = credit.transfer.amount, credit.transfer.wallet_id.hex()
    if debit is None or not debit.counts:
        return f"{amount} credited, and {payer} was not debited"
    if debit.transfer.to_wallet_id != credit.transfer.to_wallet_id:
        return f"{amount} credited, and {payer} was debited for another wallet"
    if debit.transfer.amount != amount:
        return f"{amount} credited, and {payer} was debited {debit.transfer.amount}"
    return None


def _unless_sealed(found: Violation, other: Half | None, log: Halves) -> Violation:
    """Where the other half may be sealed to somebody else, it cannot be told: that is no proof either way."""
    if other is not None or not log.sealed:
        return found
    why = f"{found.why}, unless by one of {log.sealed} messages there that these keys do not open"
    return found._replace(code=WalCode.UNVERIFIED, why=why)
