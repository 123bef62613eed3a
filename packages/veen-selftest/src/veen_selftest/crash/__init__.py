"""The suite ``crash``: after kill -9 every acknowledged message is there, once (H2)."""

from __future__ import annotations

from typing import Final

from veen_selftest.crash import rounds

CHECKS: Final = rounds.CHECKS
