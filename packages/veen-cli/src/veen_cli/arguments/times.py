"""Durations and times as people type them, and times as people read them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any, Final

import click

from veen_cli.arguments.numbers import digits

UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
LAST: Final = 253_402_300_799
"""The end of the year 9999, which is also the last that can be shown."""
_DURATION: Final = re.compile(r"(\d{1,12})([smhdw]?)")


def now() -> int:
    return int(time.time())


def shown(seconds: int) -> str:
    """UTC, to the second."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s after 1970"


class Duration(click.ParamType[int]):
    """Seconds, or a number with s, m, h, d or w; of at least ``least`` seconds."""

    name = "duration"

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if (match := _DURATION.fullmatch(str(value))) is None:
            self.fail(f"{value!r} is no duration: write 90, 10m, 12h or 7d", param, ctx)
        seconds = int(match[1]) * UNITS[match[2]]
        if seconds < self.least:
            self.fail(f"{value!r} is no time at all: write 90, 10m, 12h or 7d", param, ctx)
        return seconds


class Moment(click.ParamType[int]):
    """A Unix time, an ISO date and time (UTC unless it says otherwise), or ``+`` and a duration from now."""

    name = "time"

    def __init__(self, *, ahead: bool = False) -> None:
        self.ahead = ahead
        """Whether it must lie in the future: what ended before it began is a slip."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = value if isinstance(value, int) else self._parse(str(value), param, ctx)
        if found > LAST:
            self.fail(f"{value!r} is no time that will come: the year 9999 is the last", param, ctx)
        if self.ahead and found <= now():
            self.fail(f"{value!r} has passed already: write a time to come, or +10m", param, ctx)
        return found

    def _parse(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if text.startswith("+"):
            return now() + Duration().convert(text[1:], param, ctx)
        if text.isdecimal():
            return LAST + 1 if (number := digits(text)) is None else number
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is no time: write 2030-01-31T12:00, 1900000000 or +10m", param, ctx)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
