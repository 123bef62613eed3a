"""Timestamps: UTC with milliseconds, always three decimal digits (query-api §3.2)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_FORM: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{3}))?Z", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS_PER_400_YEARS: Final = 146_097 * 86_400_000
"""The Gregorian calendar repeats after 400 years."""
_FIRST_LONG_YEAR_MS: Final = 253_402_300_800_000
"""10000-01-01T00:00:00Z, the first moment that ``datetime`` cannot represent."""


def parse_timestamp(text: str) -> int | None:
    """Return ``YYYY-MM-DDTHH:MM:SSZ`` or ``…SS.mmmZ`` as milliseconds since 1970; None if it is neither.

    Times before 1970 are refused too: no hub has committed anything then.
    """
    if (match := _FORM.fullmatch(text)) is None:
        return None
    *parts, fraction = match.groups()
    try:
        moment = datetime(*map(int, parts), tzinfo=UTC)  # type: ignore[misc,arg-type]  # six numbers
    except ValueError:
        return None
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1) + int(fraction or 0)
    return milliseconds if milliseconds >= 0 else None


def format_timestamp(milliseconds: int) -> str:
    """Return ``YYYY-MM-DDTHH:MM:SS.mmmZ``; a year beyond 9999 has a plus sign (ISO 8601, expanded)."""
    cycles = 0
    if milliseconds >= _FIRST_LONG_YEAR_MS:
        cycles = (milliseconds - _FIRST_LONG_YEAR_MS) // _MS_PER_400_YEARS + 1
    moment = _EPOCH + timedelta(milliseconds=milliseconds - cycles * _MS_PER_400_YEARS)
    rest = f"{moment:%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
    return f"+{moment.year + 400 * cycles}-{rest}" if cycles else f"{moment.year:04d}-{rest}"
