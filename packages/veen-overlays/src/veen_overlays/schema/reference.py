"""The reference of records, written from their declarations: ``docs/overlays.md`` holds it (§4.7).

    python -m veen_overlays.schema.reference docs/overlays.md

writes the part of a page between ``<!-- records -->`` and ``<!-- end of records -->``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from veen_overlays.fold.overlay import Overlay
from veen_overlays.schema.record import Record


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


BEGIN, END = "<!-- records -->\n", "<!-- end of records -->"


def filled(page: str, overlays: Iterable[Overlay[Any]]) -> str:
    """The page with its records as the code has them now."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no part between {BEGIN.strip()} and {END}")
    return f"{before}{BEGIN}\n{reference(overlays)}\n{END}{after}"


if __name__ == "__main__":
    import sys
    from pathlib import Path

    from veen_overlays.fold.registry import OVERLAYS

    page_ = Path(sys.argv[1])
    page_.write_text(filled(page_.read_text(), OVERLAYS.values()))
