"""A half-open interval of time during which something counts: keys, prekeys, records (§8.4, spec-2)."""

from __future__ import annotations

from veen_core.ids import UnixTime


def active_at(now: UnixTime, valid_from: UnixTime, valid_until: UnixTime | None) -> bool:
    """``valid_from <= now < valid_until``; without an end, for ever."""
    return valid_from <= now and (valid_until is None or now < valid_until)


def until(valid_from: UnixTime, ttl: int | None) -> UnixTime | None:
    """The end of a lifetime given as a duration (spec-2 §2.2, §4.3)."""
    return None if ttl is None else UnixTime(valid_from + ttl)
