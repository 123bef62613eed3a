"""The documentation lists every record as the code declares it."""

from __future__ import annotations

from pathlib import Path

from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.schema.reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "records.md"


def test_the_reference_shows_every_record_as_it_is_declared() -> None:
    text = PAGE.read_text("utf-8")
    assert reference(OVERLAYS.values()) in text, "run: python docs/generate.py"
    for overlay in OVERLAYS.values():
        for shape in (*overlay.schemas, *overlay.exchanged):
            assert shape.SCHEMA.hex() in text
