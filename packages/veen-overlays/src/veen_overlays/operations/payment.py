"""Paid operations, and the domain whose rules they obey (spec-3 §2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from veen_core.ids import OperationId
from veen_overlays.operations.operation import AccountId, IdentityId, operation, sorted_set
from veen_overlays.schema.pattern import is_free, is_text, string_content, uint
from veen_overlays.schema.record import Record, record


@operation("paid.operation.v1", section="spec-3 2.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class PaidOperation(Record):
    """Ask for a business operation and pay for it, in one event."""

    operation_type: str
    operation_args: Any
    payer_account: AccountId
    payee_account: AccountId
    amount: int
    currency_code: str | None = None
    """Absent: the unit of the domain (RESOLUTIONS P17)."""
    operation_reference: OperationId | None = None
    """An id outside VEEN, such as that of an invoice."""
    parent_operation_id: OperationId | None = None
    ttl_seconds: int | None = None
    """Seconds after the receipt's hub_ts in which the operation may be performed."""
    metadata: Any | None = None


Payment = tuple[bytes, bytes, int, str | None]
"""The part of a paid operation that moves money: payer, payee, amount, currency."""


def payment_of(record: PaidOperation) -> Payment:
    """The payment of a decoded record."""
    return bytes(record.payer_account), bytes(record.payee_account), record.amount, record.currency_code


def payment_in(groups: tuple[Any, ...]) -> Payment | None:
    """The payment of a body that the pattern has matched; None if its text or free values are not valid."""
    type_, args, payer, payee, amount, currency, _reference, _parent, _ttl, metadata = groups
    if not is_text(type_) or not is_free(args) or not (metadata is None or is_free(metadata)):
        return None
    if currency is None:
        return payer, payee, uint(amount), None
    if not is_text(currency):
        return None
    return payer, payee, uint(amount), string_content(currency).decode()


@record("operation.domain.v1", section="spec-3 2.3, 3.4", rules=(sorted_set("authorities"),))
@dataclass(frozen=True, slots=True, kw_only=True)
class Domain(Record):
    """Set the rules of a stream's operations; after the first record, only an authority may change them."""

    authorities: tuple[IdentityId, ...]
    """The keys whose grants and revocations count (A1)."""
    negative_balances: bool
    """Whether a payment may overdraw its payer's account."""
    grants_required: bool
    """Whether a payment needs a grant with ``maximum_amount``."""
    currency_code: str | None = None
    """The unit of payments that name none."""
