"""The kinds of fields: how each kind of value is written to CBOR and JSON and read back (§3.1, B17).

``kind_of`` derives the kind from a field's annotation, so that a wire object declares each field once.
Reading is strict: nothing is converted, booleans are not integers, and an error says what was found.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NewType, Protocol, Union, get_args, get_origin

from veen_core import cbor
from veen_core.errors import DecodeError, DecodeFault, EncodeError
from veen_core.hashing import U64_MAX
from veen_core.ids import FixedBytes, Secret


class Kind(Protocol):
    """One kind of field. ``read`` and ``write`` convert CBOR items, the other two JSON (B17)."""

    def read(self, item: Any) -> Any: ...
    def write(self, value: Any) -> Any: ...
    def read_json(self, item: Any) -> Any: ...
    def write_json(self, value: Any) -> Any: ...
    def describe(self) -> str: ...


def found(item: object) -> str:
    """Describe an item for an error, without repeating untrusted content."""
    match item:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            return f"int {item}" if abs(item) <= U64_MAX else "int beyond 64 bits"
        case bytes():
            return f"bstr of {len(item)} bytes"
        case str():
            return f"tstr of {len(item)} characters"
        case list():
            return f"array of {len(item)}"
        case dict():
            return f"map of {len(item)}"
        case _:
            return type(item).__name__


@dataclass(frozen=True, slots=True)
class Uint:
    """An unsigned integer of at most 64 bits; booleans are refused."""

    def read(self, item: Any) -> int:
        if type(item) is not int or not 0 <= item <= U64_MAX:
            raise DecodeError(f"want uint, found {found(item)}")
        return item

    def write(self, value: int) -> int:
        if type(value) is not int or not 0 <= value <= U64_MAX:
            raise EncodeError(f"want an unsigned 64-bit integer, have {found(value)}")
        return value

    read_json, write_json = read, write

    def describe(self) -> str:
        return "uint"


@dataclass(frozen=True, slots=True)
class Int:
    """A signed integer of at most 64 bits."""

    def read(self, item: Any) -> int:
        if type(item) is not int or not cbor.INT_MIN <= item <= U64_MAX:
            raise DecodeError(f"want int, found {found(item)}")
        return item

    def write(self, value: int) -> int:
        if type(value) is not int or not cbor.INT_MIN <= value <= U64_MAX:
            raise EncodeError(f"want a 64-bit integer, have {found(value)}")
        return value

    read_json, write_json = read, write

    def describe(self) -> str:
        return "int"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few fixed values, such as a version, a direction or a word."""

    allowed: tuple[int | str, ...]
    fault: DecodeFault = DecodeFault.CBOR

    def read(self, item: Any) -> int | str:
        for value in self.allowed:
            if type(item) is type(value) and item == value:
                return value
        raise DecodeError(f"want {self.describe()}, found {found(item)}", fault=self._fault(item))

    def _fault(self, item: object) -> DecodeFault:
        return self.fault if type(item) is int else DecodeFault.CBOR

    def write(self, value: int | str) -> int | str:
        for allowed in self.allowed:
            if type(value) is type(allowed) and value == allowed:
                return value
        raise EncodeError(f"want {self.describe()}, have {found(value)}")

    read_json, write_json = read, write

    def describe(self) -> str:
        return " | ".join(repr(v) if isinstance(v, str) else str(v) for v in self.allowed)


@dataclass(frozen=True, slots=True)
class WordOf:
    """A text from a fixed enumeration."""

    type: type[enum.StrEnum]

    def read(self, item: Any) -> enum.StrEnum:
        if type(item) is str and item in self.type.__members__.values():
            return self.type(item)
        raise DecodeError(f"want {self.describe()}, found {found(item)}")

    def write(self, value: Any) -> str:
        if not isinstance(value, str) or value not in self.type.__members__.values():
            raise EncodeError(f"want {self.describe()}, have {found(value)}")
        return str(value)

    read_json, write_json = read, write

    def describe(self) -> str:
        return f"one of {self.type.__name__}"


@dataclass(frozen=True, slots=True)
class Scalar:
    """Text, or a boolean: a value that CBOR and JSON represent alike."""

    type: type
    word: str

    def read(self, item: Any) -> Any:
        if type(item) is not self.type:
            raise DecodeError(f"want {self.word}, found {found(item)}")
        return item

    def write(self, value: Any) -> Any:
        if type(value) is not self.type:
            raise EncodeError(f"want {self.word}, have {found(value)}")
        return value

    read_json, write_json = read, write

    def describe(self) -> str:
        return self.word


@dataclass(frozen=True, slots=True)
class Bytes:
    """A byte string of any length, which is lowercase hex in JSON (B17)."""

    def read(self, item: Any) -> bytes:
        if type(item) is not bytes:
            raise DecodeError(f"want bstr, found {found(item)}")
        return item

    def write(self, value: Any) -> bytes:
        if not isinstance(value, bytes):
            raise EncodeError(f"want bstr, have {found(value)}")
        return value

    def read_json(self, item: Any) -> bytes:
        return self.read(_from_hex(item))

    def write_json(self, value: bytes) -> str:
        return value.hex()

    def describe(self) -> str:
        return "bstr"


