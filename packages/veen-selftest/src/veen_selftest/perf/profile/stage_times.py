"""Reading the stage times of a hub's processes, as ``veen_hub.ops.stage_timers`` writes them.

A load's times are the difference between two moments. A function's own time is its time without that of the
timed functions that it calls, and without the cost of the timers, which is reported as a stage of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from veen_selftest.runner.check import ClauseViolation

TICKS: Final = os.sysconf("SC_CLK_TCK")
ANSWER_SEC: Final = 20.0
"""Longest time that the hub's processes may take to write their times."""
POLL_SEC: Final = 0.01


@dataclass(frozen=True, slots=True)
class Call:
    """Calls of one function below the same callers, with what they took themselves, in nanoseconds."""

    path: tuple[str, ...]
    """Names of the callers and of the function, the outermost first."""
    stage: str
    count: int
    cpu: float
    wall: float


@dataclass(frozen=True, slots=True)
class ThreadCalls:
    """One thread: its processor time in nanoseconds, and its timed calls."""

    name: str
    cpu: float
    calls: tuple[Call, ...]

    @property
    def untimed(self) -> float:
        """Processor time outside all timed calls."""
        return self.cpu - sum(call.cpu for call in self.calls)


@dataclass(frozen=True, slots=True)
class ProcessCalls:
    """One process of the hub between two moments."""

    process: str
    pid: int
    measured: float
    """Processor time by the kernel's account, in nanoseconds."""
    timers: float
    """What the timers of this process cost, in nanoseconds; the calls do not contain it."""
    start: float
    """Processor time until its timers were there, in nanoseconds; 0 if it had started before."""
    threads: tuple[ThreadCalls, ...]


@dataclass(slots=True)
class Moment:
    """What all processes of a hub have used until now."""

    at: float
    used: dict[int, float]
    """Processor time by process, in nanoseconds, by the kernel's account."""
    written: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What each process has written, if it has timers."""


def moment_of(pids: Sequence[int], folder: Path | None) -> Moment:
    """Return the present moment; ``folder``: where the processes write their stage times, if they do."""
    written = dict(_ask(pids, folder)) if folder is not None else {}
    return Moment(time.perf_counter(), {pid: cpu_ns(pid) for pid in pids}, written)


def _ask(pids: Sequence[int], folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Ask each process for its times, and yield them."""
    request, deadline = f"{time.monotonic_ns()}", time.monotonic() + ANSWER_SEC
    for pid in pids:
        asked, found = False, None
        while found is None and Path(f"/proc/{pid}").exists():  # a helper process may end
            if time.monotonic() > deadline:
                raise ClauseViolation(
                    f"process {pid} of the hub has not written its stage times within {ANSWER_SEC:.0f} s: "
                    "the profile needs veen-hub of this version"
                )
            asked = asked or any(_write(pipe, request) for pipe in folder.glob(f"*-{pid}.requests"))
            found = _answer_of(pid, folder, request)
            if found is None:
                time.sleep(POLL_SEC)
        if found is not None:
            yield pid, found


def _write(pipe: Path, request: str) -> bool:
    """Write into a process's pipe; return False if it does not read yet."""
    try:
        fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(request)
    return True


def _answer_of(pid: int, folder: Path, request: str) -> dict[str, Any] | None:
    for path in folder.glob(f"*-{pid}.json"):
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found if found["request"] == request else None
    return None


def cpu_ns(pid: int) -> float:
    """Return the processor time of a process with all threads that it ever had; 0 if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS * 1e9
    return 0.0


def between(before: Moment, after: Moment) -> Iterator[ProcessCalls]:
    """Yield what each process has done between two moments."""
    for pid, written in after.written.items():
        old = before.written.get(pid, {"threads": []})
        threads_before = {thread["id"]: thread for thread in old["threads"]}
        inside, outside = written["inside_ns"], written["outside_ns"]
        threads, total = [], 0
        for thread in written["threads"]:
            was = threads_before.get(thread["id"], {"cpu_ns": 0, "calls": {}})
            calls = tuple(_own_times(thread["calls"], was["calls"], written, ()))
            count = sum(call.count for call in calls)
            total += count
            used = thread["cpu_ns"] - was["cpu_ns"] - count * (inside + outside)
            threads.append(ThreadCalls(thread["name"], used, calls))
        yield ProcessCalls(
            written["process"],
            pid,
            after.used[pid] - before.used.get(pid, 0.0),
            total * (inside + outside),
            0.0 if pid in before.written else written["start_ns"],
            tuple(threads),
        )


def _own_times(
    calls: dict[str, Any],
    before: dict[str, Any],
    written: dict[str, Any],
    path: tuple[str, ...],
    whole: str = "",
) -> Iterator[Call]:
    """Yield every call of a tree with its own time since ``before``; ``whole``: an outer call's stage."""
    inside, outside = written["inside_ns"], written["outside_ns"]
    for name, found in calls.items():
        was = before.get(name, {"count": 0, "cpu_ns": 0, "wall_ns": 0, "callees": {}})
        stage, is_whole = written["stages"][name]
        stage = whole or stage
        count, cpu, wall = (found[key] - was[key] for key in ("count", "cpu_ns", "wall_ns"))
        for callee, its in found["callees"].items():
            its_was = was["callees"].get(callee, {"count": 0, "cpu_ns": 0, "wall_ns": 0})
            cpu -= its["cpu_ns"] - its_was["cpu_ns"] + (its["count"] - its_was["count"]) * outside
            wall -= its["wall_ns"] - its_was["wall_ns"]
        if count:
            yield Call((*path, name), stage, count, cpu - count * inside, wall)
        yield from _own_times(
            found["callees"], was["callees"], written, (*path, name), stage if is_whole else whole
        )
