"""Canonical JSON: every value has one encoding (query-api §3.1, RESOLUTIONS P12).

Keys are sorted by their UTF-8 bytes. There is no white space. Strings and numbers have the forms of RFC 8785;
integers are exact at any size, and byte strings are lowercase hex. NaN and infinities are refused.

``decode`` accepts any JSON that has a canonical form, and returns an integer for every number whose canonical
form is an integer (``1.0``, ``1e2``). So ``encode(decode(data))`` depends on the values alone, and
``decode_canonical`` accepts only bytes that are canonical already.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final, TypeAlias

from veen_overlays.query.errors import QueryError, QueryErrorCode

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A decoded JSON value."""

MAX_DEPTH: Final = 32
"""Deepest nesting of arrays and objects."""
MAX_INT_DIGITS: Final = 128
"""Most digits of an integer. CBOR payloads have 20; a sum of 2^64 of them has 39."""
MAX_INT: Final = 10**MAX_INT_DIGITS
MAX_JSON_BYTES: Final = 4 * 1_048_576
"""Most bytes that ``decode`` reads unless the caller says otherwise."""
_MAX_PLAIN_EXPONENT: Final = 21
"""RFC 8785 (ECMAScript 7.1.12.1): doubles from 1e21 on are written with an exponent."""
_MIN_PLAIN_EXPONENT: Final = -6
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")


def encode(value: object) -> bytes:
    """Return the canonical bytes of a value; raise ``QueryError`` (invalid_json) if it has none (P12)."""
    parts: list[str] = []
    _write(value, parts.append, MAX_DEPTH)
    try:
        return "".join(parts).encode()
    except UnicodeEncodeError:
        raise _refused(
            "has text with a lone surrogate, which UTF-8 cannot encode", "remove the surrogate"
        ) from None


def _write(value: object, put: Callable[[str], None], depth: int) -> None:
    match value:
        case str():
            put(encode_basestring(value))
        case None:
            put("null")
        case bool():
            put("true" if value else "false")
        case int():
            if not -MAX_INT < value < MAX_INT:
                raise _refused(f"has an integer of more than {MAX_INT_DIGITS} digits", "send a smaller one")
            put(str(value))
        case float():
            put(number(value))
        case bytes():
            put(f'"{value.hex()}"')
        case Mapping():
            _write_object(value, put, _deeper(depth))
        case list() | tuple():
            _write_array(value, put, _deeper(depth))
        case _:
            name = type(value).__name__
            raise _refused(f"cannot hold a {name}", "use null, bool, number, text, list or object")


def _deeper(depth: int) -> int:
    if not depth:
        raise _refused(f"is nested deeper than {MAX_DEPTH} levels", "flatten the value")
    return depth - 1


def _write_array(value: Sequence[object], put: Callable[[str], None], depth: int) -> None:
    put("[")
    for position, item in enumerate(value):
        if position:
            put(",")
        _write(item, put, depth)
    put("]")


def _write_object(value: Mapping[Any, object], put: Callable[[str], None], depth: int) -> None:
    if not all(isinstance(key, str) for key in value):
        raise _refused("has an object with a key that is not text", "use text keys")
    put("{")
    # Python orders text by code points, which is the order of UTF-8 bytes.
    for position, key in enumerate(sorted(value)):
        if position:
            put(",")
        put(encode_basestring(key))
        put(":")
        _write(value[key], put, depth)
    put("}")


def number(value: float) -> str:
    """Return a double in the form of RFC 8785 §3.2.2.3; refuse NaN and infinities (P12)."""
    if not math.isfinite(value):
        raise _refused("has NaN or an infinity, which JSON cannot express", "send a finite number, or null")
    if value == 0:
        return "0"
    sign, places, exponent = Decimal(repr(value)).as_tuple()  # exact, whatever the decimal context
    assert isinstance(exponent, int)  # finite
    point = len(places) + exponent  # value = 0.digits * 10^point
    digits = "".join(map(str, places)).rstrip("0")
    if len(digits) <= point <= _MAX_PLAIN_EXPONENT:
        text = digits + "0" * (point - len(digits))
    elif 0 < point <= _MAX_PLAIN_EXPONENT:
        text = f"{digits[:point]}.{digits[point:]}"
    elif _MIN_PLAIN_EXPONENT < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        text = f"{digits[0]}{fraction}e{point - 1:+d}"
    return f"-{text}" if sign else text


def decode(data: bytes | str, *, max_bytes: int = MAX_JSON_BYTES) -> Json:
    """Parse JSON that has a canonical form; raise ``QueryError`` (invalid_json) otherwise (P12).

    Refused: other encodings than UTF-8, duplicate keys, NaN, numbers beyond a double, integers of more than
    ``MAX_INT_DIGITS`` digits, lone surrogates, nesting deeper than ``MAX_DEPTH``, more than ``max_bytes``.
    """
    if len(data) > max_bytes:
        raise _refused(f"has {len(data)} bytes, at most {max_bytes} are allowed", "send less")
    text = data if isinstance(data, str) else _utf8(data)
    _check_depth(text)
    try:
        value: Json = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_float=_float,
            parse_int=_int,
            parse_constant=_constant,
        )
    except (ValueError, RecursionError) as exc:
        raise _refused(f"is not JSON: {exc}", "check the syntax of the JSON text") from None
    if "\\u" in text or isinstance(data, str):
        encode(value)  # a JSON escape, or text from Python, may contain a lone surrogate
    return value


def decode_canonical(data: bytes, *, max_bytes: int = MAX_JSON_BYTES) -> Json:
    """Parse bytes that must be canonical already (P12)."""
    value = decode(data, max_bytes=max_bytes)
    if encode(value) != data:
        raise _refused("is JSON, but not canonical JSON (RESOLUTIONS P12)", "encode it canonically")
    return value


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise _refused(f"is not UTF-8 at byte {exc.start}", "encode the text as UTF-8") from None


def _check_depth(text: str) -> None:
    """Refuse deep nesting in linear time, before a parser recurses into it."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        if bracket in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _refused(f"is nested deeper than {MAX_DEPTH} levels", "flatten the value")
        else:
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(unique := dict(pairs)) != len(pairs):
        raise ValueError("an object has the same key twice")
    return unique


def _int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_INT_DIGITS:
        raise ValueError(f"an integer has more than {MAX_INT_DIGITS} digits")
    return int(digits)


def _float(text: str) -> int | float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is beyond the range of a double")
    return int(form) if (form := number(value)).lstrip("-").isdigit() else value


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _refused(why: str, action: str) -> QueryError:
    return QueryError(QueryErrorCode.INVALID_JSON, f"the JSON {why}", action=action)
