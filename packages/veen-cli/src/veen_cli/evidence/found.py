"""What was found in a file: an object of some kind, and where it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from veen_core.entry import Entry
from veen_core.wire import Wire


@dataclass(frozen=True, slots=True)
class Bare:
    """VEEN bytes that are no wire object, or not by themselves: what, where that is said, what they hold."""

    name: str
    section: str
    held: Mapping[str, object]
    derived: Mapping[str, str] = field(default_factory=dict)
    """What follows from it."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Deterministic CBOR that is none of the kinds."""

    item: object


Thing = Wire | Entry | Bare | Unknown


@dataclass(frozen=True, slots=True)
class Found:
    """One object and where it was."""

    where: str
    thing: Thing
    data: bytes

    @property
    def name(self) -> str:
        return name_of(self.thing)


def name_of(thing: Thing) -> str:
    match thing:
        case Wire():
            return thing.codec.name
        case Entry():
            return "log entry"
        case Bare():
            return thing.name
        case Unknown():
            return "CBOR of no known kind"
