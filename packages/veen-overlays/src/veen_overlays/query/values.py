"""Values of fields: how a query reads, renders and orders them (query-api §5.1, RESOLUTIONS P11, P12).

A path that leads nowhere gives null, as does a null in the payload; a query cannot distinguish the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from veen_overlays.query.canonical_json import Json
from veen_overlays.query.errors import execution_failed
from veen_overlays.query.request.fields import TIME_FIELDS
from veen_overlays.query.request.timestamp import format_timestamp

OrderKey: TypeAlias = "tuple[int, bool | int | float | bytes]"
"""Sort key of a scalar: the rank of its type, then its value."""

_MAX_INDEX_DIGITS: Final = 9


def at_path(payload: Json, path: tuple[str, ...]) -> Json:
    """Return the value that a dotted path leads to; None if it leads nowhere."""
    value = payload
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list):
            value = _element(value, part)
        else:
            return None
    return value


def _element(items: list[Json], part: str) -> Json:
    if not (part.isascii() and part.isdecimal()) or len(part) > _MAX_INDEX_DIGITS:
        return None
    index = int(part)
    return items[index] if str(index) == part and index < len(items) else None


def rendered(name: str, value: Json) -> Json:
    """Return a value as a row shows it: times as timestamps (query-api §3.2)."""
    return format_timestamp(value) if name in TIME_FIELDS and type(value) is int else value


def order_key(name: str, value: Json) -> OrderKey:
    """Return the sort key of ``min`` and ``max``: false < true < numbers < text by UTF-8 bytes.

    Raise ``QueryError`` (execution_failed) for arrays and objects, which have no order.
    """
    match value:
        case bool():
            return 0, value
        case int() | float():
            return 1, value
        case str():
            return 2, value.encode()
        case _:
            kind = "an object" if isinstance(value, Mapping) else "an array"
            raise execution_failed(
                f"min and max of {name} are not defined: an event has {kind} there (query-api §4.3)",
                "name a path that leads to numbers or text, or filter such events out",
            )
