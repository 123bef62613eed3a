"""Validity periods of keys and records: half-open intervals of time (§8.4, spec-2)."""

from __future__ import annotations

from veen_core.ids import UnixTime


def active_at(now: UnixTime, valid_from: UnixTime, valid_until: UnixTime | None) -> bool:
    """Return whether ``valid_from <= now < valid_until``; None means no end."""
    return valid_from <= now and (valid_until is None or now < valid_until)


def until(valid_from: UnixTime, ttl: int | None) -> UnixTime | None:
    """Return the end of a lifetime of ``ttl`` seconds; None means no end (spec-2 §2.2, §4.3)."""
    return None if ttl is None else UnixTime(valid_from + ttl)
