"""Records: a payload body declared once, with its schema id, codec and rules (§4.7, B2, B14).

    @record("wallet.close.v1", section="wallet 5.2")
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Close(Record):
        wallet_id: WalletId
        ts: UnixTime

From the declaration come ``encode``, the total ``decode_record``, the schema id, the reference page
(``reference``) and the tests' strategies. Nothing is coerced. A rule such as "at least one of" is part
of the declaration: a record that breaks one is neither written nor read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self, TypeVar

from veen_core.codec import MapCodec, where
from veen_core.errors import DecodeError, EncodeError
from veen_core.hashing import H
from veen_core.ids import SchemaId
from veen_core.kinds import AnyValue
from veen_core.wire import Wire, text_map
from veen_overlays.schema.pattern import Pattern, pattern_of

OPERATION_PREFIX: Final = "veen/schema:"
"""Before the names of spec-3's operations (B14)."""
MAX_NESTING: Final = 16
"""Of a record's free values. Canonical CBOR nests 32 deep (§3.1) and a state nests its records: deeper ones
would stand in the log and leave the whole state without an encoding."""


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Why a body is not the record it claims to be: the error state of a total decode (§11.1)."""

    why: str


@dataclass(frozen=True, slots=True)
class RecordRule:
    """What a record must satisfy beyond its fields' types."""

    text: str
    holds: Callable[[Any], bool]


def at_least_one_of(*names: str) -> RecordRule:
    """At least one of these optional fields is there."""
    return RecordRule(
        f"at least one of {', '.join(names)} is present",
        lambda record: any(getattr(record, name) is not None for name in names),
    )


def is_map(name: str) -> RecordRule:
    """The free value of this field, where present, is a map."""
    return RecordRule(
        f"{name} is a map", lambda record: getattr(record, name) is None or _is_dict(record, name)
    )


def nests_little(name: str) -> RecordRule:
    """The free value of this field can be shown inside a state."""
    text = f"{name} nests at most {MAX_NESTING} deep"
    return RecordRule(text, lambda record: _nests(getattr(record, name), MAX_NESTING))


def _nests(value: Any, left: int) -> bool:
    if type(value) not in (dict, list):
        return True
    inner = value.values() if type(value) is dict else value
    return left > 0 and all(_nests(each, left - 1) for each in inner)


def _is_dict(record: object, name: str) -> bool:
    return type(getattr(record, name)) is dict


class Record(Wire):
    """Base of every record. Its messages carry ``SCHEMA`` in ``payload_hdr``."""

    __slots__ = ()
    NAME: ClassVar[str]
    SCHEMA: ClassVar[SchemaId]
    RULES: ClassVar[tuple[RecordRule, ...]]
    PATTERN: ClassVar[Pattern | None]
    SLOTS: ClassVar[tuple[Callable[[Any, Any], None], ...]]

    @property
    def schema_id(self) -> SchemaId:
        """``payload_hdr.schema`` of a message that carries it; the hub's client asks for it."""
        return self.SCHEMA

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """A record that keeps its rules, or a ``DecodeError``; ``decode_record`` never raises."""
        if cls.PATTERN is not None and (values := cls.PATTERN.read(data)) is not None:
            return cls.of_values(values)
        record = super().decode(data)
        if (broken := record.broken_rule()) is not None:
            raise DecodeError(broken, where=cls.where())
        return record

    @classmethod
    def of_values(cls, values: list[Any]) -> Self:
        """From values of the declared kinds, in field order."""
        record = object.__new__(cls)
        for fill, value in zip(cls.SLOTS, values, strict=True):  # a third of calling the dataclass
            fill(record, value)
        if cls.RULES and (broken := record.broken_rule()) is not None:
            raise DecodeError(broken, where=cls.where())
        return record

    def encode(self) -> bytes:
        """The canonical bytes; refuses a record that breaks a rule."""
        if (broken := self.broken_rule()) is not None:
            raise EncodeError(f"{self.where()}: {broken}")
        return super().encode()

    def broken_rule(self) -> str | None:
        """The first rule that does not hold."""
        return next((f"wants that {rule.text}" for rule in self.RULES if not rule.holds(self)), None)

    @classmethod
    def where(cls) -> str:
        return where(cls.codec.name, cls.codec.section)


R = TypeVar("R", bound=type[Record])


def schema_id(name: str, *, operation: bool = False) -> SchemaId:
    """``H(name)``; of spec-3's operations ``H("veen/schema:" + name)`` (B14)."""
    return SchemaId(H((OPERATION_PREFIX + name if operation else name).encode()))


def record(
    name: str, *, section: str, rules: tuple[RecordRule, ...] = (), operation: bool = False
) -> Callable[[R], R]:
    """Declare a record: a text-keyed map in field order (B2)."""

    def declare(cls: R) -> R:
        cls = text_map(name, section=section)(cls)
        # A key that Python or this class has taken (``class``) has a field with an underscore after it.
        fields = tuple(replace(f, key=f.name.removesuffix("_")) for f in cls.codec.fields)
        cls.codec = MapCodec(name, section, cls, fields)
        free = tuple(nests_little(f.name) for f in fields if isinstance(f.kind, AnyValue))
        cls.NAME, cls.RULES = name, (*rules, *free)
        cls.SCHEMA = schema_id(name, operation=operation)
        cls.PATTERN = pattern_of(cls.codec.fields)
        cls.SLOTS = tuple(getattr(cls, f.name).__set__ for f in cls.codec.fields)
        return cls

    return declare


def decode_record(shapes: tuple[type[Record], ...], body: bytes) -> Record | Undecodable:
    """Total (§4.7): a record of one of the shapes a schema has, or why it is none. Never raises."""
    why = ""
    for shape in shapes:
        try:
            return shape.decode(body)
        except DecodeError as exc:
            why = f"{why}; or {exc}" if why else str(exc)
    return Undecodable(why)
