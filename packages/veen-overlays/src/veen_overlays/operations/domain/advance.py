"""How each event changes the state of a domain, in stream order (spec-3 §2 to §4).

Whether an event has an effect depends on the events before it, so ranges are folded as courses
(``fold.course``). Wallet records change accounts exactly as WAL §6 says. A paid operation moves money between
the same accounts, or between accounts that no wallet record has opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from veen_overlays.fold.event import Event, Message
from veen_overlays.operations.access import AccessGrant, AccessRevoke
from veen_overlays.operations.delegation import DelegatedExecution
from veen_overlays.operations.domain.capabilities import grant, revoke
from veen_overlays.operations.domain.changes import DomainChanges
from veen_overlays.operations.domain.delegated import execute
from veen_overlays.operations.domain.payments import pay
from veen_overlays.operations.domain.state import NOTHING, OPERATIONS, DomainState, OperationAccount
from veen_overlays.operations.frequent_record import Groups, Take
from veen_overlays.operations.operation import operation_key
from veen_overlays.operations.payment import Domain, PaidOperation, payment_in, payment_of
from veen_overlays.operations.refusal import Refusal
from veen_overlays.schema.record import Record
from veen_overlays.wallet.account import Account as Summary
from veen_overlays.wallet.event_summary import SUMMARIES
from veen_overlays.wallet.ledger import LEDGER
from veen_overlays.wallet.records import Open

_OPERATION_TYPES: Final = frozenset(OPERATIONS)


def advance(state: DomainState, events: Iterable[Event]) -> DomainState:
    """The state after some events; the given state stays unchanged."""
    changes = DomainChanges(state)
    for event in events:
        _apply(changes, event)
    return changes.result()


def from_the_start() -> tuple[Mapping[type[Record], Take], Callable[[Iterable[Event]], DomainState]]:
    """Return how to fold a log from its first message: see ``frequent_record.bulk_course``."""
    changes = DomainChanges(NOTHING)

    def finish(events: Iterable[Event]) -> DomainState:
        for event in events:
            _apply(changes, event)
        return changes.result()

    takes = {shape: _wallet_taker(changes, read) for shape, read in SUMMARIES.items()}
    return {PaidOperation: _payment_taker(changes), **takes}, finish


def _apply(changes: DomainChanges, event: Event) -> None:
    if type(event.record) in _OPERATION_TYPES:
        _operate(changes, event)
    else:
        _move(changes, event)


def _move(changes: DomainChanges, event: Event) -> None:
    """Apply a wallet record (WAL §6)."""
    for wallet, change in LEDGER.lift(event).items():
        before: OperationAccount = changes.accounts[wallet]
        opens = isinstance(event.record, Open) and not before.state.exists
        currency = event.record.currency if opens else before.currency  # type: ignore[attr-defined]
        changes.accounts[wallet] = OperationAccount(change.apply(before.state), currency)


def _payment_taker(changes: DomainChanges) -> Take:
    """How to apply a paid operation without decoding it."""
    operations = changes.operations

    def take(groups: Groups, message: Message, identity: bytes) -> bool:  # noqa: ARG001
        payment = payment_in(groups)
        if payment is None:
            return False
        seq, msg_id, _, body, parent_id, signer, hub_ts = message
        name = operation_key(parent_id or msg_id)
        if name not in operations:
            refusal = Refusal.NO_SIGNER if signer is None else pay(changes, payment, signer, (), hub_ts)
            operations[name] = seq, PaidOperation.NAME, body, signer or b"", str(refusal or "")
        return True

    return take


def _wallet_taker(changes: DomainChanges, read: Callable[[Groups], Summary | None]) -> Take:
    """How to apply a wallet record without decoding it (WAL §6)."""
    accounts = changes.accounts

    def take(groups: Groups, message: Message, identity: bytes) -> bool:  # noqa: ARG001
        change = read(groups)
        if change is None:
            return False
        state, currency = accounts[groups[0]]
        accounts[groups[0]] = OperationAccount(change.apply(state), currency)
        return True

    return take


def _operate(changes: DomainChanges, event: Event) -> None:
    """Apply an operation once (P1), and keep its outcome.

    An operation that is there already is the original of this message, or another copy of it.
    """
    name = operation_key(event.origin)
    if changes.operations[name] is None:
        record, signer = event.record, event.client_id
        refusal = Refusal.NO_SIGNER if signer is None else _refusal(changes, event, record, signer)
        changes.operations[name] = event.seq, record.NAME, event.body, signer or b"", str(refusal or "")


def _refusal(changes: DomainChanges, event: Event, record: Record, signer: bytes) -> Refusal | None:
    match record:
        case PaidOperation():
            return pay(changes, payment_of(record), signer, (), event.hub_ts)
        case AccessGrant():
            return grant(changes, event, record, signer)
        case AccessRevoke():
            return revoke(changes, event, record, signer)
        case DelegatedExecution():
            return execute(changes, event, record, signer)
    assert isinstance(record, Domain)
    if changes.domain is not None and signer not in changes.domain.authorities:
        return Refusal.ISSUER
    changes.set_rules(record)
    return None
