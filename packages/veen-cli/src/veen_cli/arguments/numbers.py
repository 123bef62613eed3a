"""Integers and seconds on the command line, with bounds that the error message names."""

from __future__ import annotations

from typing import Any, Final

import click

MAX_UINT: Final = 2**64 - 1
"""The largest integer that an object of VEEN can hold (core §3.1)."""
MAX_DIGITS: Final = len(str(MAX_UINT))


def parse_unsigned(text: str) -> int | None:
    """Return the number if the text is digits only and at most MAX_UINT; else None.

    The length is checked first: Python refuses to convert thousands of digits.
    """
    fits = text.isdecimal() and len(text) <= MAX_DIGITS and int(text) <= MAX_UINT
    return int(text) if fits else None


class Integer(click.ParamType[int]):
    """An integer from ``minimum`` to ``maximum``."""

    name = "integer"

    def __init__(self, minimum: int = 0, maximum: int = MAX_UINT) -> None:
        self.minimum = minimum
        self.maximum = maximum

    @property
    def bounds(self) -> str:
        if self.maximum < MAX_UINT:
            return f"from {self.minimum} to {self.maximum}"
        return f"≥ {self.minimum}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            number = self.minimum - 1
        if number > self.maximum == MAX_UINT:
            self.fail(f"{value!r} is larger than {MAX_UINT}", param, ctx)
        if not self.minimum <= number <= self.maximum:
            self.fail(f"{value!r} is not an integer {self.bounds}", param, ctx)
        return number


class Seconds(click.ParamType[float]):
    """A duration in seconds, with or without a fraction; at least ``minimum``."""

    name = "seconds"

    def __init__(self, minimum: float = 0.0) -> None:
        self.minimum = minimum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            self.fail(f"{value!r} is not a number of seconds such as 2 or 0.5", param, ctx)
        if seconds < self.minimum:
            self.fail(f"{value!r} is not a number of seconds ≥ {self.minimum:g}", param, ctx)
        return seconds
