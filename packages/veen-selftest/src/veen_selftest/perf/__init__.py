"""The suite ``perf``: throughput, latency and memory, compared with the cost of cryptography and disk."""

from __future__ import annotations

from typing import Final

from veen_selftest.perf import figures
from veen_selftest.perf.profile.measurement import PROFILE as PROFILE_CHECK

CHECKS: Final = figures.CHECKS
PROFILE: Final = (PROFILE_CHECK,)
"""The profile of a hub, which runs in place of the figures if it is asked for."""
