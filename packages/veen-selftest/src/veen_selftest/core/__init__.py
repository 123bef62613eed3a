"""The suite ``core``: conformance to the specification."""

from __future__ import annotations

from typing import Final

from veen_selftest.core import (
    admission,
    api,
    attachments,
    caps,
    checkpoints,
    epochs,
    equivocation,
    invariants,
    order,
    proofs,
    resync,
    rotation,
    scenarios,
)

CHECKS: Final = (
    *scenarios.CHECKS,
    *invariants.CHECKS,
    *admission.CHECKS,
    *order.CHECKS,
    *api.CHECKS,
    *proofs.CHECKS,
    *checkpoints.CHECKS,
    *caps.CHECKS,
    *epochs.CHECKS,
    *attachments.CHECKS,
    *equivocation.CHECKS,
    *resync.CHECKS,
    *rotation.CHECKS,
)
