"""The documentation's records are the code's."""

from __future__ import annotations

from pathlib import Path

import pytest

from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.schema.reference import filled

PAGE_ENTRIES = Path(__file__).parents[3] / "docs" / "overlays.md"


def test_the_page_of_overlays_shows_every_record_as_it_is_declared() -> None:
    text = PAGE_ENTRIES.read_text()
    assert filled(text, OVERLAYS.values()) == text, (
        "run: python -m veen_overlays.schema.reference docs/overlays.md"
    )
    for overlay in OVERLAYS.values():
        for shape in overlay.schemas:
            assert shape.SCHEMA.hex() in text


def test_a_page_without_a_place_for_records_is_refused() -> None:
    with pytest.raises(ValueError, match="no part between"):
        filled("nothing", OVERLAYS.values())
