"""Stage timers: every function of the tables exists, times add up, and nothing is timed unless asked for."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from veen_core.errors import ConfigError
from veen_hub.ops.stage_timers import (
    HELPER_TIMERS,
    HUB_TIMERS,
    VARIABLE,
    Calls,
    StageTimers,
    Timer,
    start_if_asked,
)

from .serving import until

INSTALL = """
import sys, threading
from veen_hub.ops.stage_timers import start_if_asked
import {module} as module
before = module.{function}
start_if_asked({process!r})
print(module.{function} is before, sum(thread.name == "veen-stage-times" for thread in threading.enumerate()))
"""


def install(process: str, target: str, **environment: str) -> list[str]:
    module, _, function = target.partition(":")
    code = INSTALL.format(module=module, function=function, process=process)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if name != VARIABLE} | environment,
    )
    return done.stdout.split()


def busy(milliseconds: float) -> None:
    end = time.thread_time() + milliseconds / 1_000
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize("timer", [*HUB_TIMERS, *HELPER_TIMERS], ids=lambda timer: timer.target)
def test_every_timed_function_exists(timer: Timer) -> None:
    module, _, path = timer.target.partition(":")
    found = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    assert callable(found)


@pytest.mark.parametrize("timers", [HUB_TIMERS, HELPER_TIMERS], ids=["hub", "helper"])
def test_names_of_timers_are_unique(timers: tuple[Timer, ...]) -> None:
    assert len({timer.name for timer in timers}) == len(timers)


@pytest.mark.parametrize("process", ["hub", "helper"])
def test_nothing_is_timed_unless_the_environment_asks(process: str) -> None:
    assert install(process, "veen_hub.admission.stateless:examine") == ["True", "0"]


@pytest.mark.parametrize("process", ["hub", "helper"])
def test_a_function_is_timed_where_it_was_imported_too(process: str, tmp_path: Path) -> None:
    there = {VARIABLE: str(tmp_path)}
    assert install(process, "veen_hub.admission.stateless:examine", **there) == ["False", "1"]
    assert install(process, "veen_hub.pipeline.examiner:examine", **there) == ["False", "1"]


def test_a_missing_folder_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="is no folder"):
        start_if_asked("hub")


def test_a_call_is_counted_below_its_callers_with_both_clocks(tmp_path: Path) -> None:
    timers = StageTimers("hub", tmp_path, ())
    inner = timers.timed("inner", lambda: time.sleep(0.02))

    def work() -> None:
        busy(10)
        inner()

    outer = timers.timed("outer", work)
    outer()
    inner()
    (tree,) = [thread.root for thread in timers._threads.values()]
    below = tree.callees["outer"].callees["inner"]
    assert (tree.callees["outer"].count, below.count, tree.callees["inner"].count) == (1, 1, 1)
    assert tree.callees["outer"].cpu >= 10e6
    assert tree.callees["outer"].wall >= 30e6
    assert below.wall >= 20e6 > below.cpu


def test_an_exception_passes_and_ends_the_call(tmp_path: Path) -> None:
    timers = StageTimers("hub", tmp_path, ())

    def fail() -> None:
        raise KeyError("as before")

    for _ in range(2):
        with pytest.raises(KeyError, match="as before"):
            timers.timed("fail", fail)()
    (thread,) = timers._threads.values()
    assert thread.current is thread.root
    assert list(thread.root.callees) == ["fail"]
    assert thread.root.callees["fail"].count == 2


def test_threads_have_trees_of_their_own(tmp_path: Path) -> None:
    timers = StageTimers("hub", tmp_path, ())
    work = timers.timed("work", lambda: busy(1))
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = [thread.root.callees["work"].count for thread in timers._threads.values()]
    assert sum(counts) == 3  # an ident may be used again by a later thread


def test_a_request_is_answered_with_the_trees(tmp_path: Path) -> None:
    timers = StageTimers("helper", tmp_path, HELPER_TIMERS)
    timers._inside_ns, timers._outside_ns = timers._own_cost()
    timers.timed("SigningKey.sign", lambda: busy(1))()
    timers.serve()
    (pipe,) = tmp_path.glob("*.requests")
    answer = pipe.with_suffix(".json")
    for request in ("first", "second"):
        pipe.write_text(request, encoding="ascii")
        until(lambda request=request: request in (answer.read_text() if answer.exists() else ""), "an answer")  # type: ignore[misc]
    found = json.loads(answer.read_text())
    assert found["stages"]["SigningKey.sign"] == ["sign", False]
    mine = next(thread for thread in found["threads"] if thread["id"] == threading.get_native_id())
    assert mine["calls"]["SigningKey.sign"]["count"] == 1
    assert mine["cpu_ns"] >= mine["calls"]["SigningKey.sign"]["cpu_ns"] >= 1e6
    assert 0 < found["inside_ns"] < found["outside_ns"] + 1e5
    assert Calls().as_object()["callees"] == {}
