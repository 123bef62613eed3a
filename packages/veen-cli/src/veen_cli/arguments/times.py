"""Durations and times on the command line, and times as they are printed."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any, Final

import click

from veen_cli.arguments.numbers import parse_unsigned
from veen_core import utc

UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
MAX_TIME: Final = 253_402_300_799
"""The last second of the year 9999, the last that can be printed."""
format_utc: Final = utc.format_utc
_DURATION: Final = re.compile(r"(\d{1,12})([smhdw]?)")


def now() -> int:
    return int(time.time())


def format_duration(seconds: int) -> str:
    """Format a duration in its largest whole unit: 86400 is "1 day", 90 is "90 seconds"."""
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds and seconds % size == 0:
            count = seconds // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{seconds} second{'' if seconds == 1 else 's'}"


class Duration(click.ParamType[int]):
    """Seconds, or a number with the unit s, m, h, d or w; at least ``minimum`` seconds."""

    name = "duration"

    def __init__(self, minimum: int = 0) -> None:
        self.minimum = minimum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if (match := _DURATION.fullmatch(str(value))) is None:
            self.fail(f"{value!r} is not a duration such as 90, 10m, 12h or 7d", param, ctx)
        seconds = int(match[1]) * UNITS[match[2]]
        if seconds < self.minimum:
            self.fail(f"{value!r} is too short: at least {format_duration(self.minimum)}", param, ctx)
        return seconds


class Moment(click.ParamType[int]):
    """A Unix time, an ISO date and time (UTC unless it names a zone), or ``+`` and a duration from now.

    With ``future`` a time that has passed is refused.
    """

    name = "time"

    def __init__(self, *, future: bool = False) -> None:
        self.future = future

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = value if isinstance(value, int) else self._parse(str(value), param, ctx)
        if found > MAX_TIME:
            self.fail(f"{value!r} is after the year 9999", param, ctx)
        if self.future and found <= now():
            self.fail(f"{value!r} has passed: write a time in the future, or +10m", param, ctx)
        return found

    def _parse(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if text.startswith("+"):
            return now() + Duration().convert(text[1:], param, ctx)
        if text.isdecimal():
            return MAX_TIME + 1 if (number := parse_unsigned(text)) is None else number
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is not a time such as 2030-01-31T12:00, 1900000000 or +10m", param, ctx)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
