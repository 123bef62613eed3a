"""Wire objects: declare a dataclass once, derive its CBOR and JSON codecs (§3.1, B1, B2, B17).

    @array("RECEIPT", section="4.3")
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Receipt(Wire):
        ver: Literal[1] = 1
        label: Label
        ...

Three layouts, one declaration each: ``array`` (fields by position), ``int_map`` (keys 1, 2, 3 …
in field order) and ``text_map`` (keys are the field names, in field order). A field annotated
``X | None`` is optional: null in the middle of an array, left off at the end of one if it is
``TRAILING``, omitted from a map.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Protocol,
    Self,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from veen_core import cbor
from veen_core.errors import ConfigError, DecodeError, DecodeFault, EncodeError
from veen_core.kinds import AnyValue, Kind, ListOf, Nullable, OneOf, found, kind_of, optional_of
from veen_core.pattern import Convert, Pattern, pattern_of

TRAILING: Final = "trailing"
"""``Annotated[X | None, TRAILING]``: absent means a shorter array (§4.4)."""
EXPLICIT: Final = "explicit"
"""``Annotated[X | None, EXPLICIT]``: always there, a value or null (B2)."""


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field."""

    name: str
    key: int | str
    kind: Kind
    optional: bool = False
    trailing: bool = False


def where(name: str, section: str) -> str:
    """``RECEIPT.label §4.3``; a section of another document is named as it is."""
    return f"{name} §{section}" if section[0].isdecimal() else f"{name} ({section})"


class Codec(Protocol):
    """The derived codec of one wire object; also a ``Kind``, so that objects nest."""

    @property
    def name(self) -> str: ...
    @property
    def section(self) -> str: ...
    @property
    def fields(self) -> tuple[Field, ...]: ...
    @property
    def flat(self) -> bool: ...
    def match(self, data: bytes) -> Any: ...
    def end(self, data: bytes, at: int) -> int | None: ...
    def read(self, item: Any) -> Any: ...
    def write(self, value: Any) -> Any: ...
    def read_json(self, item: Any) -> Any: ...
    def write_json(self, value: Any) -> Any: ...
    def describe(self) -> str: ...


@dataclass(frozen=True, slots=True)
class _Declared:
    """What every layout shares: name, section, fields, and how a fault is reported."""

    name: str
    section: str
    build: type[Wire]
    fields: tuple[Field, ...]

    def describe(self) -> str:
        return self.name

    def _where(self, field: str = "") -> str:
        return where(f"{self.name}.{field}" if field else self.name, self.section)

    def _fail(self, message: str, field: str = "") -> DecodeError:
        return DecodeError(message, where=self._where(field))

    def _worst(self, attempts: Iterator[tuple[Field, Callable[[Any], Any], Any]]) -> DecodeError:
        """The fault to report when several fields are wrong: §8.2's order, then field order."""
        faults = []
        for field, read, item in attempts:
            try:
                read(item)
            except DecodeError as exc:
                faults.append(exc.within(self._where(field.name)))
        return min(faults, key=lambda fault: fault.fault)

    def write_json(self, value: Any) -> Any:
        held = ((f, getattr(value, f.name)) for f in self.fields)
        return {f.name: f.kind.write_json(v) for f, v in held if v is not None or not f.optional}

    def read_json(self, item: Any) -> Any:
        if type(item) is not dict:
            raise self._fail(f"want object, found {found(item)}")
        known = {f.name: f for f in self.fields}
        if unknown := [name for name in item if name not in known]:
            raise self._fail(f"unknown key {unknown[0][:40]!r}")
        self._require(item.keys())
        present = [(known[name], value) for name, value in item.items()]
        try:
            return self.build(**{f.name: f.kind.read_json(value) for f, value in present})
        except ConfigError as exc:
            raise self._fail(str(exc)) from None
        except DecodeError:
            raise self._worst((f, f.kind.read_json, value) for f, value in present) from None

    def _require(self, names: Any) -> None:
        for f in self.fields:
            if not f.optional and f.name not in names:
                raise self._fail("missing", f.name)


