"""Delegated executions: the embedded operation counts as a direct one of the principal (spec-3 4.2, 4.3)."""

from __future__ import annotations

from typing import Final

from veen_core import cbor
from veen_core.errors import EncodeError
from veen_overlays.fold.event import Event
from veen_overlays.operations.access import AccessGrant, AccessRevoke
from veen_overlays.operations.delegation import DelegatedExecution, refused_chain
from veen_overlays.operations.domain.capabilities import capability, grant, revoke
from veen_overlays.operations.domain.changes import DomainChanges
from veen_overlays.operations.domain.payments import pay
from veen_overlays.operations.payment import PaidOperation, payment_of
from veen_overlays.operations.refusal import Refusal
from veen_overlays.schema.record import Record, Undecodable, decode_record

_EMBEDDED: Final = {shape.SCHEMA: (shape,) for shape in (PaidOperation, AccessGrant, AccessRevoke)}
"""The operations that a delegated execution may contain; any other is kept but changes nothing here."""


def execute(
    changes: DomainChanges, event: Event, record: DelegatedExecution, signer: bytes
) -> Refusal | None:
    """Apply the embedded operation with the principal's authority, if the chain is valid (D2)."""
    chain = [capability(changes, reference, event.hub_ts) for reference in record.delegation_chain]
    why = refused_chain(
        record,
        signer,
        chain,
        is_authority=changes.rules.authorities.__contains__,
        refused=lambda each: changes.refused(each, event.hub_ts),
    )
    if why is not None or record.operation_schema not in _EMBEDDED:
        return why
    principal = bytes(record.principal_identity)
    match decode_embedded(record):
        case PaidOperation() as paid:
            grants = [each for each in chain if each is not None]
            return pay(changes, payment_of(paid), principal, grants, event.hub_ts)
        case AccessGrant() as granted:
            return grant(changes, event, granted, principal)
        case AccessRevoke() as revoked:
            return revoke(changes, event, revoked, principal)
    return Refusal.EMBEDDED


def decode_embedded(execution: DelegatedExecution) -> Record | None:
    """The embedded operation; None if its schema is not known, or its body is not a valid record."""
    try:
        body = cbor.encode(execution.operation_body)
    except EncodeError:
        return None
    found = decode_record(_EMBEDDED.get(execution.operation_schema, ()), body)
    return None if isinstance(found, Undecodable) else found


def embedded_of(record: Record) -> Record:
    """Return the operation inside a delegated execution if its schema is known; otherwise the record."""
    return (decode_embedded(record) or record) if isinstance(record, DelegatedExecution) else record
