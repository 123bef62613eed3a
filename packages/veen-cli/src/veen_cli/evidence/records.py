"""Overlay records in clear, as ``veen stream --out raw`` and ``--quiet`` write them (§4.7).

Nothing in a record says which it is: in a message, ``payload_hdr.schema`` does. So one is named only if it
fits exactly one of the schemas, and by its form alone.
"""

from __future__ import annotations

from typing import Any, Final

from veen_cli.evidence.found import Bare
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


def record(data: bytes, item: Any) -> Bare | None:
    """The one record that these bytes can be; ``item`` is what they decode to."""
    if not isinstance(item, dict):
        return None
    fitting = [
        made
        for schema, least, most in _FORMS  # by keys first: a megabyte of small maps is tried soon
        if least <= item.keys() <= most and (made := _read(schema, data)) is not None
    ]
    if len(fitting) != 1:
        return None
    (only,) = fitting
    return Bare(
        only.NAME,
        only.codec.section,
        item,
        {"by its form alone; its messages name schema": only.SCHEMA.hex()},
    )


def _read(schema: type[Record], data: bytes) -> Record | None:
    try:
        return schema.decode(data)
    except VeenError:
        return None