@dataclass(frozen=True, slots=True)
class ArrayCodec(_Declared):
    """Fields by position (§3.1: wire objects are arrays unless defined as maps)."""

    slots: tuple[tuple[Callable[[Any, Any], None], Callable[[Any], Any]], ...]
    """Of each field: what fills its slot, and what reads it."""
    flat: bool
    """Whether no field is an array or a map: then decoding needs no look ahead."""
    pattern: Pattern | None
    """Of its canonical bytes, if every field has one."""
    matched: tuple[tuple[Callable[[Any, Any], None], Convert], ...]
    """Of each field: what fills its slot, and what takes it from a match."""

    def match(self, data: bytes) -> Any:
        """The value, if these are canonical bytes of one; None says nothing. Half the cost of reading."""
        if self.pattern is None or (groups := self.pattern.groups(data)) is None:
            return None
        value = object.__new__(self.build)
        for (fill, take), group in zip(self.matched, groups, strict=True):
            fill(value, take(group))
        return value

    def end(self, data: bytes, at: int) -> int | None:
        """Where a canonical one that begins at ``at`` ends; None says nothing."""
        return self.pattern.end(data, at) if self.pattern is not None else None

    def read(self, item: Any) -> Any:
        if type(item) is not list:
            raise self._fail(f"want array, found {found(item)}")
        if len(item) != len(self.fields):
            self._check_shortened(len(item))
        # Filling slots costs half of calling the dataclass (2.3 of 13 µs in verifying a MSG).
        value = object.__new__(self.build)
        try:
            for (fill, read), x in zip(self.slots, item, strict=False):
                fill(value, read(x))
        except DecodeError:
            pairs = zip(self.fields, item, strict=False)
            raise self._worst((f, f.kind.read, x) for f, x in pairs) from None
        for fill, _ in self.slots[len(item) :]:
            fill(value, None)  # a trailing field that was left off
        return value

    def _check_shortened(self, length: int) -> None:
        if length != sum(not f.trailing for f in self.fields):
            raise self._fail(f"want array of {len(self.fields)}, found array of {length}")

    def write(self, value: Any) -> list[Any]:
        items = [f.kind.write(getattr(value, f.name)) for f in self.fields if not f.trailing]
        for f in self.fields[len(items) :]:
            if (held := getattr(value, f.name)) is not None:
                items.append(f.kind.write(held))
        return items

    def read_json(self, item: Any) -> Any:
        """``"msg": [ ... ]``: an array in JSON too (§10.4.1)."""
        if type(item) is not list:
            raise self._fail(f"want array, found {found(item)}")
        if len(item) != len(self.fields):
            self._check_shortened(len(item))
        try:
            return self.build(
                **{f.name: f.kind.read_json(x) for f, x in zip(self.fields, item, strict=False)}
            )
        except DecodeError:
            pairs = zip(self.fields, item, strict=False)
            raise self._worst((f, f.kind.read_json, x) for f, x in pairs) from None

    def write_json(self, value: Any) -> list[Any]:
        held = [(f, getattr(value, f.name)) for f in self.fields]
        return [f.kind.write_json(v) for f, v in held if not (f.trailing and v is None)]


class MapCodec(_Declared):
    """Fields by key, in declared order; unknown, missing and misordered keys are refused."""

    __slots__ = ()

    @property
    def flat(self) -> bool:
        return False

    def match(self, _data: bytes) -> None:
        return None

    def end(self, _data: bytes, _at: int) -> None:
        return None

    def read(self, item: Any) -> Any:
        if type(item) is not dict:
            raise self._fail(f"want map, found {found(item)}")
        present = self._present(item)
        try:
            return self.build(**{f.name: f.kind.read(x) for f, x in present})
        except ConfigError as exc:
            raise self._fail(str(exc)) from None
        except DecodeError:
            raise self._worst((f, f.kind.read, x) for f, x in present) from None

    def _present(self, item: dict[Any, Any]) -> list[tuple[Field, Any]]:
        """Walk declaration and map side by side: both are in order, or the map is refused."""
        present: list[tuple[Field, Any]] = []
        keys = iter(item)
        key = next(keys, None)
        for f in self.fields:
            # Types are compared too: 1, 1.0 and True are equal as Python keys, not on the wire.
            if key == f.key and type(key) is type(f.key):
                present.append((f, item[key]))
                key = next(keys, None)
            elif not f.optional:
                raise self._fail("missing" if f.key not in item else "keys out of order", f.name)
        if len(present) != len(item):
            raise self._fail(self._stray(item, {f.key for f, _ in present}))
        return present

    def _stray(self, item: dict[Any, Any], taken: set[int | str]) -> str:
        stray = next(k for k in item if k not in taken)
        declared = any(stray == f.key for f in self.fields)
        return "keys out of order" if declared else f"unknown key ({found(stray)})"

    def write(self, value: Any) -> dict[int | str, Any]:
        items = {}
        for f in self.fields:
            held = getattr(value, f.name)
            if held is not None or not f.optional:
                items[f.key] = f.kind.write(held)
        return items


