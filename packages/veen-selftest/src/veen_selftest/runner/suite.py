"""Suites: what is checked under which name, and the run that goes through them."""

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
from veen_selftest.hubs.fleet import Fleet
from veen_selftest.runner.check import Check, Skip, Violation
from veen_selftest.runner.context import Bench, Effort, Figure

SUITES: Final = {
    "core": "conformance: scenarios, invariants, the admission table, proofs, checkpoints, tokens, keys",
    "props": "properties of MMR and codec over the wire, drawn from the seed",
    "fuzz": "malformed requests, drawn from the seed: an envelope each, and the next user is served",
    "crash": "kill -9 with a ledger of what was acknowledged",
    "perf": "the figures, beside the crypto floor measured in the same run",
}
"""Each is the package ``veen_selftest.<name>`` with its ``CHECKS``."""


def checks_of(suite: str) -> tuple[Check, ...]:
    checks: tuple[Check, ...] = import_module(f"veen_selftest.{suite}").CHECKS
    return checks


def chosen(suites: Iterable[str], only: Sequence[str] = ()) -> Iterator[tuple[str, Check]]:
    """In order; ``only`` are names, or patterns with ``*``, of which one must fit."""
    for suite in suites:
        for check in checks_of(suite):
            if not only or any(fnmatchcase(check.name, pattern) for pattern in only):
                yield suite, check


class Outcome(enum.StrEnum):
    """Only the first is a pass."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one check ended."""

    suite: str
    check: Check
    outcome: Outcome
    seconds: float
    why: str = ""
    figures: tuple[Figure, ...] = ()


@dataclass(slots=True, kw_only=True)
class Report:
    """A run, as far as it came."""

    hub: str
    seed: int
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def count(self, outcome: Outcome) -> int:
        return sum(result.outcome is outcome for result in self.results)

    @property
    def ok(self) -> bool:
        """Nothing failed, and no less was judged than skipped: what was skipped shows nothing."""
        judged = self.count(Outcome.PASSED) > 0 and not self.too_little
        return judged and not self.count(Outcome.FAILED) and not self.interrupted

    @property
    def too_little(self) -> bool:
        """Some passed, and more were skipped: that is no verdict on a hub."""
        return 0 < self.count(Outcome.PASSED) < self.count(Outcome.SKIPPED)

    @property
    def figures(self) -> list[Figure]:
        return [figure for result in self.results for figure in result.figures]


def judge(suite: str, check: Check, bench: Bench) -> Result:
    """Run one check; whatever it raises is an outcome."""
    started = time.monotonic()
    outcome, why = Outcome.FAILED, ""
    try:
        check.run(bench)
        outcome = Outcome.PASSED
    except Skip as exc:
        outcome, why = Outcome.SKIPPED, str(exc)
    except (Violation, VeenError) as exc:
        why = str(exc)
    except (OSError, EOFError, http.client.HTTPException) as exc:
        why = f"no answer: {type(exc).__name__} {exc}".strip()
    except Exception as exc:  # noqa: BLE001 - a check that breaks has not passed
        last = traceback.extract_tb(exc.__traceback__)[-1]
        why = f"the check broke: {type(exc).__name__} {exc} ({last.name}, line {last.lineno})"
    return Result(
        suite=suite,
        check=check,
        outcome=outcome,
        seconds=time.monotonic() - started,
        why=why,
        figures=tuple(bench.figures),
    )


def run(
    todo: Sequence[tuple[str, Check]],
    fleet: Fleet,
    seed: int,
    effort: Effort,
    tell: Callable[[Result | tuple[Check, int, int]], None],
) -> Report:
    """All of them in order; Ctrl-C ends it, and the report says so."""
    report = Report(hub=fleet.describe(), seed=seed)
    started = time.monotonic()
    try:
        for suite, check in todo:
            tell((check, 0, 0))
            bench = Bench(
                fleet=fleet,
                name=check.name,
                seed=seed,
                effort=effort,
                progress=lambda done, of, check=check: tell((check, done, of)),  # type: ignore[misc]
            )
            report.results.append(judge(suite, check, bench))
            tell(report.results[-1])
    except KeyboardInterrupt:
        report.interrupted = True
    report.seconds = time.monotonic() - started
    return report
