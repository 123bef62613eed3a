"""The benchmark runs and prints every figure under its name; speed is not tested here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parents[1] / "benchmarks" / "run.py"


def test_every_figure_is_printed_under_its_name(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, RUN, "--tiny", "--directory", tmp_path], capture_output=True, text=True, check=False
    )
    assert not ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [line["name"] for line in lines] == ["cli.send_ms", "cli.version_ms"]
    assert all(set(line) == {"name", "value", "target", "ok"} and line["value"] > 0 for line in lines)
