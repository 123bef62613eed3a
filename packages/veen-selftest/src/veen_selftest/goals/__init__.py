"""The suite ``goals``: what a deployment is for, from end to end (products-spec-1 §7)."""

from __future__ import annotations

from typing import Final

from veen_selftest.goals import audit_anchor, core_pipeline, disposable_mesh, dr_cutover

CHECKS: Final = (
    *core_pipeline.CHECKS,
    *audit_anchor.CHECKS,
    *dr_cutover.CHECKS,
    *disposable_mesh.CHECKS,
)
