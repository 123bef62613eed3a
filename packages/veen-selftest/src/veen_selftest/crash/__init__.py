"""The suite ``crash``: kill -9, and what was acknowledged is there, once (H2, DESIGN)."""

from __future__ import annotations

from typing import Final

from veen_selftest.crash import rounds

CHECKS: Final = rounds.CHECKS
