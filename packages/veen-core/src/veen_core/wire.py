"""Wire objects: a dataclass declares an object once; its CBOR and JSON codecs follow (§3.1, B1, B2, B17).

    @array("RECEIPT", section="4.3")
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Receipt(Wire):
        ver: Literal[1] = 1
        label: Label
        ...

There are three layouts: ``array`` (fields by position), ``int_map`` (keys 1, 2, 3 … in field order) and
``text_map`` (keys are the field names, in field order). A field annotated ``X | None`` is optional. If it is
absent, an array has null in its place, or is shorter if the field is ``TRAILING``; a map omits the key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Annotated, ClassVar, Final, Self, TypeVar, cast, get_args, get_origin, get_type_hints

from veen_core import cbor
from veen_core.codec import ArrayCodec, Codec, Declared, Field, MapCodec, where
from veen_core.errors import DecodeError, DecodeFault
from veen_core.kinds import AnyValue, Kind, ListOf, Nullable, OneOf, kind_of, optional_of
from veen_core.pattern import pattern_of
from veen_core.strict_json import parse_json, write_json

TRAILING: Final = "trailing"
"""``Annotated[X | None, TRAILING]``: the field may be left off at the end of an array (core §4.4)."""
EXPLICIT: Final = "explicit"
"""``Annotated[X | None, EXPLICIT]``: the key is always there, with a value or null (B2)."""


class Wire:
    """Base of every wire object. Each value has exactly one CBOR encoding."""

    __slots__ = ()
    codec: ClassVar[Codec]

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode canonical bytes; ``DecodeError`` names object, field, clause and what was found."""
        if (value := cls.codec.match(data)) is not None:
            return cast(Self, value)
        try:
            item = cbor.decode_items(data, flat=cls.codec.flat)
        except DecodeError as exc:
            raise exc.within(where(cls.codec.name, cls.codec.section)) from None
        return cast(Self, cls.codec.read(item))

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return cbor.encode_items(self.codec.write(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Decode the JSON form, as strictly as the CBOR form (B17)."""
        return cast(Self, cls.codec.read_json(parse_json(text)))

    def to_json(self) -> str:
        """Return the JSON form: names for keys, lowercase hex for byte strings (B17)."""
        return write_json(self.codec.write_json(self), where(self.codec.name, self.codec.section))


W = TypeVar("W", bound=type[Wire])


def _fields(cls: type[Wire], key_of: Callable[[int, str], int | str]) -> Iterator[Field]:
    hints = get_type_hints(cls, include_extras=True)
    for position, declared in enumerate(dataclasses.fields(cls), start=1):  # type: ignore[arg-type]  # a dataclass by now
        annotation, marks = hints[declared.name], ()
        if get_origin(annotation) is Annotated:
            marks = annotation.__metadata__
            if TRAILING in marks or EXPLICIT in marks:
                annotation = get_args(annotation)[0]
        inner, optional = optional_of(annotation)
        kind = kind_of(inner)
        if declared.name == "ver" and isinstance(kind, OneOf):
            kind = OneOf(kind.allowed, DecodeFault.VERSION)
        if EXPLICIT in marks:
            kind, optional = Nullable(kind), False
        if TRAILING in marks and isinstance(kind, ListOf):
            kind = ListOf(kind.kind, least=1)  # absent has one form: the item is left off
        yield Field(declared.name, key_of(position, declared.name), kind, optional, TRAILING in marks)


def _bare(kind: Kind) -> Kind:
    return kind.kind if isinstance(kind, Nullable) else kind


def array(name: str, *, section: str) -> Callable[[W], W]:
    """Declare a CBOR array with fixed field order (core §3.1)."""

    def declare(cls: W) -> W:
        fields = tuple(
            Field(f.name, f.key, Nullable(f.kind), optional=False) if f.optional and not f.trailing else f
            for f in _fields(cls, lambda position, _name: position)
        )
        if hasattr(cls, "__post_init__"):
            raise TypeError(f"{name}: an array must not have a __post_init__, because decoding skips it")
        fills = [getattr(cls, f.name).__set__ for f in fields]
        slots = tuple(zip(fills, (f.kind.read for f in fields), strict=True))
        flat = not any(isinstance(_bare(f.kind), ListOf | AnyValue | Declared) for f in fields)
        pattern = None if any(f.trailing for f in fields) else pattern_of(f.kind for f in fields)
        matched = tuple(zip(fills, pattern.converts, strict=True)) if pattern is not None else ()
        cls.codec = ArrayCodec(name, section, cls, fields, slots, flat, pattern, matched)
        return cls

    return declare


def int_map(name: str, *, section: str) -> Callable[[W], W]:
    """Declare a CBOR map with keys 1, 2, 3 … in field order (core §3.1)."""

    def declare(cls: W) -> W:
        fields = tuple(_fields(cls, lambda position, _name: position))
        cls.codec = MapCodec(name, section, cls, fields)
        return cls

    return declare


def text_map(name: str, *, section: str) -> Callable[[W], W]:
    """Declare a CBOR map whose keys are the field names, in field order (B2)."""

    def declare(cls: W) -> W:
        fields = tuple(_fields(cls, lambda _position, field_name: field_name))
        cls.codec = MapCodec(name, section, cls, fields)
        return cls

    return declare
