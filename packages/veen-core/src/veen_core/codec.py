"""The codecs of wire objects: declared fields to and from CBOR items and JSON (§3.1, B1, B2, B17).

``ArrayCodec`` places fields by position, ``MapCodec`` by key. ``wire`` derives both from dataclasses. If
several fields are wrong, the error names the one that core §8.2 reports first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from veen_core.errors import ConfigError, DecodeError
from veen_core.kinds import AnyValue, Kind, found
from veen_core.pattern import Convert, Pattern

if TYPE_CHECKING:
    from veen_core.wire import Wire


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field of a wire object."""

    name: str
    key: int | str
    kind: Kind
    optional: bool = False
    trailing: bool = False


def where(name: str, section: str) -> str:
    """Return a name with its clause: ``RECEIPT.label (core §4.3)``. A bare number is a section of core."""
    return f"{name} (core §{section})" if section[0].isdecimal() else f"{name} ({section})"


class Codec(Protocol):
    """The codec of one wire object. It is also a ``Kind``, so that objects nest."""

    @property
    def name(self) -> str: ...
    @property
    def section(self) -> str: ...
    @property
    def fields(self) -> tuple[Field, ...]: ...
    @property
    def flat(self) -> bool: ...
    def match(self, data: bytes) -> Any: ...
    def end(self, data: bytes | bytearray, at: int) -> int | None: ...
    def read(self, item: Any) -> Any: ...
    def write(self, value: Any) -> Any: ...
    def read_json(self, item: Any) -> Any: ...
    def write_json(self, value: Any) -> Any: ...
    def describe(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Declared:
    """Name, section and fields of a wire object of any layout; builds its errors."""

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

    def _first_error(self, attempts: Iterator[tuple[Field, Callable[[Any], Any], Any]]) -> DecodeError:
        """Return the error to report if several fields are wrong: the lowest fault, then the first field."""
        errors = []
        for field, read, item in attempts:
            try:
                read(item)
            except DecodeError as exc:
                errors.append(exc.within(self._where(field.name)))
        return min(errors, key=lambda error: error.fault)

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
            raise self._first_error((f, f.kind.read_json, value) for f, value in present) from None

    def _require(self, names: Any) -> None:
        for f in self.fields:
            if not f.optional and f.name not in names:
                raise self._fail("missing", f.name)


@dataclass(frozen=True, slots=True)
class ArrayCodec(Declared):
    """The codec of an array: fields by position (core §3.1)."""

    slots: tuple[tuple[Callable[[Any, Any], None], Callable[[Any], Any]], ...]
    """For each field, the function that fills its slot and the one that reads its CBOR item."""
    flat: bool
    """Whether no field is an array or a map, so that decoding needs no scan of the nesting first."""
    pattern: Pattern | None
    """The pattern of the canonical bytes, if every field has one."""
    matched: tuple[tuple[Callable[[Any, Any], None], Convert], ...]
    """For each field, the function that fills its slot and the one that converts the pattern's match."""

    def match(self, data: bytes) -> Any:
        """Return the value if the pattern recognizes its canonical bytes; None: use the general decoder."""
        if self.pattern is None or (groups := self.pattern.groups(data)) is None:
            return None
        value = object.__new__(self.build)
        for (fill, take), group in zip(self.matched, groups, strict=True):
            fill(value, take(group))
        return value

    def end(self, data: bytes | bytearray, at: int) -> int | None:
        """Return where the object that begins at ``at`` ends; None: use the general decoder."""
        return self.pattern.end(data, at) if self.pattern is not None else None

    def read(self, item: Any) -> Any:
        if type(item) is not list:
            raise self._fail(f"want array, found {found(item)}")
        if len(item) != len(self.fields):
            self._check_shortened(len(item))
        # Filling slots takes about half as long as calling the dataclass.
        value = object.__new__(self.build)
        try:
            for (fill, read), x in zip(self.slots, item, strict=False):
                fill(value, read(x))
        except DecodeError:
            pairs = zip(self.fields, item, strict=False)
            raise self._first_error((f, f.kind.read, x) for f, x in pairs) from None
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
        """Read a JSON array: ``"msg": [ ... ]`` is an array in JSON too (core §10.4.1)."""
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
            raise self._first_error((f, f.kind.read_json, x) for f, x in pairs) from None

    def write_json(self, value: Any) -> list[Any]:
        held = [(f, getattr(value, f.name)) for f in self.fields]
        return [f.kind.write_json(v) for f, v in held if not (f.trailing and v is None)]


class MapCodec(Declared):
    """The codec of a map: fields by key, in declared order. Unknown or misordered keys are refused."""

    __slots__ = ()

    @property
    def flat(self) -> bool:
        return False

    def match(self, _data: bytes) -> None:
        return None

    def end(self, _data: bytes | bytearray, _at: int) -> None:
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
            raise self._first_error((f, f.kind.read, x) for f, x in present) from None

    def _present(self, item: dict[Any, Any]) -> list[tuple[Field, Any]]:
        """Pair the declared fields with the items of a map, which must come in the same order."""
        present: list[tuple[Field, Any]] = []
        keys = iter(item)
        key = next(keys, None)
        for f in self.fields:
            # Types are compared too: 1, 1.0 and True are equal as Python keys, but not in CBOR.
            if key == f.key and type(key) is type(f.key):
                if item[key] is None and f.optional and isinstance(f.kind, AnyValue):
                    raise self._fail("null, but an absent optional is omitted (B2)", f.name)
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
