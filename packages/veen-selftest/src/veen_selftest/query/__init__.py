"""The suite ``query``: a service over a real hub, its answers, its records, and two zones (query-api)."""

from __future__ import annotations

from typing import Final

from veen_selftest.query import answers, records, restarts, zones

CHECKS: Final = (*answers.CHECKS, *records.CHECKS, *restarts.CHECKS, *zones.CHECKS)
