"""Kill an operation runner at every step: each operation has one effect and one result (spec-3 2.5, P2)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from .conftest import Town
from .running import MAX_SECONDS

STEPS: Final = {
    1: "before the claim",
    2: "after the claim",
    3: "before the effect",
    4: "after the effect",
    5: "before the result",
    6: "after the result",
}
SHOWN: Final = STEPS if os.environ.get("VEEN_THOROUGH") else (2, 4, 6)
LEDGER: Final = "paid-kills"


def run_victim(town: Town, effects: Path, step: int) -> int:
    where = (town.url, town.hub_id, town / "bob", town / "realm", LEDGER, effects, step)
    victim = Path(__file__).with_name("operation_victim.py")
    return subprocess.run(
        [sys.executable, victim, *map(str, where)], timeout=MAX_SECONDS, check=False
    ).returncode


@pytest.fixture(scope="module")
def wallet(square: Town) -> str:
    """A wallet with money in a stream of its own."""
    flags = ("--ledger", LEDGER, "--reader", square / "realm")
    opened = square.as_("admin", "wallet", "open", "--realm", "shop", "--currency", "EUR", *flags, "--json")
    found: str = opened.json["wallet"]
    square.as_("admin", "wallet", "deposit", found, 500, *flags).ok()
    return found


@pytest.mark.parametrize("step", SHOWN, ids=STEPS.get)
def test_a_runner_killed_at_any_step_has_one_effect(
    square: Town, wallet: str, tmp_path: Path, step: int
) -> None:
    flags = ("--type", "translate", "--currency", "EUR", "-s", LEDGER, "--reader", square / "realm")
    paid = square.as_("admin", "pay", wallet, "ab" * 32, 7, *flags, "--json").json
    name = paid["operation_id"]
    assert run_victim(square, tmp_path, step) == -signal.SIGKILL
    assert run_victim(square, tmp_path, 0) == 0
    assert run_victim(square, tmp_path, 0) == 0
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    again = [[name, "True"]] if step in (3, 4, 5) else []
    first = [[name, str(step == 2)]]
    assert calls == first + again
    assert (tmp_path / name).exists()
    results = square.as_(
        "bob", "fold", "operation.results", LEDGER, "--reader", square / "realm", "--json"
    ).json
    ours = [row for row in results["state"] if row["operation_id"] == name]
    assert [row["outcome"] for row in ours] == ["done"]
