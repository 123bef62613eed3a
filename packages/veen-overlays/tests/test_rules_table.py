"""The table of rules in docs/conformance.md: no empty cell, and everything that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VECTORS = Path(__file__).parent / "vectors"
TITLE = "## Operations, calls, discovery"
RULES = [
    *("spec-3 1.1", "spec-3 2.3", "spec-3 2.4", "spec-3 2.5 P1", "spec-3 2.5 P2", "spec-3 3.3"),
    *(f"spec-3 {rule}" for rule in ("A1", "A2", "4.3", "D1", "D2", "D3", "M1", "M2", "6.4 P1", "6.4 P2")),
    *(f"spec-3 {rule}" for rule in ("S1", "S2", "R1", "R2", "R3", "Q1", "F1", "F2")),
    *(*(f"RPC0.{n}" for n in range(1, 5)), "P15"),
    *("spec-5 4.1", "spec-5 4.2", "spec-5 4.3", "spec-5 5.2", "P16"),
    *("spec-5 6.1", "spec-5 6.2", "spec-5 7", "spec-5 8.1"),
]
"""Every numbered invariant of spec-3, and the sections of RPC0 and spec-5 with a rule that can be broken."""


def rows() -> dict[str, list[str]]:
    page = (ROOT / "docs" / "conformance.md").read_text("utf-8")
    table = page[page.index(TITLE) :].split("\n\n## ")[0].split("|---|---|---|---|---|\n")[1].split("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {rule: others for rule, *others in cells}


def test_every_rule_has_a_row() -> None:
    assert list(rows()) == RULES


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_code_an_accepted_and_a_refused_case(rule: str) -> None:
    demand, module, *cases = rows()[rule]
    assert demand
    package, _, path = module.strip("`").partition(".")
    source = ROOT / "packages" / package.replace("_", "-") / "src" / package / path.replace(".", "/")
    assert source.with_suffix(".py").exists() or source.is_dir(), module
    assert len(set(cases)) == 2, "an accepted and a refused case"
    for case in cases:
        assert_exists(case.strip("`"))


def assert_exists(case: str) -> None:
    """Check that ``[PACKAGE/tests/]FILE::test_name[case]`` names a test, and a case of it or a vector."""
    found = re.fullmatch(r"(?:(veen-\w+)/tests/)?(\w+)::(test_\w+)(?:\[(.+)\])?", case)
    assert found is not None, case
    package, file, name, label = found.groups()
    text = (ROOT / "packages" / (package or "veen-overlays") / "tests" / f"{file}.py").read_text("utf-8")
    assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), case
    record, _, vector = (label or "").rpartition("/")
    if record and (VECTORS / record).is_dir():
        assert (VECTORS / record / vector).is_dir(), case
    elif label:
        texts = [text, *(path.read_text("utf-8") for path in VECTORS.glob("*/*.json"))]
        assert any(f'"{vector}"' in each for each in texts), case
