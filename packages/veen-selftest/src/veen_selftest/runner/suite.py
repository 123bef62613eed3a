"""The suites of checks, and a run through them."""

from __future__ import annotations

import enum
import http.client
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Final

from veen_core.errors import VeenError
from veen_hub.load import ClientRates
from veen_selftest.hubs.fleet import Fleet
from veen_selftest.runner.check import Check, ClauseViolation, Skip
from veen_selftest.runner.context import CheckContext, Figure, RunOptions
from veen_selftest.runner.load_profile import HubProfile

SUITES: Final = {
    "core": "conformance: scenarios, invariants, admission table, proofs, checkpoints, tokens, keys",
    "props": "properties of the MMR and the codec, tested with random input from the seed",
    "fuzz": "random malformed requests: each gets an error envelope, and the next user is served",
    "crash": "kill -9: every acknowledged message is still there, once",
    "trust": "the hub log, its witnesses and memories: one history for all clients, which only grows",
    "authority": "the admin streams of a realm: published by the admin, folded by every reader",
    "bridge": "two zones: export, import and reconciliation; every event once, and none flows back",
    "recorder": "recorder events, checkpoints and replays: in order, complete, and attributed",
    "dr": "replica and cutover: a planned cutover loses nothing, an unplanned one names every loss",
    "query": "a query service: answers verify, records, restarts, the same digest in two zones",
    "overlays": "calls, directories, paid operations and wallets through the hub",
    "goals": "from end to end: pipeline and proof, audit anchor, cutover, tenants that come and go",
    "perf": "throughput, latency and memory, compared with the crypto floor of the same run",
}
"""Each suite is the package ``veen_selftest.<name>`` with its ``CHECKS``."""


def checks_of(suite: str) -> tuple[Check, ...]:
    checks: tuple[Check, ...] = import_module(f"veen_selftest.{suite}").CHECKS
    return checks


def profile_of(suite: str) -> list[tuple[str, Check]]:
    """Return the checks that profile a hub, which are not part of the suite's ``CHECKS``."""
    checks: tuple[Check, ...] = import_module(f"veen_selftest.{suite}").PROFILE
    return [(suite, check) for check in checks]


def chosen(suites: Iterable[str], only: Sequence[str] = ()) -> Iterator[tuple[str, Check]]:
    """Yield the checks of these suites, in order, whose name matches one of the patterns ``only``."""
    for suite in suites:
        for check in checks_of(suite):
            if not only or any(fnmatchcase(check.name, pattern) for pattern in only):
                yield suite, check


class CheckOutcome(enum.StrEnum):
    """The ways in which a check can end; only PASSED is a pass."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    suite: str
    check: Check
    outcome: CheckOutcome
    seconds: float
    why: str = ""
    figures: tuple[Figure, ...] = ()
    clients: tuple[ClientRates, ...] = ()
    profiles: tuple[HubProfile, ...] = ()


@dataclass(slots=True, kw_only=True)
class RunReport:
    """The results of a run, complete or interrupted."""

    hub: str
    seed: int
    results: list[CheckResult] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def count(self, outcome: CheckOutcome) -> int:
        return sum(result.outcome is outcome for result in self.results)

    @property
    def ok(self) -> bool:
        """Whether no check failed, at least one passed, and no more were skipped than passed."""
        conclusive = self.count(CheckOutcome.PASSED) > 0 and not self.inconclusive
        return conclusive and not self.count(CheckOutcome.FAILED) and not self.interrupted

    @property
    def inconclusive(self) -> bool:
        """Whether more checks were skipped than passed, so that the run says too little about the hub."""
        return 0 < self.count(CheckOutcome.PASSED) < self.count(CheckOutcome.SKIPPED)

    @property
    def figures(self) -> list[Figure]:
        return [figure for result in self.results for figure in result.figures]

    @property
    def clients(self) -> list[ClientRates]:
        return [rates for result in self.results for rates in result.clients]

    @property
    def profiles(self) -> list[HubProfile]:
        return [profile for result in self.results for profile in result.profiles]


def run_check(suite: str, check: Check, context: CheckContext) -> CheckResult:
    """Run one check; an exception that it raises becomes its outcome."""
    started = time.monotonic()
    outcome, why = CheckOutcome.FAILED, ""
    try:
        check.run(context)
        outcome = CheckOutcome.PASSED
    except Skip as exc:
        outcome, why = CheckOutcome.SKIPPED, str(exc)
    except (ClauseViolation, VeenError) as exc:
        why = str(exc)
    except (OSError, EOFError, http.client.HTTPException) as exc:
        why = f"no answer from the hub: {type(exc).__name__} {exc}".strip()
    except Exception as exc:  # noqa: BLE001 - a check that crashes has not passed
        last = traceback.extract_tb(exc.__traceback__)[-1]
        why = f"the check crashed: {type(exc).__name__} {exc} ({last.name}, line {last.lineno})"
    return CheckResult(
        suite=suite,
        check=check,
        outcome=outcome,
        seconds=time.monotonic() - started,
        why=why,
        figures=tuple(context.figures),
        clients=tuple(context.clients),
        profiles=tuple(context.profiles),
    )


def run(
    todo: Sequence[tuple[str, Check]],
    fleet: Fleet,
    seed: int,
    options: RunOptions,
    on_event: Callable[[CheckResult | tuple[Check, int, int]], None],
) -> RunReport:
    """Run the checks in order; Ctrl-C ends the run, and the report says so."""
    report = RunReport(hub=fleet.describe(), seed=seed)
    started = time.monotonic()
    try:
        for suite, check in todo:
            on_event((check, 0, 0))
            context = CheckContext(
                fleet=fleet,
                name=check.name,
                seed=seed,
                options=options,
                progress=lambda done, of, check=check: on_event((check, done, of)),  # type: ignore[misc]
            )
            report.results.append(run_check(suite, check, context))
            on_event(report.results[-1])
    except KeyboardInterrupt:
        report.interrupted = True
    report.seconds = time.monotonic() - started
    return report
