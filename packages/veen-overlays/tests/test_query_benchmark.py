"""The benchmark of the query view runs, and prints every figure under its name; its speed is not checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parents[1] / "benchmarks" / "query_view.py"


def test_every_figure_is_printed_under_its_name() -> None:
    ran = subprocess.run([sys.executable, RUN, "--tiny"], capture_output=True, text=True, check=False)
    assert not ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    names = ["query.latency_growth", "query.latency_growth_one_day", "query.scan"]
    assert [line["name"] for line in lines] == names
    assert all(line["value"] > 0 for line in lines)
