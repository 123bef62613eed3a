"""Names of schema ids: every record that an overlay of this installation declares (§4.7, B14)."""

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
"""What a body of each schema may be."""


def schema_name(schema: bytes | None) -> str | None:
    """The name, or None of a schema that no overlay here knows."""
    found = None if schema is None else SHAPES.get(schema)
    return None if found is None else found[0].NAME
