"""The state of a domain's operations, and how each event changes it, in stream order (spec-3 §2 to §4).

One state holds accounts, grants, revocations and the outcome of every operation, because they depend on each
other: a payment may need a grant, and a delegated execution may be either. Whether an event has an effect
depends on the events before it, so ranges are folded as courses (``fold.course``).

Wallet records change accounts exactly as WAL §6 says. A paid operation moves money between the same
accounts, or between accounts that no wallet record has opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from veen_core import cbor
from veen_core.errors import EncodeError
from veen_overlays.fold.event import Event, Message
from veen_overlays.fold.layers import join
from veen_overlays.fold.monoid import int_to_item, item_to_int
from veen_overlays.operations.access import AccessGrant, AccessRevoke
from veen_overlays.operations.delegation import DelegatedExecution, refused_chain
from veen_overlays.operations.frequent_record import Groups, Take
from veen_overlays.operations.grants import (
    Grant,
    Revocations,
    capability_target,
    refused_grant,
    subject_target,
)
from veen_overlays.operations.operation import OperationId, operation_id
from veen_overlays.operations.payment import Domain, PaidOperation, Payment, payment_in, payment_of
from veen_overlays.operations.refusal import Refusal
from veen_overlays.schema.record import Record, Undecodable, decode_record
from veen_overlays.wallet.account import NEVER_OPENED, State
from veen_overlays.wallet.ledger import LEDGER
from veen_overlays.wallet.movements import MovementRun
from veen_overlays.wallet.records import WALLET_RECORDS, Open
from veen_overlays.wallet.rules import spent_today

OPERATIONS: Final[tuple[type[Record], ...]] = (
    PaidOperation,
    AccessGrant,
    AccessRevoke,
    DelegatedExecution,
    Domain,
)
RECORDS: Final[tuple[type[Record], ...]] = (*OPERATIONS, *WALLET_RECORDS)
"""Every record that changes the state."""
_BY_NAME: Final = {shape.NAME: shape for shape in OPERATIONS}
_EMBEDDED: Final = {shape.SCHEMA: (shape,) for shape in (PaidOperation, AccessGrant, AccessRevoke)}
"""The operations that a delegated execution may contain; any other is kept but changes nothing here."""

DEFAULT_DOMAIN: Final = Domain(authorities=(), negative_balances=False, grants_required=False)
"""The rules of a log without an ``operation.domain.v1``."""
OPENED: Final = State(exists=True)
"""The wallet state of an account that only paid operations name."""


class Account(NamedTuple):
    """An account: its state as a wallet, and its unit."""

    state: State
    currency: str | None
    """None: not known yet; the first payment decides."""


NO_ACCOUNT: Final = Account(NEVER_OPENED, None)
OPEN_ACCOUNT: Final = Account(OPENED, None)


class Outcome(NamedTuple):
    """An operation of the log, and why it had no effect, if it had none."""

    seq: int
    name: str
    """The name of the record."""
    body: bytes
    """The canonical bytes of the record, which no fold needs again."""
    signer: bytes
    refusal: str
    """The ``Refusal``, empty if the operation was applied."""

    @property
    def record(self) -> Record:
        """The operation."""
        return _BY_NAME[self.name].decode(self.body)


class DomainState(NamedTuple):
    """The state after a prefix of the log."""

    domain: Domain | None
    accounts: Mapping[bytes, Account]
    grants: Mapping[bytes, tuple[Grant, ...]]
    """By subject, in stream order."""
    subjects: Mapping[bytes, bytes]
    """The subject of each auth_ref."""
    revocations: Revocations
    operations: Mapping[bytes, Outcome]
    """By operation_id. The outcome holds the whole record, and so every delegation chain (D3)."""

    @property
    def authorities(self) -> tuple[bytes, ...]:
        """The keys whose grants count (A1)."""
        return () if self.domain is None else self.domain.authorities

    def granted(self, auth_ref: bytes) -> tuple[Grant, ...]:
        """The grants that an auth_ref stands for, the latest first; several only within one second."""
        held = self.grants.get(self.subjects.get(auth_ref, b""), ())
        return tuple(grant for grant in reversed(held) if grant.auth_ref == auth_ref)


NOTHING: Final = DomainState(None, {}, {}, {}, {}, {})


def advance(state: DomainState, events: Iterable[Event]) -> DomainState:
    """The state after some events; the given state stays unchanged."""
    step = _Step(state)
    for event in events:
        step.apply(event)
    return step.result()


def from_the_start() -> tuple[Mapping[type[Record], Take], Callable[[Iterable[Event]], DomainState]]:
    """How to fold a log from its first message: paid operations are taken, other events applied."""
    step = _Step(NOTHING)

    def finish(events: Iterable[Event]) -> DomainState:
        for event in events:
            step.apply(event)
        return step.result()

    return {PaidOperation: step.take_payment}, finish


class _Changes(dict[bytes, Any]):
    """The changed values of a map that stays as it is."""

    def __init__(self, before: Mapping[bytes, Any]) -> None:
        super().__init__()
        self._before = before

    def find(self, key: bytes, default: Any = None) -> Any:
        found = self.get(key)
        return self._before.get(key, default) if found is None else found

    def result(self) -> Mapping[bytes, Any]:
        return join(self._before, dict(self), lambda _, after: after)


class _Step:
    """Applies events one after another."""

    def __init__(self, before: DomainState) -> None:
        self.domain = before.domain
        self.accounts, self.grants = _Changes(before.accounts), _Changes(before.grants)
        self.subjects, self.revocations = _Changes(before.subjects), _Changes(before.revocations)
        self.operations = _Changes(before.operations)
        self._named_before = before.operations

    def result(self) -> DomainState:
        return DomainState(
            self.domain,
            self.accounts.result(),
            self.grants.result(),
            self.subjects.result(),
            self.revocations.result(),
            self.operations.result(),
        )

    @property
    def rules(self) -> Domain:
        return DEFAULT_DOMAIN if self.domain is None else self.domain

    def apply(self, event: Event) -> None:
        if type(event.record) in _OPERATION_TYPES:
            self._operate(event)
        else:
            self._move(event)

    def _move(self, event: Event) -> None:
        """Apply a wallet record (WAL §6)."""
        for wallet, change in LEDGER.lift(event).items():
            before: Account = self.accounts.find(wallet, NO_ACCOUNT)
            opens = isinstance(event.record, Open) and not before.state.exists
            currency = event.record.currency if opens else before.currency  # type: ignore[attr-defined]
            self.accounts[wallet] = Account(change.apply(before.state), currency)

    def take_payment(self, groups: Groups, message: Message, identity: bytes) -> bool:  # noqa: ARG002
        """Apply a paid operation without decoding it."""
        payment = payment_in(groups)
        if payment is None:
            return False
        seq, msg_id, _, body, parent_id, signer, hub_ts = message
        name = operation_id(parent_id or msg_id)
        if self._is_new(name):
            refusal = Refusal.NO_SIGNER if signer is None else self._pay(payment, signer, (), hub_ts or 0)
            self.operations[name] = Outcome(seq, PaidOperation.NAME, body, signer or b"", refusal or "")
        return True

    def _operate(self, event: Event) -> None:
        """Apply an operation once (P1), and keep its outcome."""
        name = operation_id(event.origin)
        if self._is_new(name):
            record, signer = event.record, event.client_id
            refusal = Refusal.NO_SIGNER if signer is None else self._refusal(event, record, signer)
            self.operations[name] = Outcome(event.seq, record.NAME, event.body, signer or b"", refusal or "")

    def _is_new(self, name: OperationId) -> bool:
        """False if another message claims to be a copy of the same original."""
        return name not in self.operations and name not in self._named_before

    def _refusal(self, event: Event, record: Record, signer: bytes) -> Refusal | None:
        match record:
            case PaidOperation():
                return self._pay(payment_of(record), signer, (), event.hub_ts or 0)
            case AccessGrant():
                return self._grant(event, record, signer)
            case AccessRevoke():
                return self._revoke(event, record, signer)
            case DelegatedExecution():
                return self._execute(event, record, signer)
        assert isinstance(record, Domain)
        if self.domain is not None and signer not in self.domain.authorities:
            return Refusal.ISSUER
        self.domain = record
        return None

    # --- grants (spec-3 §3)

    def _grant(self, event: Event, record: AccessGrant, issuer: bytes) -> Refusal | None:
        """Keep a grant of any issuer: its authority is judged where the grant is used (A1)."""
        hub_ts = event.hub_ts or 0
        if record.expiry_time < hub_ts:
            return Refusal.EXPIRED
        subject = bytes(record.subject_identity)
        grant = Grant(event.seq, issuer, hub_ts, record, b"")
        grant = grant._replace(auth_ref=bytes(grant.token.auth_ref))
        self.grants[subject] = (*self.grants.find(subject, ()), grant)
        self.subjects[grant.auth_ref] = subject
        return None

    def _revoke(self, event: Event, record: AccessRevoke, issuer: bytes) -> Refusal | None:
        reference = record.target_capability_reference
        target = (
            subject_target(record.subject_identity) if reference is None else capability_target(reference)
        )
        self.revocations[target] = {**self.revocations.find(target, {}), issuer: event.seq}
        return None

    def _refused_grant(self, grant: Grant, hub_ts: int) -> Refusal | None:
        revocations = _Found(self.revocations)
        return refused_grant(grant, revocations, self.rules.authorities, hub_ts)

    # --- paid operations (spec-3 §2)

    def _pay(self, paid: Payment, payer: bytes, chain: Sequence[Grant], hub_ts: int) -> Refusal | None:
        """Move the amount if every rule allows it; ``payer`` is the party whose grants cover it."""
        source_id, target_id, amount, currency = paid
        if source_id == target_id:
            return Refusal.SAME_ACCOUNT
        source = self._account(source_id)
        target = self._account(target_id)
        unit = currency if currency is not None else self.rules.currency_code or ""
        if source.currency not in (None, unit) or target.currency not in (None, unit):
            return Refusal.CURRENCY
        state = source.state
        if state.closed or target.state.closed:
            return Refusal.CLOSED
        if state.frozen:
            return Refusal.FROZEN
        if state.daily_limit is not None and spent_today(state, hub_ts) + amount > state.daily_limit:
            return Refusal.DAILY_LIMIT
        if state.balance < amount and not self.rules.negative_balances:
            return Refusal.FUNDS
        charges = self._charges(paid, payer, unit, chain, hub_ts)
        if isinstance(charges, Refusal):
            return charges
        for grant in charges:
            self._replace(grant, grant.charged(amount, hub_ts))
        self.accounts[bytes(source_id)] = Account(_debited(state, amount, hub_ts), unit)
        self.accounts[bytes(target_id)] = Account(target.state.moved(amount), unit)
        return None

    def _account(self, account: bytes) -> Account:
        """The account, opened if nothing has named it before."""
        found: Account = self.accounts.find(account, NO_ACCOUNT)
        if found is NO_ACCOUNT:
            return OPEN_ACCOUNT
        return found if found.state.exists else Account(found.state._replace(exists=True), found.currency)

    def _charges(
        self, paid: Payment, payer: bytes, unit: str, chain: Sequence[Grant], hub_ts: int
    ) -> list[Grant] | Refusal:
        """The grants that a payment is charged to, or why they do not cover it (spec-3 2.4, P17).

        Every grant of a delegation chain that has a ``maximum_amount`` must cover the payment, and one of
        the payer's own. A payer without any such grant needs none, unless the domain requires it.
        """
        amount = paid.amount
        charges = [grant for grant in chain if _bounds(grant, unit)]
        for grant in charges:
            if (why := grant.refused_charge(amount, hub_ts)) is not None:
                return why
        authorities = self.rules.authorities
        own = [
            grant
            for subject in dict.fromkeys((payer, bytes(paid.payer)))
            for grant in self.grants.find(subject, ())
            if grant.issuer in authorities and grant.record.maximum_amount is not None
        ]
        if not own and not self.rules.grants_required:
            return charges
        if any(grant in charges for grant in own):
            return charges
        why_not: Refusal = Refusal.NO_GRANT
        for grant in own:
            if not _bounds(grant, unit) or self._refused_grant(grant, hub_ts) is not None:
                continue
            refused = grant.refused_charge(amount, hub_ts)
            if refused is None:
                return [*charges, grant]
            why_not = refused
        return why_not

    def _replace(self, before: Grant, after: Grant) -> None:
        held: tuple[Grant, ...] = self.grants.find(bytes(before.subject))
        self.grants[bytes(before.subject)] = tuple(after if each is before else each for each in held)

    # --- delegated executions (spec-3 §4)

    def _execute(self, event: Event, record: DelegatedExecution, signer: bytes) -> Refusal | None:
        """Apply the embedded operation with the principal's authority, if the chain is valid (D2)."""
        hub_ts = event.hub_ts or 0
        chain = [self._capability(reference, hub_ts) for reference in record.delegation_chain]
        why = refused_chain(
            record,
            signer,
            chain,
            is_authority=self.rules.authorities.__contains__,
            refused=lambda grant: self._refused_grant(grant, hub_ts),
        )
        if why is not None:
            return why
        shapes = _EMBEDDED.get(record.operation_schema)
        if shapes is None:
            return None
        embedded = decode_embedded(record, shapes)
        if embedded is None:
            return Refusal.EMBEDDED
        principal = bytes(record.principal_identity)
        if isinstance(embedded, PaidOperation):
            grants = [grant for grant in chain if grant is not None]
            return self._pay(payment_of(embedded), principal, grants, hub_ts)
        return self._refusal(event, embedded, principal)

    def _capability(self, reference: bytes, hub_ts: int) -> Grant | None:
        """The grant of a reference: a valid one if there is one, else the latest."""
        subject = self.subjects.find(bytes(reference))
        held = [] if subject is None else self.grants.find(subject, ())
        found = [grant for grant in reversed(held) if grant.auth_ref == reference]
        valid = (grant for grant in found if self._refused_grant(grant, hub_ts) is None)
        return next(valid, found[0] if found else None)


