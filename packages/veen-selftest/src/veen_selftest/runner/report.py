"""The report of a run: one JSON object for programs, JUnit for CI, lines for people."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from veen_selftest.runner.context import Figure
from veen_selftest.runner.load_profile import HubProfile
from veen_selftest.runner.suite import CheckOutcome, CheckResult, RunReport

MARKS = {CheckOutcome.PASSED: "ok", CheckOutcome.FAILED: "FAIL", CheckOutcome.SKIPPED: "skip"}


def as_object(report: RunReport) -> dict[str, Any]:
    """Return the report as a JSON object; its keys are an interface."""
    return {
        "ok": report.ok,
        "hub": report.hub,
        "seed": report.seed,
        "seconds": round(report.seconds, 3),
        "interrupted": report.interrupted,
        **{outcome.value: report.count(outcome) for outcome in CheckOutcome},
        "checks": [
            {
                "suite": result.suite,
                "name": result.check.name,
                "clause": result.check.clause,
                "says": result.check.statement,
                "outcome": result.outcome.value,
                "why": result.why,
                "seconds": round(result.seconds, 3),
            }
            for result in report.results
        ],
        "figures": [dataclasses.asdict(figure) for figure in report.figures],
        "clients": [dataclasses.asdict(rates) for rates in report.clients],
        "profiles": [_profile_as_object(profile) for profile in report.profiles],
    }


def _profile_as_object(profile: HubProfile) -> dict[str, Any]:
    """Return a profile with numbers rounded to a nanosecond."""

    def rounded(item: Any) -> Any:
        match item:
            case float():
                return round(item, 3)
            case dict():
                return {key: rounded(value) for key, value in item.items()}
            case list() | tuple():
                return [rounded(each) for each in item]
        return item

    return {**rounded(dataclasses.asdict(profile)), "floor_ratio": round(profile.floor.ratio, 3)}


def as_junit(report: RunReport) -> bytes:
    """Return the report in JUnit's XML, one ``testsuite`` per suite; a skipped check is not a pass."""
    root = ET.Element("testsuites", _counted("veen-selftest", report.results, report.seconds))
    for name in dict.fromkeys(result.suite for result in report.results):
        mine = [result for result in report.results if result.suite == name]
        suite = ET.SubElement(root, "testsuite", _counted(name, mine, sum(each.seconds for each in mine)))
        suite.set("timestamp", report.began.strftime("%Y-%m-%dT%H:%M:%S"))
        properties = ET.SubElement(suite, "properties")
        ET.SubElement(properties, "property", name="hub", value=_printable(report.hub))
        ET.SubElement(properties, "property", name="seed", value=str(report.seed))
        for result in mine:
            _case(suite, result)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _counted(name: str, results: Sequence[CheckResult], seconds: float) -> dict[str, str]:
    """Return the attributes that JUnit's readers expect. A check that crashes counts as a failure."""
    return {
        "name": name,
        "tests": str(len(results)),
        "failures": str(sum(result.outcome is CheckOutcome.FAILED for result in results)),
        "errors": "0",
        "skipped": str(sum(result.outcome is CheckOutcome.SKIPPED for result in results)),
        "time": f"{seconds:.3f}",
    }


def _case(suite: ET.Element, result: CheckResult) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"veen.{result.suite}",
        name=f"{result.check.name} ({result.check.clause})",
        time=f"{result.seconds:.3f}",
    )
    if result.outcome is CheckOutcome.FAILED:
        failure = ET.SubElement(case, "failure", type=result.check.clause, message=_printable(result.why))
        failure.text = result.check.statement
    elif result.outcome is CheckOutcome.SKIPPED:
        ET.SubElement(case, "skipped", message=_printable(result.why))


def _printable(text: str) -> str:
    """Replace control characters, which XML cannot represent."""
    return "".join(c if c.isprintable() else " " for c in text)


def line(result: CheckResult) -> str:
    """Return one result as a line for people, with the reason on a second line."""
    check = result.check
    text = f"{MARKS[result.outcome]:<4}  {check.name:<32}  {check.clause:<18}  {check.statement}"
    return f"{text}\n      {result.why}" if result.why else text


def table(figures: list[Figure]) -> Iterator[str]:
    """Yield each figure as two lines: name, value and target; then what was measured."""
    for figure in figures:
        value = (
            f"{figure.value:,.3f}".rstrip("0").rstrip(".") if figure.value < 1_000 else f"{figure.value:,.0f}"
        )
        met = "" if figure.ok else "  MISSED"
        yield f"{figure.name:<20}  {value:>12} {figure.unit:<11}  {figure.target:<14}{met}"
        yield f"{'':<20}  {figure.about}"


def summary(report: RunReport) -> str:
    """Return the counts of a run in one line."""
    counts = ", ".join(f"{report.count(outcome)} {outcome.value}" for outcome in CheckOutcome)
    text = f"{counts} in {report.seconds:.1f} s against {report.hub} (seed {report.seed})"
    if report.interrupted:
        return f"interrupted: {text}"
    if not report.count(CheckOutcome.PASSED) and not report.count(CheckOutcome.FAILED):
        return f"nothing was tested: {text}"
    return text
