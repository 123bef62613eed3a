"""The suite ``recorder``: events, checkpoints and replays with proofs, and the invariants I1 to I3 (SDR0)."""

from __future__ import annotations

from typing import Final

from veen_selftest.recorder import actors, checkpoints, replays

CHECKS: Final = (*checkpoints.CHECKS, *replays.CHECKS, *actors.CHECKS)
