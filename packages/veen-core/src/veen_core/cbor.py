"""Deterministic CBOR: every value has one encoding (§3.1, RESOLUTIONS B3).

Bytes are canonical if and only if encoding the decoded value gives the same bytes, with nothing after
them. This rule refuses long forms of integers and lengths. Indefinite lengths, tags, floats, duplicate
keys and deep nesting are refused earlier, while decoding, so that hostile input never reaches cbor2's
decoders for dates, regular expressions or shared references. ``wire`` checks the keys of maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

import cbor2

from veen_core.errors import DecodeError, EncodeError
from veen_core.hashing import U64_MAX

Item: TypeAlias = "int | bytes | str | bool | list[Item] | dict[int | str | bytes, Item] | None"
"""A value of deterministic CBOR: no floats, no tags, no other simple values (§3.1)."""

MAX_DEPTH: Final = 32
"""Deepest nesting that is accepted. Objects of the specification need 6; overlay records have free values."""

INT_MIN: Final = -(2**64)
_SCALARS: Final = frozenset({bytes, str, bool, type(None)})


def _refuse_tag(*_: object) -> NoReturn:
    raise ValueError("CBOR tags are not allowed (core §3.1)")


# Every tag that cbor2 6 decodes itself; any other tag is passed to ``tag_hook``.
_KNOWN_TAGS: Final = frozenset(
    {0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799}
)
_STRICT: Final[Mapping[str, Any]] = {
    "tag_hook": _refuse_tag,
    "semantic_decoders": dict.fromkeys(_KNOWN_TAGS, _refuse_tag),
    "max_depth": MAX_DEPTH,
    "allow_indefinite": False,
    "allow_duplicate_keys": False,
}


_ARRAYS: Final = frozenset(bytes([0x80 + n]) for n in range(24))
"""The first byte of an array of up to 23 items."""


def encode(item: object) -> bytes:
    """Return the canonical bytes of an item; lists and maps keep their order.

    Floats, integers beyond 64 bits and values that cbor2 would tag raise ``EncodeError`` (§3.1).
    """
    _check_writable(item, MAX_DEPTH)
    return encode_items(item)


def encode_items(item: object) -> bytes:
    """Return the canonical bytes of an item whose values a declaration has checked."""
    try:
        return cbor2.dumps(item)
    except (cbor2.CBOREncodeError, UnicodeEncodeError, RecursionError) as exc:
        raise EncodeError(f"no canonical encoding: {exc}") from exc


def _check_writable(item: object, depth: int) -> None:
    if type(item) in _SCALARS:
        return
    if isinstance(item, int):
        if not INT_MIN <= item <= U64_MAX:
            raise EncodeError("no canonical encoding: integer beyond 64 bits (core §3.1)")
    elif isinstance(item, list | tuple | dict):
        if not depth:
            raise EncodeError(f"no canonical encoding: nested deeper than {MAX_DEPTH}")
        for key in item if isinstance(item, dict) else ():
            if isinstance(key, bool) or not isinstance(key, int | str | bytes):
                raise EncodeError(f"no canonical encoding: map key of type {type(key).__name__}")
            _check_writable(key, depth)
        for element in item.values() if isinstance(item, dict) else item:
            _check_writable(element, depth - 1)
    elif not isinstance(item, bytes | str):
        raise EncodeError(f"no canonical encoding: {type(item).__name__} is not allowed (core §3.1)")


def array_head(length: int) -> bytes:
    """Return the head of an array of ``length`` items."""
    head = encode(length)
    return bytes([head[0] | 0x80]) + head[1:]


def uint_size(n: int) -> int:
    """Return the encoded size of an unsigned integer, in its shortest form (§3.1)."""
    return 1 if n < 24 else 2 if n < 2**8 else 3 if n < 2**16 else 5 if n < 2**32 else 9


def decode_items(data: bytes, *, flat: bool = False) -> Any:
    """Decode canonical bytes; the caller checks each value against a declaration.

    ``flat``: the item is an array without arrays or maps inside, except empty ones; cbor2 refuses others.
    Any other item is scanned first (``item_end``), so that no map with unusual keys is ever built.
    """
    flat = flat and data[:1] in _ARRAYS
    if not flat and (end := item_end(data)) != len(data):
        raise DecodeError(f"not canonical CBOR: {len(data) - end} bytes after the item")
    item = _refusing(_loads_flat if flat else _loads, data)
    if cbor2.dumps(item) != data:
        raise DecodeError(f"not canonical CBOR: {_difference(item, data)}")
    return item


def decode(data: bytes) -> Item:
    """Decode canonical bytes of any value, such as a free value in an overlay's record."""
    item = decode_items(data)
    check_plain(item)
    return item  # type: ignore[no-any-return]  # check_plain ensures it


