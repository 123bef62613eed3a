"""Every check of the suite ``query`` can fail: for each there is a faulty service that it catches."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from veen_selftest.hubs.fleet import OwnFleet
from veen_selftest.query import site
from veen_selftest.runner.suite import CheckOutcome, checks_of

from .conftest import run_check
from .faulty_query import FAULTS

CAUGHT_BY = {
    "alters a value": ["query.verifies", "query.zones.wrap", "query.zones.reseal"],
    "repeats a row on every page": ["query.pages"],
    "answers 500 to a wrong descriptor": ["query.errors"],
    "lets every principal query every stream": ["query.errors"],
    "shows results to every principal": ["query.own-results"],
    "completes a result whose digest it did not record": ["query.recorded"],
    "audits no access": ["query.audited"],
    "forgets its jobs at every start": ["query.kills"],
}
CASES = [(fault, check) for fault, checks in CAUGHT_BY.items() for check in checks]
PROGRAM = Path(__file__).parent / "faulty_query.py"


@pytest.mark.parametrize(("fault", "check"), CASES, ids=[f"{f} - {c}" for f, c in CASES])
def test_the_check_catches_the_fault(
    healthy: OwnFleet, monkeypatch: pytest.MonkeyPatch, fault: str, check: str
) -> None:
    monkeypatch.setattr(site, "PROGRAM", (sys.executable, str(PROGRAM), fault))
    result = run_check(check, healthy)
    assert result.outcome is CheckOutcome.FAILED, (
        f"{check} did not notice a service that {fault}: {result.why}"
    )
    for words in ("the check crashed", "did not start"):
        assert words not in result.why


def test_every_check_has_a_fault_and_every_fault_a_check() -> None:
    assert {check for _fault, check in CASES} == {check.name for check in checks_of("query")}
    assert set(FAULTS) == set(CAUGHT_BY)
