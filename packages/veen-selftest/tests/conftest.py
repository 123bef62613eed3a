"""Fleets for the tests: the real hub, and one whose faults can be switched while it runs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from veen_selftest.hubs.fleet import Fleet, OwnFleet
from veen_selftest.hubs.own_hub import OwnHub
from veen_selftest.runner.check import Check
from veen_selftest.runner.context import CheckContext, RunOptions
from veen_selftest.runner.hub_setup import FAST_EPOCHS, HUB_LOG, PLAIN, ROTATING, STRICT, HubSetup
from veen_selftest.runner.suite import SUITES, CheckResult, chosen
from veen_selftest.runner.suite import run_check as run_one

settings.register_profile("veen", deadline=None)  # a busy machine is no failure
settings.load_profile("veen")

FAULTY_HUB = Path(__file__).parent / "faulty_hub.py"
FAULTY_VEEN = Path(__file__).parent / "faulty_veen.py"
LITTLE = RunOptions(fuzz_requests=150, crash_rounds=2, history=2_000)
IMPATIENT = replace(LITTLE, max_wait=0, replica_wait=1)
SHOWN_BY_SILENCE = {
    "drops a label from the hub log",
    "is late with its hub checkpoints",
    "serves no cosignature",
    "renews no cosignature",
    "asks no memory",
    "forgets what its primary sends",
}
"""Faults that show only in what does not happen: waiting longer shows no more."""
SEEDS = itertools.count(1_000)
"""Another for every check that is run, so that two runs on one hub do not meet."""
ALL: dict[str, tuple[str, Check]] = {check.name: (suite, check) for suite, check in chosen(SUITES)}


def run_check(name: str, fleet: Fleet, options: RunOptions = LITTLE) -> CheckResult:
    suite, check = ALL[name]
    return run_one(suite, check, CheckContext(fleet=fleet, name=name, seed=next(SEEDS), options=options))


class FaultyFleet(OwnFleet):
    """Hubs, and a `veen` command, whose fault is chosen by ``fault``; without one they are healthy."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.fault = ""
        flag = f"--fault-file={file}"
        veen = [sys.executable, str(FAULTY_VEEN), flag]
        super().__init__(b"faulty", [sys.executable, str(FAULTY_HUB), flag], veen=veen)
        self._new_hubs: list[OwnHub] = []

    def own_hub(self, setup: HubSetup) -> OwnHub:
        """Return a new hub; for ``HUB_LOG`` a copy of one of two in turn, since making a hub takes 0.6 s."""
        if setup is not HUB_LOG:
            return super().own_hub(setup)
        if not self._new_hubs:
            self._new_hubs = [super(FaultyFleet, self).own_hub(setup) for _ in range(2)]
        self._new_hubs.reverse()
        return self.restore(self._new_hubs[0], setup)

    @property
    def fault(self) -> str:
        return self._file.read_text(encoding="utf-8")

    @fault.setter
    def fault(self, name: str) -> None:
        self._file.write_text(name, encoding="utf-8")


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyFleet]:
    fleet = FaultyFleet(tmp_path_factory.mktemp("fault") / "name")
    try:
        for setup in (PLAIN, ROTATING, FAST_EPOCHS, STRICT):
            fleet.hub(setup)  # a hub that does not even start shows nothing about checks
        yield fleet
    finally:
        fleet.close()


@pytest.fixture(scope="session")
def healthy() -> Iterator[OwnFleet]:
    fleet = OwnFleet(b"healthy")
    yield fleet
    fleet.close()


@pytest.fixture
def with_fault(faulty: FaultyFleet) -> Iterator[Callable[[str, str], CheckResult]]:
    """``with_fault(fault, check)``: how the check ends against a hub with that fault."""

    def judged(fault: str, name: str) -> CheckResult:
        faulty.fault = fault
        options = IMPATIENT if fault in SHOWN_BY_SILENCE else LITTLE
        try:
            return run_check(name, faulty, options)
        finally:
            faulty.fault = ""

    yield judged
    faulty.fault = ""


def processes_with(word: str) -> list[int]:
    """Return the processes whose command line contains ``word``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            content = path.read_bytes()
        except OSError:
            continue  # gone meanwhile
        if word.encode() in content:
            found.append(int(path.parent.name))
    return found
