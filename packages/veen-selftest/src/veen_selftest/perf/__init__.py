"""The suite ``perf``: the figures that a hub is built for, beside what cryptography and disk cost here."""

from __future__ import annotations

from typing import Final

from veen_selftest.perf import figures

CHECKS: Final = figures.CHECKS
