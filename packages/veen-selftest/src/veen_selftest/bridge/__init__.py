"""The suite ``bridge``: two zones, export, import, reconciliation, and the invariants J1 to J3 (AGB0)."""

from __future__ import annotations

from typing import Final

from veen_selftest.bridge import direction, one_to_one, silent_loss

CHECKS: Final = (*one_to_one.CHECKS, *silent_loss.CHECKS, *direction.CHECKS)
