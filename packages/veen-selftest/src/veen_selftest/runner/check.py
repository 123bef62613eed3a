"""A check: a name, the clause it checks, and a function that asks a hub and raises where that is broken.

Three ways to end, and only the first is a pass: the function returns; it raises ``Violation`` (or one of
VEEN's own verification errors); it raises ``Skip``, because this cannot be judged here, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from veen_selftest.runner.context import Bench

T = TypeVar("T")


class Violation(Exception):  # noqa: N818 - what was found, not what went wrong
    """The hub breaks the clause."""


class Skip(Exception):  # noqa: N818 - no error at all
    """It cannot be judged here; the message says what would be needed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One row of a suite."""

    name: str
    clause: str
    run: Callable[[Bench], None]
    about: str = ""
    """What holds if it passes; the first line of the function's docstring where it is not given."""

    @property
    def says(self) -> str:
        return self.about or (self.run.__doc__ or "").strip().partition("\n")[0]


def require(holds: object, broken: str) -> None:
    """The clause, in a form that can fail; ``broken`` says what was found."""
    if not holds:
        raise Violation(broken)


def same(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise Violation(f"{what}: want {_short(wanted)}, found {_short(found)}")


def only(items: Iterable[T], what: str) -> T:
    """The one that there is."""
    found = list(items)
    if len(found) != 1:
        raise Violation(f"{what}: want one, found {len(found)}")
    return found[0]


def _short(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= 120 else f"{text[:120]}… ({len(text)})"
