"""The hub as it is: every check passes, but for those that say why they cannot be made here."""

from __future__ import annotations

import pytest

from veen_selftest.fleet import OwnFleet
from veen_selftest.suite import Outcome, checks_of, chosen, run

from .conftest import LITTLE

SKIPPED_HERE = {"epoch.roll": "--patience"}
"""On a hub of the run's own, with the usual patience; and a word of the reason."""


@pytest.mark.parametrize("suite", ["core", "props", "fuzz", "crash"])
def test_the_real_hub_passes(healthy: OwnFleet, suite: str) -> None:
    report = run(list(chosen([suite])), healthy, 1, LITTLE, lambda _news: None)
    assert [(r.check.name, r.why) for r in report.results if r.outcome is Outcome.FAILED] == []
    skipped = {r.check.name: r.why for r in report.results if r.outcome is Outcome.SKIPPED}
    assert skipped.keys() <= SKIPPED_HERE.keys()
    assert all(SKIPPED_HERE[name] in why for name, why in skipped.items())
    assert report.ok
    assert len(report.results) == len(checks_of(suite))


@pytest.mark.parametrize("name", ["hub.read", "hub.follow_p99_ms", "hub.growth"])
def test_a_figure_is_measured_and_says_what_it_was_measured_on(healthy: OwnFleet, name: str) -> None:
    """Whether it reaches its target is the machine's business, not this test's."""
    report = run(list(chosen(["perf"], [name])), healthy, 2, LITTLE, lambda _news: None)
    (figure,) = report.figures
    assert figure.name == name
    assert figure.value > 0
    assert figure.about
    assert report.ok is figure.ok