_OPERATION_TYPES: Final = frozenset(OPERATIONS)


class _Found:
    """A read-only view of changed revocations."""

    def __init__(self, changes: _Changes) -> None:
        self.get = changes.find


def decode_embedded(record: DelegatedExecution, shapes: tuple[type[Record], ...]) -> Record | None:
    """The operation that a delegated execution contains; None if it is not a valid record of these shapes."""
    try:
        body = cbor.encode(record.operation_body)
    except EncodeError:
        return None
    found = decode_record(shapes, body)
    return None if isinstance(found, Undecodable) else found


def embedded_of(record: Record) -> Record:
    """The operation itself: the embedded one of a delegated execution, if this package knows its schema."""
    if isinstance(record, DelegatedExecution):
        return decode_embedded(record, _EMBEDDED.get(record.operation_schema, ())) or record
    return record


def _bounds(grant: Grant, unit: str) -> bool:
    """Whether a grant bounds payments in a unit."""
    record = grant.record
    return record.maximum_amount is not None and record.currency_code in (None, unit)


def _debited(state: State, amount: int, ts: int) -> State:
    """The state after a debit that the rules allow (WAL §6)."""
    if state.daily_limit is None:  # 4 times as fast, with the same result
        return state.moved(-amount)
    run = MovementRun()
    run.debit(amount, ts)
    return run.summary().apply(state)


