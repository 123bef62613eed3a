"""The reference of all records as Markdown, made from their declarations (core §4.7).

``docs/generate.py`` writes it into ``docs/reference/records.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from veen_overlays.fold.overlay import Overlay
from veen_overlays.schema.record import Record


def record_reference(shape: type[Record]) -> str:
    """The section of one record: name, specification, schema id, fields and rules."""
    lines = [f"### `{shape.NAME}`", "", f"{_sentence(shape)} ({_cited(shape.codec.section)})", ""]
    lines += [f"Schema `{shape.SCHEMA.hex()}`.", "", "| field | type | |", "|---|---|---|"]
    for field in shape.codec.fields:
        kind = field.kind.describe().replace("|", "or")
        lines.append(f"| `{field.key}` | {kind} | {'optional' if field.optional else ''} |")
    if shape.RULES:
        lines += ["", *(f"- {rule.text}" for rule in shape.RULES)]
    return "\n".join(lines)


def _sentence(shape: type[Record]) -> str:
    return (shape.__doc__ or "").strip().replace("``", "`")


def _cited(section: str) -> str:
    """A section with its document; a bare number belongs to core.md."""
    return f"core §{section}" if section[0].isdecimal() else section


def overlay_reference(overlay: Overlay[Any]) -> str:
    """The section of one overlay: its title, its records, then the records that are sent about its state."""
    shapes = (*overlay.schemas, *overlay.exchanged)
    return "\n\n".join([f"## `{overlay.name}`", overlay.title, *map(record_reference, shapes)])


def reference(overlays: Iterable[Overlay[Any]]) -> str:
    """The sections of all overlays, in the given order."""
    return "\n\n".join(overlay_reference(overlay) for overlay in overlays) + "\n"
