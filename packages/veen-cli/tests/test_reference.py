"""The reference of the installed commands, also of those of other distributions, is up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from veen_cli.commands import reference

REFERENCE = Path(__file__).parents[3] / "docs/reference/cli"
STALE = "run: python -m veen_cli.commands.reference docs/reference/cli"


@pytest.mark.parametrize("name", ["index", *reference.PAGES])
def test_the_reference_is_up_to_date(name: str) -> None:
    shown = (REFERENCE / f"{name}.md").read_text()
    if name != "index" and not reference.page_commands(name):
        return  # the distribution with these commands is not installed here
    real = reference.generate_index() if name == "index" else reference.generate_page(name)
    assert shown.partition(reference.MARKER)[2].strip() == real.strip(), STALE


def test_every_page_of_the_reference_is_generated() -> None:
    assert {path.stem for path in REFERENCE.glob("*.md")} == {"index", *reference.PAGES}