# --- bytes


def dump(state: DomainState) -> list[Any]:
    """The state as a CBOR item."""
    domain, accounts, grants, _subjects, revocations, operations = state
    return [
        None if domain is None else domain.encode(),
        {key: _dump_account(accounts[key]) for key in sorted(accounts)},
        {key: [grant.dump() for grant in grants[key]] for key in sorted(grants)},
        {key: dict(sorted(revocations[key].items())) for key in sorted(revocations)},
        {key: list(operations[key]) for key in sorted(operations)},
    ]


def load(item: Any) -> DomainState:
    """The inverse of ``dump``."""
    domain, accounts, grants, revocations, operations = item
    held = {key: tuple(map(Grant.load, each)) for key, each in grants.items()}
    return DomainState(
        None if domain is None else Domain.decode(domain),
        {key: _load_account(each) for key, each in accounts.items()},
        held,
        {grant.auth_ref: subject for subject, each in held.items() for grant in each},
        revocations,
        {key: Outcome._make(each) for key, each in operations.items()},
    )


def _dump_account(account: Account) -> list[Any]:
    state = [int_to_item(each) if type(each) is int else each for each in account.state]
    return [state, account.currency]


def _load_account(item: Any) -> Account:
    state, currency = item
    return Account(State._make(item_to_int(each) if type(each) is str else each for each in state), currency)
