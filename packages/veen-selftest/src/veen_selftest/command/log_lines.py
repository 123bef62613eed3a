"""Results as log lines of a container: one JSON object each, with the fields that spec-4 10.3 names."""

from __future__ import annotations

import logging
import os
from typing import Any

from veen_hub.ops.logs import JsonLines
from veen_selftest.runner.suite import CheckOutcome, CheckResult, RunReport


class ResultLines:
    """Formats results; role and tenant are those that the pod's environment names."""

    def __init__(self) -> None:
        tenant = os.environ.get("VEEN_TENANT_ID")
        always = {"component": "selftest", "role": os.environ.get("VEEN_ROLE", "selftest")}
        self._formatter = JsonLines(**always, **({"tenant_id": tenant} if tenant else {}))

    def result(self, result: CheckResult) -> str:
        """Return the line of one check."""
        failed = result.outcome is CheckOutcome.FAILED
        return self._line(
            logging.ERROR if failed else logging.INFO,
            f"check_{result.outcome.value}",
            suite=result.suite,
            check=result.check.name,
            clause=result.check.clause,
            says=result.check.statement,
            seconds=round(result.seconds, 3),
            **({"why": result.why} if result.why else {}),
        )

    def finished(self, report: RunReport) -> str:
        """Return the last line of a run."""
        return self._line(
            logging.INFO if report.ok else logging.ERROR,
            "selftest_finished",
            ok=report.ok,
            **{outcome.value: report.count(outcome) for outcome in CheckOutcome},
            seconds=round(report.seconds, 3),
            hub=report.hub,
            seed=report.seed,
            interrupted=report.interrupted,
        )

    def _line(self, level: int, event: str, **fields: Any) -> str:
        record = logging.LogRecord("veen.selftest", level, "", 0, event, (), None)
        record.fields = fields
        return self._formatter.format(record)
