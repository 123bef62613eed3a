"""A check: a name, the clause that it tests, and a function that asks a hub.

A check ends in one of three ways, and only the first is a pass: the function returns; it raises
``ClauseViolation`` or one of VEEN's verification errors; it raises ``Skip``, which says why the clause cannot
be tested here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from veen_selftest.runner.context import CheckContext

T = TypeVar("T")
MAX_SHOWN_CHARACTERS: Final = 120
"""Characters of a value in an error."""


class ClauseViolation(Exception):  # noqa: N818 - a finding about the hub, not an error of this program
    """The hub violates the clause."""


class Skip(Exception):  # noqa: N818 - not an error
    """The clause cannot be tested here; the message says what would be needed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a suite."""

    name: str
    clause: str
    run: Callable[[CheckContext], None]
    about: str = ""
    """The statement that the check tests; by default the first line of the function's docstring."""

    @property
    def statement(self) -> str:
        """The statement that the check tests, as one sentence."""
        return self.about or (self.run.__doc__ or "").strip().partition("\n")[0]


def require(holds: object, violation: str) -> None:
    """Raise ``ClauseViolation`` unless the condition holds."""
    if not holds:
        raise ClauseViolation(violation)


def require_equal(found: object, expected: object, what: str) -> None:
    """Raise ``ClauseViolation`` unless the values are equal."""
    if found != expected:
        raise ClauseViolation(f"{what}: expected {_short(expected)}, found {_short(found)}")


def require_one(items: Iterable[T], what: str) -> T:
    """Return the only item; raise ``ClauseViolation`` if there is none, or more than one."""
    found = list(items)
    if len(found) != 1:
        raise ClauseViolation(f"{what}: expected one, found {len(found)}")
    return found[0]


def _short(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return (
        text
        if len(text) <= MAX_SHOWN_CHARACTERS
        else f"{text[:MAX_SHOWN_CHARACTERS]}… ({len(text)} characters)"
    )
