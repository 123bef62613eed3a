"""Names of schema ids: every record that an installed overlay declares (core §4.7, RESOLUTIONS B14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.schema.record import Record


def _shapes() -> dict[bytes, tuple[type[Record], ...]]:
    shapes: dict[bytes, tuple[type[Record], ...]] = {}
    for overlay in OVERLAYS.values():
        shapes.update(overlay.shapes)
    return shapes


SHAPES: Final[Mapping[bytes, tuple[type[Record], ...]]] = _shapes()
"""The record types that a body of each schema may have."""


def schema_name(schema: bytes | None) -> str | None:
    """Return the name of a schema, or None if no installed overlay declares it."""
    found = None if schema is None else SHAPES.get(schema)
    return None if found is None else found[0].NAME
