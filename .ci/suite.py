"""Run a test suite; run a few failed tests once more, one after the other.

    python .ci/suite.py PYTEST_ARGUMENT...

Suites start hundreds of processes, several tests at a time, so a deadline may pass on a busy machine. Up to
``MAX_AGAIN`` failed tests are repeated without others of their suite beside them. What passes then is printed
as unsteady and does not fail the suite. A test of crashes, kills or random input is never repeated: what it
finds once is a defect.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

MAX_AGAIN: Final = 3
NEVER_AGAIN: Final = ("crash", "kill", "fuzz", "random", "lose", "lost", "doubl")
"""Words in the names of tests that are never repeated."""
FAILED_TESTS: Final = 1
"""The exit code of pytest if tests ran and some failed."""


def run(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def failed_tests(cache: Path) -> list[str]:
    """Return the ids of the tests that failed in the last run."""
    return list(json.loads((cache / "v" / "cache" / "lastfailed").read_text()))


def main(arguments: list[str]) -> int:
    cache = Path(sys.prefix) / ".pytest_cache"
    code = run(*arguments, "-o", f"cache_dir={cache}")
    if code != FAILED_TESTS:
        return code
    failed = failed_tests(cache)
    if len(failed) > MAX_AGAIN or any(word in test.lower() for test in failed for word in NEVER_AGAIN):
        return code
    print("\nonce more, alone:", *failed, sep="\n  ", flush=True)
    settings = [argument for argument in arguments if argument.startswith("--") and "=" in argument]
    code = run(*failed, *settings, "-n", "0")
    if code == 0:
        print("\nUNSTEADY, passed only when run alone:", *failed, sep="\n  ", flush=True)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
