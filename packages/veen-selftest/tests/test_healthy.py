"""The real hub passes every check, with hubs that the selftest starts."""

from __future__ import annotations

import dataclasses
import re

import pytest

from veen_hub.load import LoadSizes, table
from veen_selftest.hubs.fleet import OwnFleet
from veen_selftest.perf import figures
from veen_selftest.runner.context import RunOptions
from veen_selftest.runner.report import as_object
from veen_selftest.runner.suite import CheckOutcome, checks_of, chosen, run

from .conftest import LITTLE


@pytest.mark.parametrize("suite", ["core", "props", "fuzz", "crash", "authority"])
def test_the_real_hub_passes(healthy: OwnFleet, suite: str) -> None:
    report = run(list(chosen([suite])), healthy, 1, LITTLE, lambda _event: None)
    assert [(r.check.name, r.why) for r in report.results if r.outcome is not CheckOutcome.PASSED] == []
    assert report.ok
    assert len(report.results) == len(checks_of(suite))


def test_the_real_hub_and_its_witness_pass(healthy: OwnFleet) -> None:
    """But for checks that start further processes, which ``test_faults`` runs without a fault."""
    slow = {"hub-log.restart", "hub-log.kills", "memory.witness", "memory.heads-file"}
    todo = [(suite, check) for suite, check in chosen(["trust"]) if check.name not in slow]
    report = run(todo, healthy, 1, LITTLE, lambda _event: None)
    assert [(r.check.name, r.why) for r in report.results if r.outcome is not CheckOutcome.PASSED] == []
    assert len(report.results) == len(checks_of("trust")) - len(slow)


@pytest.mark.parametrize(
    ("suite", "name"),
    [("bridge", "bridge.one-way"), ("dr", "dr.replica"), ("recorder", "recorder.isolation")],
)
def test_the_real_hub_and_the_real_veen_command_pass(healthy: OwnFleet, suite: str, name: str) -> None:
    """One check of each suite that runs `veen`; ``test_faults`` runs all of them without a fault."""
    report = run(list(chosen([suite], [name])), healthy, 1, LITTLE, lambda _event: None)
    assert [(r.check.name, r.outcome, r.why) for r in report.results] == [(name, CheckOutcome.PASSED, "")]


def test_a_query_service_on_a_real_hub_passes(healthy: OwnFleet) -> None:
    report = run(list(chosen(["query"])), healthy, 1, LITTLE, lambda _event: None)
    assert [(r.check.name, r.why) for r in report.results if r.outcome is not CheckOutcome.PASSED] == []
    assert len(report.results) == len(checks_of("query"))


@pytest.mark.parametrize("name", ["hub.read", "hub.follow_p99_ms", "hub.growth"])
def test_a_figure_is_measured_and_says_what_it_was_measured_on(healthy: OwnFleet, name: str) -> None:
    """Whether it reaches its target is the machine's business, not this test's."""
    report = run(list(chosen(["perf"], [name])), healthy, 2, LITTLE, lambda _event: None)
    (figure,) = report.figures
    assert figure.name == name
    assert figure.value > 0
    assert figure.about
    assert report.ok is figure.ok


def test_a_figure_relative_to_the_floor_shows_the_floor(healthy: OwnFleet) -> None:
    report = run(
        list(chosen(["perf"], ["hub.single"])), healthy, 3, RunOptions(quick=True), lambda _event: None
    )
    (figure,) = report.figures
    rate, floor = (float(number.replace(",", "")) for number in re.findall(r"([\d,]+)/s", figure.about))
    assert figure.value == pytest.approx(rate / floor, rel=0.5), "medians of their own, of the same rounds"


def test_three_clients_are_measured_and_each_has_its_name(
    healthy: OwnFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = LoadSizes(one_by_one=2, per_sender=1, batches=32, senders=16, rounds=1)
    monkeypatch.setattr(figures, "QUICK", dataclasses.replace(figures.QUICK, clients=few))
    report = run(list(chosen(["perf"], ["hub.clients"])), healthy, 4, LITTLE, lambda _event: None)
    assert report.ok
    rows = as_object(report)["clients"]
    names = ["client that ships (veen_hub.client)", "plain HTTP client (aiohttp)", "raw generator"]
    assert [row["client"] for row in rows] == names
    assert all(row[name] > 0 for row in rows for name in ("one_by_one", "in_flight", "batches", "reading"))
    heading, *lines = table(report.clients)
    assert heading.split("  ")[0] == "messages/s"
    assert [line.partition("  ")[0] for line in lines[: len(names)]] == names
