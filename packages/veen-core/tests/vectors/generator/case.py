"""A vector: an object, a case, its files, and the judge that accepts or refuses it.

wire.hex      the bytes, 64 a line          wire.json    or the JSON form (B17)
context.json  what a judge needs beside the bytes: keys, roots, positions
value.json    what a judge makes of a good case
expect.json   the error that a ``_fail`` case meets: class name, and text in its message
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from veen_core.codec import MapCodec
from veen_core.errors import VeenError
from veen_core.kinds import Fixed, ListOf
from veen_core.wire import Wire

from . import crooked

FAIL = "_fail"
STRUCTURAL = frozenset(
    {"msg", "receipt", "checkpoint", "cap_token", "hub_identity", "identity_card", "error"}
)
"""The six signed objects and the error envelope: each structural fault of these is a failing vector.

For every other object, property tests derive the same faults from its declaration (test_properties_wire).
"""
Context = Mapping[str, Any]
Judge = Callable[[bytes, Context], Any]
W = TypeVar("W", bound=Wire)


@dataclass(frozen=True, slots=True)
class Good:
    """A case that is accepted."""

    name: str
    wire: bytes
    context: Context | None = None


@dataclass(frozen=True, slots=True)
class Bad:
    """A case that is refused, and how."""

    name: str
    wire: bytes | str | None
    """Bytes, the text of a JSON form, or None for a derivation that has no result."""
    error: type[VeenError]
    match: str
    context: Context | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """One kind of object, with everything the vectors say about it."""

    name: str
    judge: Judge
    good: tuple[Good, ...]
    bad: tuple[Bad, ...] = ()
    wire: type[Wire] | None = None
    """Its declaration, from which the structural faults of ``STRUCTURAL`` objects are derived."""
    bend: str | None = None
    """The good case to derive them from, if not the first."""
    json: bool = False
    """Whether the JSON form is part of the protocol (§10.4)."""

    def all_bad(self) -> Iterator[Bad]:
        if self.wire is not None and self.name in STRUCTURAL:
            base = next(case for case in self.good if self.bend in (None, case.name)).wire
            for fault in crooked.faults_of(self.wire, base, self.json):
                yield Bad(fault.name, fault.wire, fault.error, fault.match)
        yield from self.bad

    def files(self) -> dict[str, bytes]:
        """Paths and contents of all its vectors."""
        made: dict[str, bytes] = {}
        for case in self.good:
            value = self.judge(case.wire, case.context or {})
            _add(made, f"{self.name}/{case.name}", wire=case.wire, context=case.context, value=value)
        for bad in self.all_bad():
            expect = {"error": bad.error.__name__, "match": bad.match}
            _add(made, f"{self.name}/{bad.name}{FAIL}", wire=bad.wire, context=bad.context, expect=expect)
        return made


def _add(made: dict[str, bytes], folder: str, *, wire: bytes | str | None, **parts: Any) -> None:
    if f"{folder}/wire.hex" in made or f"{folder}/expect.json" in made:
        raise ValueError(f"{folder} is made twice")
    if isinstance(wire, bytes):
        made[f"{folder}/wire.hex"] = to_hex_lines(wire)
    elif wire is not None:
        made[f"{folder}/wire.json"] = wire.encode()
    for name, part in parts.items():
        if part is not None:
            made[f"{folder}/{name}.json"] = (json.dumps(part, indent=1, ensure_ascii=False) + "\n").encode()


def to_hex_lines(data: bytes) -> bytes:
    lines = [data[at : at + 64].hex() for at in range(0, len(data), 64)]
    return ("\n".join(lines) + "\n").encode()


def from_hex_lines(text: bytes) -> bytes:
    return bytes.fromhex(text.decode())


def unhex(context: Context, name: str) -> bytes:
    return bytes.fromhex(context[name])


def read(cls: type[W], wire: bytes) -> W:
    """Decode, and make sure that there is one way to encode it."""
    value = cls.decode(wire)
    if value.encode() != wire:
        raise AssertionError(f"{cls.__name__} decodes what it does not encode")
    return value


def readable(value: Wire) -> dict[str, Any]:
    """Return names and hex, also for an array or an object with secrets: these keys are for tests only."""
    held = ((f, getattr(value, f.name)) for f in value.codec.fields)
    return {f.name: _spelt(f.kind, v) for f, v in held if v is not None or not (f.optional or f.trailing)}


def _spelt(kind: Any, value: Any) -> Any:
    match kind:
        case Fixed():
            return bytes(value).hex()
        case ListOf(inner):
            return [_spelt(inner, x) for x in value]
        case MapCodec():
            return readable(value)
        case _:
            return kind.write_json(value)


def decoded(cls: type[Wire]) -> Judge:
    """Return a judge that only decodes, for objects without further rules."""
    return lambda wire, _context: readable(read(cls, wire))
