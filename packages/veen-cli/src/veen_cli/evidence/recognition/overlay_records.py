"""Overlay records in clear, as ``veen stream --out raw`` and ``--quiet`` write them (core §4.7).

A record does not contain its schema; the header of its message does. So a record is recognized only if it
fits exactly one schema, and by its form alone.
"""

from __future__ import annotations

from typing import Any, Final

from veen_cli.evidence.recognition.recognized import Bare
from veen_core.errors import VeenError
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.schema.record import Record

SCHEMAS: Final = tuple(dict.fromkeys(schema for overlay in OVERLAYS.values() for schema in overlay.schemas))
_FORMS: Final = tuple(
    (
        schema,
        frozenset(field.key for field in schema.codec.fields if not field.optional),
        frozenset(field.key for field in schema.codec.fields),
    )
    for schema in SCHEMAS
)


def recognize_record(data: bytes, item: Any) -> Bare | None:
    """Return the one record that these bytes can be; ``item`` is their decoded CBOR."""
    if not isinstance(item, dict):
        return None
    fitting = [
        made
        for schema, required, allowed in _FORMS  # compare keys first: a file may hold very many small maps
        if required <= item.keys() <= allowed and (made := _decode(schema, data)) is not None
    ]
    if len(fitting) != 1:
        return None
    (only,) = fitting
    return Bare(
        only.NAME,
        only.codec.section,
        item,
        {"schema, recognized by the form of the record": only.SCHEMA.hex()},
    )


def _decode(schema: type[Record], data: bytes) -> Record | None:
    try:
        return schema.decode(data)
    except VeenError:
        return None
