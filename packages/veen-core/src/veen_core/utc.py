"""UTC times as text, for errors and reports."""

from __future__ import annotations

from datetime import UTC, datetime


def format_utc(seconds: int) -> str:
    """A Unix time as UTC, to the second; beyond the year 9999, as seconds since 1970."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s after 1970"
