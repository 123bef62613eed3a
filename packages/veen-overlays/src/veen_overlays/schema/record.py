"""Records: message bodies declared once, with schema id, codec and rules (core §4.7, RESOLUTIONS B2, B14).

    @record("wallet.close.v1", section="wallet 5.2")
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Close(Record):
        wallet_id: WalletId
        ts: UnixTime

The declaration gives ``encode``, ``decode``, the schema id, the reference page (``reference``) and the
strategies of the tests. No value is coerced. Rules such as "at least one of" are part of the declaration: a
record that breaks one can neither be encoded nor decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self, TypeVar

import cbor2

from veen_core.codec import MapCodec, where
from veen_core.errors import DecodeError, EncodeError
from veen_core.hashing import H
from veen_core.ids import SchemaId
from veen_core.kinds import AnyValue
from veen_core.wire import Wire, int_map, text_map
from veen_overlays.schema.pattern import Reader, RecordPattern, pattern_of

OPERATION_PREFIX: Final = "veen/schema:"
"""Prefix of the names of spec-3's operations in their schema ids (RESOLUTIONS B14)."""
MAX_NESTING: Final = 16
"""Levels that a free value of a record may nest. Canonical CBOR allows 32 levels (core §3.1), and a state
contains its records: a deeper value would leave the whole state without an encoding."""


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Why a body is not a valid record of its schema (core §11.1)."""

    why: str


@dataclass(frozen=True, slots=True)
class RecordRule:
    """A condition that a record must satisfy, in addition to the types of its fields."""

    text: str
    holds: Callable[[Any], bool]


def at_least_one_of(*names: str) -> RecordRule:
    """The rule that at least one of these optional fields is present."""
    return RecordRule(
        f"at least one of {', '.join(names)} is present",
        lambda record: any(getattr(record, name) is not None for name in names),
    )


def is_map(name: str) -> RecordRule:
    """The rule that the free value of this field, if present, is a map."""
    return RecordRule(
        f"{name} is a map", lambda record: getattr(record, name) is None or _is_dict(record, name)
    )


def nests_little(name: str) -> RecordRule:
    """The rule that the free value of this field nests at most ``MAX_NESTING`` levels."""
    text = f"{name} nests at most {MAX_NESTING} deep"
    return RecordRule(text, lambda record: nests_at_most(getattr(record, name), MAX_NESTING))


def nests_at_most(value: Any, left: int) -> bool:
    """Whether a plain value has at most ``left`` levels of lists and maps inside each other."""
    if type(value) not in (dict, list):
        return True
    inner = value.values() if type(value) is dict else value
    return left > 0 and all(nests_at_most(each, left - 1) for each in inner)


def _is_dict(record: object, name: str) -> bool:
    return type(getattr(record, name)) is dict


class Record(Wire):
    """Base class of all records; the messages that carry one have its ``SCHEMA`` in ``payload_hdr``."""

    __slots__ = ()
    NAME: ClassVar[str]
    SCHEMA: ClassVar[SchemaId]
    RULES: ClassVar[tuple[RecordRule, ...]]
    DECLARED_RULES: ClassVar[tuple[RecordRule, ...]]
    """The rules without those that bound the nesting of free values."""
    PATTERN: ClassVar[RecordPattern | None]
    FILLS: ClassVar[tuple[tuple[Callable[[Any, Any], None], Reader], ...]]
    """For each field: how to set it, and how to read its group of the pattern."""

    @property
    def schema_id(self) -> SchemaId:
        """The ``payload_hdr.schema`` of a message with this record; the hub's client reads it."""
        return self.SCHEMA

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a record that obeys its rules; raise ``DecodeError`` otherwise."""
        if cls.PATTERN is not None and (groups := cls.PATTERN.groups(data)) is not None:
            return cls.of_groups(groups, data)
        return cls._decode_any(data)

    @classmethod
    def of_groups(cls, groups: tuple[Any, ...], data: bytes) -> Self:
        """Make the record of ``data`` from the groups that its pattern has matched, like ``decode``."""
        record = object.__new__(cls)
        try:
            for (fill, read), item in zip(cls.FILLS, groups, strict=True):  # 3 times as fast as calling cls
                fill(record, None if item is None else read(item))
        except (ValueError, cbor2.CBORDecodeError):
            return cls._decode_any(data)
        for rule in cls.DECLARED_RULES:  # a free value that a pattern matches does not nest
            if not rule.holds(record):
                raise DecodeError(_broken(rule), where=cls.where())
        return record

    @classmethod
    def _decode_any(cls, data: bytes) -> Self:
        """Decode any data, and name the mistake if it is no record."""
        record = super().decode(data)
        if (broken := record.broken_rule()) is not None:
            raise DecodeError(broken, where=cls.where())
        return record

    def encode(self) -> bytes:
        """The canonical bytes; raise ``EncodeError`` if the record breaks a rule."""
        if (broken := self.broken_rule()) is not None:
            raise EncodeError(f"{self.where()}: {broken}")
        return super().encode()

    def broken_rule(self) -> str | None:
        """The first rule that the record breaks, or None."""
        return next((_broken(rule) for rule in self.RULES if not rule.holds(self)), None)

    @classmethod
    def where(cls) -> str:
        """The record and its section, for errors."""
        return where(cls.codec.name, cls.codec.section)


def _broken(rule: RecordRule) -> str:
    return f"breaks the rule that {rule.text}"


R = TypeVar("R", bound=type[Record])


def schema_id(name: str, *, operation: bool = False) -> SchemaId:
    """``H(name)``, or ``H("veen/schema:" + name)`` for an operation of spec-3 (RESOLUTIONS B14)."""
    return SchemaId(H((OPERATION_PREFIX + name if operation else name).encode()))


def record(
    name: str,
    *,
    section: str,
    rules: tuple[RecordRule, ...] = (),
    operation: bool = False,
    int_keys: bool = False,
) -> Callable[[R], R]:
    """Declare a record class: a map with text keys in field order (B2), or with the keys 1, 2, 3 … (B1)."""

    def declare(cls: R) -> R:
        cls = (int_map if int_keys else text_map)(name, section=section)(cls)
        # A key that is a Python keyword (``class``) or an attribute of Record (``schema_id``) has a field
        # with a trailing underscore.
        fields = tuple(f if int_keys else replace(f, key=f.name.removesuffix("_")) for f in cls.codec.fields)
        cls.codec = MapCodec(name, section, cls, fields)
        free = tuple(nests_little(f.name) for f in fields if isinstance(f.kind, AnyValue))
        cls.NAME, cls.RULES, cls.DECLARED_RULES = name, (*rules, *free), rules
        cls.SCHEMA = schema_id(name, operation=operation)
        cls.PATTERN = pattern_of(cls.codec.fields)
        fills = [getattr(cls, f.name).__set__ for f in cls.codec.fields]
        cls.FILLS = () if cls.PATTERN is None else tuple(zip(fills, cls.PATTERN.readers, strict=True))
        return cls

    return declare


def plain_fields(body: bytes) -> dict[str, Any]:
    """The present fields of a valid record's body as plain values, without checking it again."""
    fields: dict[str, Any] = cbor2.loads(body)
    if b"\xf6" in body:  # perhaps null
        return {key: value for key, value in fields.items() if value is not None}
    return fields


def decode_record(shapes: tuple[type[Record], ...], body: bytes) -> Record | Undecodable:
    """Decode a body as one of the records of a schema; returns the reason if it is none, never raises."""
    why = ""
    for shape in shapes:
        try:
            return shape.decode(body)
        except DecodeError as exc:
            why = f"{why}; or {exc}" if why else str(exc)
    return Undecodable(why)