def split_sequence(data: bytes) -> Iterator[bytes]:
    """Split a CBOR sequence (RFC 8742) into the bytes of each item, without decoding them."""
    offset = 0
    while offset < len(data):
        end = item_end(data, offset)
        yield data[offset:end]
        offset = end


def item_end(data: bytes, start: int = 0) -> int:
    """Return where the item at ``start`` ends, by reading heads only, in linear time.

    Refuses what §3.1 refuses, and map keys that are neither integers nor strings: Python hashes tuples
    without a seed, so an attacker could make a map with array keys take quadratic time.
    """
    at, size = start, len(data)
    open_: list[tuple[int, bool]] = []  # items left in each enclosing array or map
    left, in_map = 1, False
    while True:
        while left == 0:
            if not open_:
                return at
            left, in_map = open_.pop()
        is_key = in_map and left % 2 == 0
        left -= 1
        major, n, at = _head(data, at, size)
        if major in (2, 3):
            at += n
        elif major in (4, 5):
            count = n if major == 4 else 2 * n
            if is_key or count > size - at or len(open_) >= MAX_DEPTH:
                raise DecodeError(_container_fault(is_key, count > size - at))
            open_.append((left, in_map))
            left, in_map = count, major == 5
        elif major == 7 and is_key:
            raise DecodeError("not CBOR: a map key that is neither an integer nor a string")
        if at > size:
            raise DecodeError("not CBOR: ends early")


def _head(data: bytes, at: int, size: int) -> tuple[int, int, int]:
    """Return the major type and argument of the head at ``at``, and where the head ends."""
    if at >= size:
        raise DecodeError("not CBOR: ends early")
    major, info = data[at] >> 5, data[at] & 31
    if major == 6:
        raise DecodeError("not CBOR: tags are not allowed (core §3.1)")
    if info > 27 or (major == 7 and info not in (20, 21, 22)):
        raise DecodeError(
            "not CBOR: indefinite lengths, floats and other simple values are not allowed (core §3.1)"
        )
    if info < 24:
        return major, info, at + 1
    end = at + 1 + (1 << (info - 24))
    return major, int.from_bytes(data[at + 1 : end], "big"), end


def _container_fault(is_key: bool, too_long: bool) -> str:
    if is_key:
        return "not CBOR: a map key that is neither an integer nor a string"
    return "not CBOR: ends early" if too_long else f"not CBOR: nested deeper than {MAX_DEPTH}"


def check_plain(item: object, depth: int = MAX_DEPTH) -> None:
    """Refuse values that deterministic CBOR does not allow (§3.1), and nesting beyond ``depth``."""
    kind = type(item)
    if not depth and kind in (list, dict):
        raise DecodeError(f"nested deeper than {MAX_DEPTH}")
    if kind is int:
        if not INT_MIN <= item <= U64_MAX:  # type: ignore[operator]  # kind says it is an int
            raise DecodeError("integer beyond 64 bits")
    elif kind is list:
        for element in item:  # type: ignore[attr-defined]  # kind says it is a list
            check_plain(element, depth - 1)
    elif kind is dict:
        for key, value in item.items():  # type: ignore[attr-defined]  # kind says it is a dict
            if type(key) not in (int, str, bytes):
                raise DecodeError(f"map key of type {type(key).__name__}")
            check_plain(value, depth - 1)
    elif kind not in _SCALARS:
        raise DecodeError(f"{kind.__name__} is not allowed in deterministic CBOR")


_loads: Final = partial(cbor2.loads, **_STRICT)
_loads_flat: Final = partial(cbor2.loads, **{**_STRICT, "max_depth": 1})


def _refusing(decode: Callable[..., Any], *data: bytes) -> Any:
    """Call a decoder of cbor2; turn its exceptions into a ``DecodeError`` that shows no content."""
    try:
        return decode(*data)
    except cbor2.CBORDecodeError as exc:
        why = "duplicate map key" if "uplicate" in str(exc) else str(exc)[:120]  # no content in an error
    except (ValueError, TypeError, OverflowError, MemoryError, RecursionError) as exc:
        why = type(exc).__name__
    # Raised outside the handlers: a __context__ would carry the bytes, which may contain a secret.
    raise DecodeError(f"not CBOR: {why}")


def _difference(item: object, data: bytes) -> str:
    canonical = cbor2.dumps(item)
    if data.startswith(canonical):
        return f"{len(data) - len(canonical)} bytes after the item"
    at = next((i for i, (a, b) in enumerate(zip(canonical, data, strict=False)) if a != b), len(canonical))
    return f"first difference at byte {at}"
