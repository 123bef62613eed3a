"""``veen spark …`` run in the tests' own process, with the exit code and output of a real one."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path

from veen_cli.frame import run_command
from veen_spark.commands import spark


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a command."""

    exit_code: int
    stdout: str
    stderr: str


def run(*args: str | Path) -> Result:
    """Run one command."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = run_command(spark, [str(arg) for arg in args], name="veen spark")
    return Result(code, stdout.getvalue(), stderr.getvalue())
