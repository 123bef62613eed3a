"""The suite ``authority``: the admin streams of the authority hub of a universe (spec-4 §8.2, spec-2)."""

from __future__ import annotations

from typing import Final

from veen_selftest.authority import admin_streams

CHECKS: Final = admin_streams.CHECKS
