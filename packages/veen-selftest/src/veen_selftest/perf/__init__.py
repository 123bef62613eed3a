"""The suite ``perf``: throughput, latency and memory, compared with the cost of cryptography and disk."""

from __future__ import annotations

from typing import Final

from veen_selftest.perf import figures

CHECKS: Final = figures.CHECKS
