"""The state of a domain: accounts, grants, revocations, outcomes of operations (spec-3 §2 to §4).

One state holds them all, because they depend on each other: a payment may need a grant, and a delegated
execution may be either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from veen_overlays.fold.monoid import int_to_item, item_to_int
from veen_overlays.operations.access import AccessGrant, AccessRevoke
from veen_overlays.operations.delegation import DelegatedExecution
from veen_overlays.operations.grants import Grant, Revocations
from veen_overlays.operations.payment import Domain, PaidOperation
from veen_overlays.schema.record import Record
from veen_overlays.wallet.account import NEVER_OPENED, WalletState
from veen_overlays.wallet.records import WALLET_RECORDS

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


class OperationAccount(NamedTuple):
    """An account: its state as a wallet, and its unit."""

    state: WalletState
    currency: str | None
    """The account's unit; None until the first payment sets it."""


NO_ACCOUNT: Final = OperationAccount(NEVER_OPENED, None)
"""An account that nothing has named."""


class OperationOutcome(NamedTuple):
    """An operation of the log, and the reason if it had no effect."""

    seq: int
    name: str
    """The name of the record."""
    body: bytes
    """The canonical bytes of the record; only views decode them."""
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
    accounts: Mapping[bytes, OperationAccount]
    grants: Mapping[bytes, tuple[Grant, ...]]
    """By subject, in stream order."""
    subjects: Mapping[bytes, bytes]
    """The subject of each auth_ref."""
    revocations: Revocations
    operations: Mapping[bytes, tuple[int, str, bytes, bytes, str]]
    """The fields of each ``OperationOutcome``, by operation_id. They contain the whole record, and so
    every delegation chain (D3). The garbage collector visits plain tuples of atoms only once."""

    @property
    def authorities(self) -> tuple[bytes, ...]:
        """The keys whose grants count (A1)."""
        return () if self.domain is None else self.domain.authorities

    def outcome(self, operation: bytes) -> OperationOutcome | None:
        """The outcome of an operation; None if the log has no such operation."""
        found = self.operations.get(operation)
        return None if found is None else OperationOutcome._make(found)

    def outcomes(self) -> list[OperationOutcome]:
        """The outcomes of all operations, in stream order."""
        return [OperationOutcome._make(each) for each in sorted(self.operations.values())]

    def granted(self, auth_ref: bytes) -> tuple[Grant, ...]:
        """The grants with this auth_ref, the latest first; only grants of one second can share it."""
        held = self.grants.get(self.subjects.get(auth_ref, b""), ())
        return tuple(grant for grant in reversed(held) if grant.auth_ref == auth_ref)


NOTHING: Final = DomainState(None, {}, {}, {}, {}, {})


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
        {key: tuple(each) for key, each in operations.items()},
    )


def _dump_account(account: OperationAccount) -> list[Any]:
    state = [int_to_item(each) if type(each) is int else each for each in account.state]
    return [state, account.currency]


def _load_account(item: Any) -> OperationAccount:
    state, currency = item
    return OperationAccount(
        WalletState._make(item_to_int(each) if type(each) is str else each for each in state), currency
    )
