"""The reference of records, written from their declarations: ``docs/overlays.md`` holds it (§4.7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from veen_overlays.overlay import Overlay
from veen_overlays.record import Record


def record_reference(shape: type[Record]) -> str:
    """One record: its name, where it is specified, its schema id, fields and rules."""
    lines = [f"#### `{shape.NAME}`", "", f"{(shape.__doc__ or '').strip()} ({shape.codec.section})", ""]
    lines += [f"Schema `{shape.SCHEMA.hex()}`.", "", "| field | type | |", "|---|---|---|"]
    for field in shape.codec.fields:
        kind = field.kind.describe().replace("|", "or")
        lines.append(f"| `{field.key}` | {kind} | {'optional' if field.optional else ''} |")
    if shape.RULES:
        lines += ["", *(f"- {rule.text}" for rule in shape.RULES)]
    return "\n".join(lines)


def overlay_reference(overlay: Overlay[Any]) -> str:
    """One overlay: what its state is, then its records."""
    parts = [f"### `{overlay.name}`", overlay.title, *(record_reference(shape) for shape in overlay.schemas)]
    return "\n\n".join(parts)


def reference(overlays: Iterable[Overlay[Any]]) -> str:
    """All of them, in the order given."""
    return "\n\n".join(overlay_reference(overlay) for overlay in overlays) + "\n"
