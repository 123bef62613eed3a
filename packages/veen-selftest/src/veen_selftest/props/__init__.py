"""The suite ``props``: properties that hold for every input, tested with random input (TS0.2)."""

from __future__ import annotations

from typing import Final

from veen_selftest.props import codec, mmr

CHECKS: Final = (*mmr.CHECKS, *codec.CHECKS)
