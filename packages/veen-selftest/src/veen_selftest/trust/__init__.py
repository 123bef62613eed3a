"""The suite ``trust``: the hub log, its witnesses, and a hub that cannot forget (P1-P3)."""

from __future__ import annotations

from typing import Final

from veen_selftest.trust import checkpoints, heads, kills, memories, proofs, tiles, views, witnesses

CHECKS: Final = (
    *checkpoints.CHECKS,
    *tiles.CHECKS,
    *heads.CHECKS,
    *proofs.CHECKS,
    *views.CHECKS,
    *witnesses.CHECKS,
    *memories.CHECKS,
    *kills.CHECKS,
)
