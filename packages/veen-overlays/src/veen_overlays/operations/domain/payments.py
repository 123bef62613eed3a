"""Payments: the rules that a paid operation obeys, and what it changes (spec-3 2.3, 2.4)."""

from __future__ import annotations

from collections.abc import Sequence

from veen_overlays.operations.domain.changes import DomainChanges
from veen_overlays.operations.domain.state import OperationAccount
from veen_overlays.operations.grants import Grant
from veen_overlays.operations.payment import Payment
from veen_overlays.operations.refusal import Refusal
from veen_overlays.wallet.account import WalletState
from veen_overlays.wallet.movements import MovementRun
from veen_overlays.wallet.rules import spent_today


def pay(
    changes: DomainChanges, paid: Payment, payer: bytes, chain: Sequence[Grant], hub_ts: int
) -> Refusal | None:
    """Move the amount if every rule allows it; ``payer`` is the party whose grants cover it."""
    source_id, target_id, amount, currency = paid
    if source_id == target_id:
        return Refusal.SAME_ACCOUNT
    source, target = changes.accounts[source_id], changes.accounts[target_id]
    rules = changes.rules
    unit = currency if currency is not None else rules.currency_code or ""
    if source.currency not in (None, unit) or target.currency not in (None, unit):
        return Refusal.CURRENCY
    state = source.state
    if state.closed or target.state.closed:
        return Refusal.CLOSED
    if state.frozen:
        return Refusal.FROZEN
    if state.daily_limit is not None and spent_today(state, hub_ts) + amount > state.daily_limit:
        return Refusal.DAILY_LIMIT
    if state.balance < amount and not rules.negative_balances:
        return Refusal.FUNDS
    charges = _charges(changes, paid, payer, unit, chain, hub_ts)
    if isinstance(charges, Refusal):
        return charges
    for grant in charges:
        _replace(changes, grant, grant.charged(amount, hub_ts))
    changes.accounts[source_id] = OperationAccount(_debited(_opened(state), amount, hub_ts), unit)
    changes.accounts[target_id] = OperationAccount(_opened(target.state).moved(amount), unit)
    return None


def _opened(state: WalletState) -> WalletState:
    """The state of an account that a payment names: it exists, even if no wallet record has opened it."""
    return state if state.exists else state._replace(exists=True)


def _charges(  # noqa: PLR0917 - called once
    changes: DomainChanges, paid: Payment, payer: bytes, unit: str, chain: Sequence[Grant], hub_ts: int
) -> list[Grant] | Refusal:
    """The grants that a payment is charged to, or why they do not cover it (spec-3 2.4, P17).

    Every grant of a delegation chain that has a ``maximum_amount`` must cover the payment. So must one of
    the payer's own grants. A payer that has no such grant needs none, unless the domain requires one.
    """
    account, _, amount, _ = paid
    charges = [grant for grant in chain if grant.record.maximum_amount is not None]
    for grant in charges:
        if not _bounds(grant, unit):
            return Refusal.NO_GRANT
        if (why := grant.refused_charge(amount, hub_ts)) is not None:
            return why
    authorities = changes.rules.authorities
    own = [
        grant
        for subject in dict.fromkeys((payer, account))
        for grant in changes.grants[subject]
        if grant.issuer in authorities and grant.record.maximum_amount is not None
    ]
    if not own and not changes.rules.grants_required:
        return charges
    if any(grant in charges for grant in own):
        return charges
    why_not: Refusal = Refusal.NO_GRANT
    for grant in own:
        if not _bounds(grant, unit) or changes.refused(grant, hub_ts) is not None:
            continue
        refused = grant.refused_charge(amount, hub_ts)
        if refused is None:
            return [*charges, grant]
        why_not = refused
    return why_not


def _replace(changes: DomainChanges, before: Grant, after: Grant) -> None:
    held: tuple[Grant, ...] = changes.grants[bytes(before.subject)]
    changes.grants[bytes(before.subject)] = tuple(after if each is before else each for each in held)


def _bounds(grant: Grant, unit: str) -> bool:
    """Whether a grant bounds payments in a unit."""
    record = grant.record
    return record.maximum_amount is not None and record.currency_code in (None, unit)


def _debited(state: WalletState, amount: int, ts: int) -> WalletState:
    """The state after a debit that the rules allow (WAL §6)."""
    if state.daily_limit is None:  # 4 times as fast, with the same result
        return state.moved(-amount)
    run = MovementRun()
    run.debit(amount, ts)
    return run.summary().apply(state)
