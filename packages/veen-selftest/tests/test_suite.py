"""The suites are complete: no row, invariant or scenario is left out, and every check has a statement."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import veen_selftest
from veen_core.rejection import TABLE
from veen_selftest.runner.check import Check
from veen_selftest.runner.report import as_junit
from veen_selftest.runner.suite import SUITES, CheckOutcome, CheckResult, RunReport, checks_of, chosen

from .conftest import ALL

SOURCE = Path(veen_selftest.__file__).parent
DOCS = Path(__file__).parents[3] / "docs"
NAMES = [check.name for suite in SUITES for check in checks_of(suite)]


def test_every_row_of_the_admission_table_has_its_check() -> None:
    rows = [f"admission.{row.detail}" for row in TABLE]
    assert [name for name in NAMES if name in rows] == rows


def test_every_invariant_and_every_scenario_has_its_check() -> None:
    assert {f"invariant.I{n}" for n in range(1, 13)} <= set(NAMES)
    assert "core §7 I13" in {check.clause for _suite, check in ALL.values()}, (
        "which no pair of a log can show"
    )
    assert {f"scenario.{letter}" for letter in "ABCD"} <= set(NAMES)


def test_every_figure_of_the_hub_is_measured() -> None:
    figures = [check.name for check in checks_of("perf")]
    assert figures == [
        "hub.single",
        "hub.batch",
        "hub.p50",
        "hub.read",
        "hub.follow_p99_ms",
        "hub.clients",
        "hub.growth",
        "hub.rss_mb",
    ]


def test_names_are_unique_and_every_check_has_a_clause_and_a_statement() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for _suite, check in ALL.values():
        assert check.clause
        assert check.statement, check.name
        assert not check.statement.startswith("Make a check"), check.name


def test_a_section_has_the_name_of_its_document() -> None:
    named = r"(?:core|spec-\d|query-api|WAL|RFC \d+) §[\d.]+( [A-Z]\w*)?((,| and) §[\d.]+( [A-Z]\w*)?)*"
    for _suite, check in ALL.values():
        assert "§" not in re.sub(named, "", f"{check.clause}; {check.statement}"), check.name


def test_checks_are_chosen_by_name_and_by_pattern() -> None:
    assert [check.name for _, check in chosen(["core"], ["scenario.A"])] == ["scenario.A"]
    assert [check.name for _, check in chosen(["core"], ["scenario.*"])] == [f"scenario.{x}" for x in "ABCD"]
    assert list(chosen(["core"], ["nothing"])) == []


def test_the_selftest_imports_nothing_of_a_hub_but_client_load_generators_and_log_format() -> None:
    """import-linter says so too; this also looks inside functions."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                ("veen_hub", "veen_storage")
            ):
                assert node.module in ("veen_hub.client", "veen_hub.load", "veen_hub.ops.logs"), path


def test_the_conformance_table_names_only_checks_and_files_that_exist() -> None:
    text = (DOCS / "conformance.md").read_text(encoding="utf-8")
    named = set(
        re.findall(
            r"`((?:scenario|invariant|admission|api|proof|checkpoint|cap|epoch|attachment|"
            r"equivocation|resync|identity|mmr|codec|fuzz|crash|hub-log|witness|memory|bridge|dr)\.[\w.*-]+)`",
            text,
        )
    )
    for name in named:
        assert list(chosen(SUITES, [name])), f"docs/conformance.md: there is no check {name}"
    root = DOCS.parent / "packages"
    for package, test in re.findall(r"`(veen-\w+)/tests/(\w+)`", text):
        assert (root / package / "tests" / f"{test}.py").exists() or (
            root / package / "tests" / test
        ).is_dir()
    for module in re.findall(r"`(veen_\w+(?:\.\w+)+)`", text):
        path = root / module.split(".")[0].replace("_", "-") / "src" / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or path.is_dir(), module


def test_the_guide_counts_the_checks() -> None:
    text = (DOCS / "selftest.md").read_text(encoding="utf-8")
    for name in (*SUITES, "all"):
        count = len(list(chosen(SUITES if name == "all" else [name])))
        assert f"| `{name}` | {count} |" in text


def test_the_conformance_table_names_every_package_that_implements_a_section() -> None:
    text = (DOCS / "conformance.md").read_text(encoding="utf-8")
    for package in ("veen_core", "veen_storage", "veen_hub", "veen_overlays", "veen_spark"):
        assert f"`{package}." in text


# --- JUnit: what readers of it (Jenkins, GitLab, GitHub's) agree on, as their schema says it

Kind = Callable[[str], object]
COUNTS: dict[str, Kind] = {
    "name": str,
    "tests": int,
    "failures": int,
    "errors": int,
    "skipped": int,
    "time": float,
}
SHAPE: dict[str, tuple[dict[str, Kind], list[str]]] = {
    "testsuites": (COUNTS, ["testsuite"]),
    "testsuite": (COUNTS | {"timestamp": datetime.fromisoformat}, ["properties", "testcase"]),
    "properties": ({}, ["property"]),
    "property": ({"name": str, "value": str}, []),
    "testcase": ({"classname": str, "name": str, "time": float}, ["failure", "skipped"]),
    "failure": ({"message": str, "type": str}, []),
    "skipped": ({"message": str}, []),
}
"""Of each element: all its attributes with their types, and what may stand in it, in this order."""


def shaped(element: ET.Element) -> None:
    attributes, children = SHAPE[element.tag]
    assert element.attrib.keys() == attributes.keys()
    for name, kind in attributes.items():
        kind(element.attrib[name])
    order = [children.index(child.tag) for child in element]
    assert order == sorted(order)
    for child in element:
        shaped(child)


def test_a_junit_report_has_the_shape_that_its_readers_expect() -> None:
    check = Check("some.check", "§0", lambda _bench: None, "says <something> & more")
    whys = {
        CheckOutcome.PASSED: "",
        CheckOutcome.FAILED: "a\x00b\ud800 <&>\n\u2028",
        CheckOutcome.SKIPPED: "not \x1b[31mhere",
    }
    results = [
        CheckResult(suite=suite, check=check, outcome=outcome, seconds=0.1, why=why)
        for suite in ("core", "fuzz")
        for outcome, why in whys.items()
    ]
    root = ET.fromstring(as_junit(RunReport(hub="http://h\x07/?a=1&b", seed=1, results=results, seconds=0.6)))
    shaped(root)
    assert [suite.get("name") for suite in root] == ["core", "fuzz"]
    for each in (root, *root):
        cases = each.findall(".//testcase")
        assert int(each.attrib["tests"]) == len(cases)
        assert int(each.attrib["failures"]) == len(each.findall(".//failure"))
        assert int(each.attrib["skipped"]) == len(each.findall(".//skipped"))
