"""Grants and revocations of a domain (spec-3 3.3)."""

from __future__ import annotations

from veen_overlays.fold.event import Event
from veen_overlays.operations.access import AccessGrant, AccessRevoke
from veen_overlays.operations.domain.changes import DomainChanges
from veen_overlays.operations.grants import Grant, capability_target, subject_target
from veen_overlays.operations.refusal import Refusal


def grant(changes: DomainChanges, event: Event, record: AccessGrant, issuer: bytes) -> Refusal | None:
    """Keep a grant of any issuer; the issuer's authority is checked when the grant is used (A1)."""
    if record.expiry_time < event.hub_ts:
        return Refusal.EXPIRED
    subject = bytes(record.subject_identity)
    held = Grant(event.seq, issuer, event.hub_ts, record, b"")
    held = held._replace(auth_ref=bytes(held.token.auth_ref))
    changes.grants[subject] = (*changes.grants[subject], held)
    changes.subjects[held.auth_ref] = subject
    return None


def revoke(changes: DomainChanges, event: Event, record: AccessRevoke, issuer: bytes) -> Refusal | None:
    """Keep a revocation of any issuer, like a grant."""
    reference = record.target_capability_reference
    target = subject_target(record.subject_identity) if reference is None else capability_target(reference)
    changes.revocations[target] = {**changes.revocations[target], issuer: event.seq}
    return None


def capability(changes: DomainChanges, reference: bytes, hub_ts: int) -> Grant | None:
    """Return the latest valid grant with this reference, else its latest grant; None if it has no grant."""
    subject = changes.subjects[bytes(reference)]
    held = () if subject is None else changes.grants[subject]
    found = [each for each in reversed(held) if each.auth_ref == reference]
    valid = (each for each in found if changes.refused(each, hub_ts) is None)
    return next(valid, found[0] if found else None)