@dataclass(frozen=True, slots=True)
class Fixed:
    """A byte string whose type fixes its size."""

    type: type[FixedBytes]
    size: int

    def read(self, item: Any) -> FixedBytes:
        if type(item) is not bytes:
            raise DecodeError(f"want bstr{self.size}, found {found(item)}")
        if len(item) != self.size:
            return self.type(item)  # raises an error that names the expected size
        return bytes.__new__(self.type, item)  # takes half the time of self.type(item), six times per MSG

    def write(self, value: Any) -> bytes:
        if not isinstance(value, bytes) or len(value) != self.size:
            raise EncodeError(f"want bstr{self.size}, have {found(value)}")
        return value

    def read_json(self, item: Any) -> FixedBytes:
        if issubclass(self.type, Secret):
            raise DecodeError(f"{self.type.__name__} is a secret and has no JSON form")
        return self.type(_from_hex(item))

    def write_json(self, value: FixedBytes) -> str:
        if issubclass(self.type, Secret):
            raise EncodeError(f"{self.type.__name__} is a secret and has no JSON form")
        return value.hex()

    def describe(self) -> str:
        return f"bstr{self.size}"


@dataclass(frozen=True, slots=True)
class ListOf:
    """An array of at least ``least`` items of one kind; a tuple in Python."""

    kind: Kind
    least: int = 0

    def read(self, item: Any) -> tuple[Any, ...]:
        return self._read(self.kind.read, item)

    def write(self, value: tuple[Any, ...]) -> list[Any]:
        if len(value) < self.least:
            raise EncodeError(f"want array of at least {self.least}, have {len(value)}")
        return [self.kind.write(x) for x in value]

    def read_json(self, item: Any) -> tuple[Any, ...]:
        return self._read(self.kind.read_json, item)

    def _read(self, read: Callable[[Any], Any], item: Any) -> tuple[Any, ...]:
        if type(item) is not list:
            raise DecodeError(f"want array, found {found(item)}")
        if len(item) < self.least:
            raise DecodeError(f"want array of at least {self.least}, found {found(item)}")
        return tuple(self._at(i, read, x) for i, x in enumerate(item))

    def write_json(self, value: tuple[Any, ...]) -> list[Any]:
        return [self.kind.write_json(x) for x in value]

    @staticmethod
    def _at(index: int, read: Callable[[Any], Any], item: Any) -> Any:
        try:
            return read(item)
        except DecodeError as exc:
            raise exc.within(f"[{index}]") from None

    def describe(self) -> str:
        return f"[{self.kind.describe()}]"


@dataclass(frozen=True, slots=True)
class Nullable:
    """A value or an explicit null, for a field that allows null (§3.1)."""

    kind: Kind

    def read(self, item: Any) -> Any:
        return None if item is None else self.kind.read(item)

    def write(self, value: Any) -> Any:
        return None if value is None else self.kind.write(value)

    def read_json(self, item: Any) -> Any:
        return None if item is None else self.kind.read_json(item)

    def write_json(self, value: Any) -> Any:
        return None if value is None else self.kind.write_json(value)

    def describe(self) -> str:
        return f"{self.kind.describe()} | null"


@dataclass(frozen=True, slots=True)
class AnyValue:
    """Any deterministic CBOR value, such as the arguments of a call."""

    def read(self, item: Any) -> Any:
        cbor.check_plain(item)
        return item

    def write(self, value: Any) -> Any:
        cbor.check_plain(value)
        return value

    def read_json(self, item: Any) -> Any:
        return self.read(item)

    def write_json(self, value: Any) -> Any:
        match value:
            case bytes():
                return value.hex()
            case list():
                return [self.write_json(x) for x in value]
            case dict():
                named = {str(k): self.write_json(v) for k, v in value.items()}
                if len(named) != len(value):
                    raise EncodeError("two keys of a map have the same name in JSON")
                return named
            case _:
                return value

    def describe(self) -> str:
        return "any"


def _from_hex(item: Any) -> bytes:
    if type(item) is not str:
        raise DecodeError(f"want lowercase hex, found {found(item)}")
    try:
        value = bytes.fromhex(item)
    except ValueError:
        raise DecodeError("want lowercase hex, found other text") from None
    if value.hex() != item:
        raise DecodeError("want lowercase hex, found other text")
    return value


UINT: Final = Uint()
SIGNED = "signed"
"""``Annotated[int, SIGNED]``: a signed integer; a bare ``int`` is unsigned."""


def optional_of(annotation: Any) -> tuple[Any, bool]:
    """Split ``X | None`` into ``X`` and whether the field may be absent."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = tuple(a for a in get_args(annotation) if a is not type(None))
        if len(inner) == 1 and len(inner) != len(get_args(annotation)):
            return inner[0], True
    return annotation, False


def kind_of(annotation: Any) -> Kind:
    """Return the kind that a field's annotation declares."""
    if isinstance(annotation, NewType):
        return kind_of(annotation.__supertype__)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return OneOf(args)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return ListOf(kind_of(args[0]))
    if hasattr(annotation, "__metadata__"):
        return Int() if SIGNED in annotation.__metadata__ else kind_of(args[0])
    if annotation is Any:
        return AnyValue()
    if isinstance(annotation, type):
        return _kind_of_type(annotation)
    raise TypeError(f"no wire kind for {annotation!r}")


def _kind_of_type(annotation: type) -> Kind:
    if issubclass(annotation, FixedBytes):
        return Fixed(annotation, annotation.SIZE)
    if issubclass(annotation, enum.StrEnum):
        return WordOf(annotation)
    if hasattr(annotation, "codec"):
        return annotation.codec  # type: ignore[no-any-return]  # the codec of a wire object is a kind
    simple: dict[type, Kind] = {
        bool: Scalar(bool, "bool"),
        int: UINT,
        bytes: Bytes(),
        str: Scalar(str, "tstr"),
    }
    return simple[annotation]
