"""The result of recognizing a file: an object and its position in the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from veen_core.entry import Entry
from veen_core.tlog.tree_head import SignedHead
from veen_core.wire import Wire


@dataclass(frozen=True, slots=True)
class Bare:
    """VEEN bytes that are not a wire object: their name, spec section and content."""

    name: str
    section: str
    held: Mapping[str, object]
    derived: Mapping[str, str] = field(default_factory=dict)
    """Values computed from the content."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Deterministic CBOR that is not an object of VEEN."""

    item: object


Thing = Wire | Entry | SignedHead | Bare | Unknown


@dataclass(frozen=True, slots=True)
class Recognized:
    """One object, its bytes, and the file (and position) it was read from."""

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
        case SignedHead():
            return "hub checkpoint"
        case Bare():
            return thing.name
        case Unknown():
            return "CBOR of an unknown kind"
