"""Bytes that deterministic CBOR forbids (§3.1, B3), and JSON that its strict form forbids (B17).

Each fault changes one thing of a good object. The table is ``FAULTS``;
the fields of the object's declaration say which of them apply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cbor2

from veen_core.codec import ArrayCodec, Codec, Field, MapCodec, where
from veen_core.errors import DecodeError, VeenError
from veen_core.kinds import Fixed, Uint
from veen_core.wire import Wire


@dataclass(frozen=True, slots=True)
class Fault:
    """One altered object and the error that it causes."""

    name: str
    wire: bytes | str
    match: str
    error: type[VeenError] = DecodeError


@dataclass(frozen=True, slots=True)
class Raw:
    """Raw bytes in place of an item."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pairs:
    """A map with keys in any order, also repeated."""

    pairs: list[tuple[Any, Any]]


def encode(item: Any) -> bytes:
    """Encode CBOR, including forms that deterministic CBOR forbids."""
    match item:
        case Raw():
            return item.data
        case list():
            return head(4, len(item)) + b"".join(map(encode, item))
        case dict():
            return encode(Pairs(list(item.items())))
        case Pairs():
            return head(5, len(item.pairs)) + b"".join(encode(k) + encode(v) for k, v in item.pairs)
        case _:
            return cbor2.dumps(item)


def head(major: int, count: int) -> bytes:
    """Initial byte and argument, in the shortest form."""
    as_integer = cbor2.dumps(count)
    return bytes([as_integer[0] | major << 5]) + as_integer[1:]


def long_form(item: int | bytes) -> Raw:
    """An integer, or the length of a byte string, in eight bytes where fewer would do."""
    if isinstance(item, int):
        return Raw(b"\x1b" + item.to_bytes(8, "big"))
    return Raw(b"\x5b" + len(item).to_bytes(8, "big") + item)


def indefinite(item: list[Any] | dict[Any, Any]) -> bytes:
    inner = encode(item)
    return bytes([inner[0] & 0xE0 | 0x1F]) + inner[len(head(4, len(item))) :] + b"\xff"


def flip(data: bytes, at: int) -> bytes:
    """The same bytes with one bit of one of them turned over."""
    bent = bytearray(data)
    bent[at] ^= 1
    return bytes(bent)


FLOAT = Raw(bytes.fromhex("fb3ff8000000000000"))
"""1.5 as cbor2 writes it: a float that would survive the canonical check."""


def faults_of(cls: type[Wire], wire: bytes, with_json: bool) -> Iterator[Fault]:
    """Every structural fault that this object can have."""
    codec, item = cls.codec, cbor2.loads(wire)
    for fault in FAULTS:
        yield from fault(codec, item)
    if with_json:
        yield from _json_faults(codec, cls.decode(wire).to_json())


def _where(codec: Codec, field: Field | None = None) -> str:
    return where(f"{codec.name}.{field.name}" if field else codec.name, codec.section)


def _present(codec: Codec, item: Any) -> Iterator[tuple[Field, Any, Any]]:
    """Fields that this object has, with their place (index or key) and their item."""
    for position, field in enumerate(codec.fields):
        place = position if isinstance(item, list) else field.key
        if place in (range(len(item)) if isinstance(item, list) else item):
            yield field, place, item[place]


def _with(item: Any, place: Any, value: Any) -> bytes:
    bent = item.copy()
    bent[place] = value
    return encode(bent)


def _framing(codec: Codec, item: Any) -> Iterator[Fault]:
    wire, at = encode(item), _where(codec)
    yield Fault("trailing_byte", wire + b"\x00", f"{at}: not canonical CBOR: 1 bytes after the item")
    yield Fault("truncated", wire[:-1], f"{at}: not CBOR")
    yield Fault("indefinite_length", indefinite(item), f"{at}: not CBOR")
    yield Fault("tagged", bytes.fromhex("d9d9f7") + wire, f"{at}: not CBOR: tags are not allowed")
    other, found = ({}, "map of 0") if isinstance(item, list) else ([], "array of 0")
    yield Fault("other_container", encode(other), f"found {found}")


def _long_forms(codec: Codec, item: Any) -> Iterator[Fault]:
    why = f"{_where(codec)}: not canonical CBOR: first difference"
    if isinstance(item, dict) and isinstance(next(iter(item)), int):
        (key, value), *rest = item.items()
        yield Fault("non_minimal_key", encode(Pairs([(long_form(key), value), *rest])), why)
    for name, kind in (("non_minimal_integer", int), ("non_minimal_length", bytes)):
        places = (place for _field, place, value in _present(codec, item) if type(value) is kind)
        for place in list(places)[:1]:
            yield Fault(name, _with(item, place, long_form(item[place])), why)


