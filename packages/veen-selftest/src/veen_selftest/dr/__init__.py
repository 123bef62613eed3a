"""The suite ``dr``: replica, planned and unplanned cutover, and the receipts of lost messages (P9)."""

from __future__ import annotations

from typing import Final

from veen_selftest.dr import planned, replication, unplanned

CHECKS: Final = (*replication.CHECKS, *planned.CHECKS, *unplanned.CHECKS)