class Wire:
    """Base of every wire object: bytes in, bytes out, both canonical."""

    __slots__ = ()
    codec: ClassVar[Codec]

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """A value, or a ``DecodeError`` naming object, field, section and what was found."""
        if (value := cls.codec.match(data)) is not None:
            return cast(Self, value)
        try:
            item = cbor.decode_items(data, flat=cls.codec.flat)
        except DecodeError as exc:
            raise exc.within(where(cls.codec.name, cls.codec.section)) from None
        return cast(Self, cls.codec.read(item))

    def encode(self) -> bytes:
        """The canonical bytes."""
        return cbor.encode_items(self.codec.write(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The JSON form (B17), as strict as the CBOR one."""
        return cast(Self, cls.codec.read_json(parse_json(text)))

    def to_json(self) -> str:
        """The JSON form: names for keys, lowercase hex for byte strings (B17)."""
        text = json.dumps(self.codec.write_json(self), separators=(",", ":"), ensure_ascii=False)
        if not _is_unicode(text):
            raise EncodeError(
                f"{where(self.codec.name, self.codec.section)}: text with a lone surrogate has no UTF-8"
            )
        return text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_json(text: str | bytes) -> Any:
    """JSON with duplicate keys, floats, non-finite numbers and lone surrogates refused."""
    try:
        item = json.loads(
            text if isinstance(text, str) else text.decode("utf-8"),  # json would guess the encoding
            object_pairs_hook=_unique,
            parse_float=_no_number,
            parse_constant=_no_number,
            parse_int=_short_int,
        )
        json.dumps(item, ensure_ascii=False).encode()  # a lone surrogate has no UTF-8, hence no CBOR
        return item
    except (ValueError, RecursionError) as exc:
        why = str(exc)
    # Outside the handler: a __context__ would carry the text, which may be a secret's.
    raise DecodeError(f"not JSON: {why}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(unique := dict(pairs)) != len(pairs):
        raise ValueError("duplicate key")
    return unique


def _no_number(_: str) -> Any:
    raise ValueError("floats have no place here")


def _short_int(digits: str) -> int:
    if len(digits.lstrip("-")) > 20:
        raise ValueError("integer beyond 64 bits")
    if digits == "-0":
        raise ValueError("a second way to write 0")
    return int(digits)


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
            kind = ListOf(kind.kind, least=1)  # absent has one form: left off
        yield Field(declared.name, key_of(position, declared.name), kind, optional, TRAILING in marks)


def _bare(kind: Kind) -> Kind:
    return kind.kind if isinstance(kind, Nullable) else kind


def array(name: str, *, section: str) -> Callable[[W], W]:
    """Declare a CBOR array with fixed field order (§3.1)."""

    def declare(cls: W) -> W:
        fields = tuple(
            Field(f.name, f.key, Nullable(f.kind), optional=False) if f.optional and not f.trailing else f
            for f in _fields(cls, lambda position, _name: position)
        )
        if hasattr(cls, "__post_init__"):
            raise TypeError(f"{name}: reading an array fills slots and would pass over __post_init__")
        fills = [getattr(cls, f.name).__set__ for f in fields]
        slots = tuple(zip(fills, (f.kind.read for f in fields), strict=True))
        flat = not any(isinstance(_bare(f.kind), ListOf | AnyValue | _Declared) for f in fields)
        pattern = None if any(f.trailing for f in fields) else pattern_of(f.kind for f in fields)
        matched = tuple(zip(fills, pattern.converts, strict=True)) if pattern is not None else ()
        cls.codec = ArrayCodec(name, section, cls, fields, slots, flat, pattern, matched)
        return cls

    return declare


def int_map(name: str, *, section: str) -> Callable[[W], W]:
    """Declare a CBOR map with keys 1, 2, 3 … in field order (§3.1)."""

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