def _arity(codec: Codec, item: Any) -> Iterator[Fault]:
    if not isinstance(codec, ArrayCodec):
        return
    least, most = sum(not f.trailing for f in codec.fields), len(codec.fields)
    for name, length in (("item_missing", least - 1), ("item_added", most + 1)):
        bent = [*item, *[0] * most][:length]
        yield Fault(name, encode(bent), f"{_where(codec)}: want array of {most}, found array of {length}")


def _keys(codec: Codec, item: Any) -> Iterator[Fault]:
    if isinstance(codec, ArrayCodec):
        return
    first, *others = pairs = list(item.items())
    stray = len(codec.fields) + 1 if isinstance(first[0], int) else "zz"
    yield Fault("unknown_key", encode(Pairs([*pairs, (stray, 0)])), f"{_where(codec)}: unknown key")
    if others:
        yield Fault("keys_misordered", encode(Pairs([others[0], first, *others[1:]])), "keys out of order")
    yield Fault("duplicate_key", encode(Pairs([first, *pairs])), f"{_where(codec)}: not CBOR")
    required = next(field for field in codec.fields if not field.optional)
    bent = {key: value for key, value in item.items() if key != required.key}
    yield Fault(f"{required.name}_missing", encode(bent), f"{_where(codec, required)}: missing")


def _field_types(codec: Codec, item: Any) -> Iterator[Fault]:
    for field, place, value in _present(codec, item):
        if isinstance(field.kind, Fixed):
            size = field.kind.size
            why = f"{_where(codec, field)}: want {field.kind.type.__name__} of {size} bytes, found {size - 1}"
            yield Fault(f"{field.name}_short", _with(item, place, value[:-1]), why)
        if field.name == "ver":
            yield Fault("ver_2", _with(item, place, 2), f"{_where(codec, field)}: want 1, found int 2")
        if field.optional and not field.trailing:
            yield Fault(f"{field.name}_null", _with(item, place, None), _null_match(codec, field))
    for field, place in [(f, p) for f, p, _value in _present(codec, item) if isinstance(f.kind, Uint)][:1]:
        for name, bent in (("float", FLOAT), ("bool", True), ("int -1", -1)):
            word = "negative" if name == "int -1" else name
            why = f"{_where(codec, field)}: want uint, found {name}"
            if name == "float" and not codec.flat:  # looked over before anything is built
                why = f"{_where(codec)}: not CBOR: indefinite lengths, floats and other simple values"
            yield Fault(f"{field.name}_{word}", _with(item, place, bent), why)


def _null_match(codec: Codec, field: Field) -> str:
    """Return the error text for null in an optional field."""
    kind: Any = field.kind
    inner = f"want {kind.describe()}"
    if isinstance(kind, ArrayCodec | MapCodec):
        inner = f"{_where(kind)}: want {'array' if isinstance(kind, ArrayCodec) else 'map'}"
    return f"{_where(codec, field)}: {inner}, found null"


FAULTS: tuple[Callable[[Codec, Any], Iterator[Fault]], ...] = (
    _framing,
    _long_forms,
    _arity,
    _keys,
    _field_types,
)


def _json_faults(codec: Codec, text: str) -> Iterator[Fault]:
    first = codec.fields[0]
    number = f'"{first.name}":{json.loads(text)[first.name]}'
    at, at_first = _where(codec), _where(codec, first)
    yield Fault("json_unknown_key", text[:-1] + ',"zz":0}', f"{at}: unknown key 'zz'")
    yield Fault("json_duplicate_key", f"{text[:-1]},{number}}}", "not JSON: duplicate key")
    yield Fault("json_float", text.replace(number, f"{number}.0", 1), "not JSON: floats are not allowed")
    yield Fault("json_text_for_integer", text.replace(number, f'"{first.name}":"1"', 1), f"{at_first}: want")
    yield Fault("json_trailing", text + "0", "not JSON")
    yield Fault("json_array", f"[{text}]", f"{at}: want object, found array of 1")
    if hexed := re.search(r'"[0-9a-f]{64,}"', text):
        upper = text.replace(hexed[0], hexed[0].upper(), 1)
        yield Fault("json_uppercase_hex", upper, "want lowercase hex, found other text")
