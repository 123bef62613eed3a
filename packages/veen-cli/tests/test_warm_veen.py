"""A ``veen`` that a shell starts warm is what a cold one is (``veen_testing.warm_veen``)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from veen_testing.warm_veen import warm_program

PROGRAM = """\
#!{python}
import json, os, signal, sys
if sys.argv[1:] == ["wait"]:
    print(os.getpid(), flush=True)
    signal.pause()
umask = os.umask(0)
os.umask(umask)
print(json.dumps({{
    "argv": sys.argv,
    "name": __name__,
    "path": sys.path,
    "folder": os.getcwd(),
    "environment": {{name: value for name, value in os.environ.items() if name != "_"}},
    "umask": umask,
    "stdin": sys.stdin.read(),
    "descriptors": len(os.listdir("/proc/self/fd")),
    "threads": len(os.listdir("/proc/self/task")),
    "signals": {{str(n): str(signal.getsignal(n)) for n in signal.valid_signals() if n not in (9, 19)}},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "streams": [[each.seekable(), each.encoding, each.errors] for each in (sys.stdin, sys.stdout)],
}}))
print("to stderr", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Return the program, and its shim; the first start, which is cold, has been made."""
    program = tmp_path / "program"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    (tmp_path / "server").mkdir()
    with warm_program(program, tmp_path / "server", "veen_cli.frame") as folder:
        assert started(folder / "program").returncode == 7
        yield program, folder / "program"


def started(program: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    env = {"VEEN_X": "a\nb", "PATH": os.environ["PATH"], **more}
    line = f"umask 027; trap '' HUP; {program} {' '.join(words)}"
    return subprocess.run(
        ["bash", "-c", line], env=env, input="given", capture_output=True, text=True, check=False
    )


def test_a_warm_command_has_what_a_cold_one_has(programs: tuple[Path, Path]) -> None:
    program, shim = programs
    cold = started(program, "one", "''")
    assert (cold.returncode, cold.stderr) == (7, "to stderr\n")
    for _ in range(20):  # one of them is cold
        warm = started(shim, "one", "''")
        assert (warm.returncode, warm.stderr) == (7, "to stderr\n")
        assert json.loads(warm.stdout) == json.loads(cold.stdout)


def test_another_setting_of_the_interpreter_is_obeyed(programs: tuple[Path, Path], tmp_path: Path) -> None:
    found = json.loads(started(programs[1], PYTHONPATH=str(tmp_path)).stdout)
    assert str(tmp_path) in found["path"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGKILL])
def test_signals_reach_a_warm_command(programs: tuple[Path, Path], number: signal.Signals) -> None:
    with subprocess.Popen(
        [programs[1], "wait"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as shim:
        assert shim.stdout is not None
        assert int(shim.stdout.readline()) != shim.pid
        shim.send_signal(number)
        expected = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGUSR1: 138, signal.SIGKILL: -9}
        assert shim.wait(60) == expected[number]
        assert shim.stdout.read() == ""  # at the end: the command, which held the pipe, has ended too
