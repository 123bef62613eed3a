"""Strict JSON: the subset of JSON that wire objects use (core §10.3, RESOLUTIONS B17).

Duplicate keys, floats, non-finite numbers, integers beyond 64 bits and lone surrogates are refused, since
none of them has a counterpart in deterministic CBOR.
"""

from __future__ import annotations

import json
from typing import Any

from veen_core.errors import DecodeError, EncodeError


def write_json(item: Any, name: str) -> str:
    """Return compact JSON; ``name`` is the object's name in the error for text that UTF-8 cannot encode."""
    text = json.dumps(item, separators=(",", ":"), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise EncodeError(f"{name}: UTF-8 cannot encode text with a lone surrogate") from None
    return text


def parse_json(text: str | bytes) -> Any:
    """Parse strict JSON, or raise ``DecodeError``."""
    try:
        item = json.loads(
            text if isinstance(text, str) else text.decode("utf-8"),  # json would guess the encoding
            object_pairs_hook=_unique,
            parse_float=_refuse_float,
            parse_constant=_refuse_float,
            parse_int=_short_int,
        )
        json.dumps(item, ensure_ascii=False).encode()  # UTF-8, and so CBOR, cannot encode a lone surrogate
        return item
    except (ValueError, RecursionError) as exc:
        why = str(exc)
    # Raised outside the handler: a __context__ would carry the text, which may contain a secret.
    raise DecodeError(f"not JSON: {why}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(unique := dict(pairs)) != len(pairs):
        raise ValueError("duplicate key")
    return unique


def _refuse_float(_: str) -> Any:
    raise ValueError("floats are not allowed")


def _short_int(digits: str) -> int:
    if len(digits.lstrip("-")) > 20:
        raise ValueError("integer beyond 64 bits")
    if digits == "-0":
        raise ValueError("-0 is a second way to write 0")
    return int(digits)
