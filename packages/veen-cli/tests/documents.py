"""Run the commands of a page in order, in one shell, and compare their output with the page.

A ``console`` block has commands after ``$`` and, if any, lines of what they print; a line of ``…`` stands for
lines left out. Numbers, times, hashes and ports differ from run to run and count as equal.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from veen_testing.ports import free_port

from .running import MAX_SECONDS, end_hubs, environment

NOT_RUN = {
    "bin/test": "this is what runs here",
    "bin/veen spark": "the tests of veen-spark start Spark",
    ".tools/veen-spark/bin/python": "the tests of veen-spark start Spark",
    ".tools/veen/bin/python docs/generate.py": "it changes the checkout",
}
"""Beginnings of commands that are shown and not run, each with the reason."""
PORTS = ("8080", "8085", "8090", "8091")
"""Ports on the pages, each replaced by a free one."""
MARK = "=====command====="
VARIABLE = (
    (re.compile(r"\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{44}"), "+KEY"),
    (re.compile(r"(?:[0-9a-f]{8} ){3}[0-9a-f]{8}  .{16}"), "DUMP"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"/\S+"), "PATH"),
    (re.compile(r"[0-9a-f]{8,}…?"), "HEX"),
    (re.compile(r"0x[0-9a-f]{2}"), "BYTE"),
    (re.compile(r"\d+(\.\d+)?"), "N"),
    (re.compile(r"\s+"), " "),
)


@dataclass
class Step:
    """A command and the output that the page shows."""

    command: str
    shown: list[str] = field(default_factory=list)


def steps(page: Path) -> list[Step]:
    found: list[Step] = []
    pattern = re.compile(r"^( *)```(console|sh)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
    for indent, kind, block in pattern.findall(page.read_text()):
        for line in (line.removeprefix(indent) for line in block.splitlines()):
            if kind == "sh":
                found += [Step(line.partition("  #")[0].strip())] if line.strip() else []
            elif line.startswith("$ "):
                found.append(Step(line[2:]))
            else:
                found[-1].shown.append(line)
    return [step for step in found if not step.command.startswith(tuple(NOT_RUN))]


def same(text: str) -> str:
    for pattern, word in VARIABLE:
        text = pattern.sub(word, text)
    return text.strip()


def ports_of_page() -> dict[str, str]:
    """Return a free port for each of ``PORTS``; the port after it, for a hub's probes, is free too."""
    found: list[int] = []
    while len(found) < len(PORTS):
        port = free_port()
        if all(abs(port - other) > 1 for other in found):
            found.append(port)
    return dict(zip(PORTS, map(str, found), strict=True))


def _waiting(command: str) -> str:
    """Let a program that a page starts in the background begin to listen before the next command."""
    started = re.search(r">(\S+) 2>&1 &$", command)
    if started is None:
        return command
    return f"{command}\nuntil grep -q 'listening on' {started[1]}; do sleep 0.1; done"


def run(page: Path, folder: Path, programs: Path) -> list[tuple[Step, list[str]]]:
    """Run the steps of a page with the ``veen`` of ``programs``; return each with its stdout and stderr."""
    found = steps(page)
    here = {**ports_of_page(), "bin/veen": "veen", ".tools/veen/bin/python": sys.executable}
    shown = re.compile("|".join(map(re.escape, here)))
    commands = [shown.sub(lambda match: here[match[0]], step.command) for step in found]
    lines = [f"echo {MARK}\n{_waiting(command)}" for command in commands]
    own = environment(folder / ".config")
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder,
        env=own | {"PATH": f"{programs}{os.pathsep}{own['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = shell.communicate(timeout=MAX_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):  # what the page has left in the background
            os.killpg(shell.pid, signal.SIGTERM)
        shell.wait(MAX_SECONDS)
        end_hubs(folder)
    assert shell.returncode == 0, output[-3000:]
    printed = [part.splitlines()[1:] for part in output.split(MARK)[1:]]
    return list(zip(found, printed, strict=True))


def not_printed(step: Step, printed: list[str]) -> list[str]:
    """Return lines of the page that the command did not print in this order."""
    real = [same(line) for line in printed]
    missing, at = [], 0
    for line in step.shown:
        if line.strip() in ("", "…"):
            continue
        if same(line) in real[at:]:
            at = real.index(same(line), at) + 1
        else:
            missing.append(line)
    return missing
