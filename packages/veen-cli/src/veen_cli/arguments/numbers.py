"""Whole numbers as people type them, with bounds that are said in words."""

from __future__ import annotations

from typing import Any, Final

import click

LARGEST: Final = 2**64 - 1
"""That an object of VEEN can hold (§3.1)."""
DIGITS: Final = len(str(LARGEST))


def digits(text: str) -> int | None:
    """What a number of digits alone is, if an object can hold it; of thousands, Python would not ask."""
    return int(text) if text.isdecimal() and len(text) <= DIGITS and int(text) <= LARGEST else None


class Whole(click.ParamType[int]):
    """A whole number, of at least ``least`` and at most ``most``."""

    name = "integer"

    def __init__(self, least: int = 0, most: int = LARGEST) -> None:
        self.least = least
        self.most = most

    @property
    def wanted(self) -> str:
        return f"from {self.least} to {self.most}" if self.most < LARGEST else f"of at least {self.least}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            number = self.least - 1
        if number > self.most == LARGEST:
            self.fail(f"{value!r} is too large: write a whole number of at most {LARGEST}", param, ctx)
        if not self.least <= number <= self.most:
            self.fail(f"{value!r} will not do: write a whole number {self.wanted}", param, ctx)
        return number


class Seconds(click.ParamType[float]):
    """A length of time in seconds, which may have a fraction; not negative."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            self.fail(f"{value!r} will not do: write seconds, as in 2 or 0.5", param, ctx)
        return seconds
