"""Paid operations, and the domain whose rules they obey (spec-3 §2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from veen_overlays.operations.operation import AccountId, IdentityId, OperationId, operation, sorted_set
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
