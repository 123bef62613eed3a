"""``veen selftest perf --profile``: the rows add up to what the kernel has measured, and gaps are shown."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from veen_selftest.hubs.fleet import OwnFleet
from veen_selftest.perf.profile import measurement, stage_times
from veen_selftest.perf.profile.flame_graph import FlameGraph
from veen_selftest.perf.profile.measurement import Load, Window, load_profile, require_attributed
from veen_selftest.perf.profile.stage_times import Moment, between, cpu_ns
from veen_selftest.perf.yardstick import core_floor
from veen_selftest.runner import report as reports
from veen_selftest.runner.check import ClauseViolation
from veen_selftest.runner.context import RunOptions
from veen_selftest.runner.load_profile import table
from veen_selftest.runner.suite import CheckOutcome, RunReport, profile_of
from veen_selftest.runner.suite import run as run_all

from .test_command import run

SVG = "{http://www.w3.org/2000/svg}"
INSIDE, OUTSIDE = 100, 300
"""What a timer costs in the made times, in nanoseconds."""


def calls(count: int, cpu: int, wall: int = 0, **callees: dict[str, Any]) -> dict[str, Any]:
    named = {name.replace("__", "."): found for name, found in callees.items()}
    return {"count": count, "cpu_ns": cpu, "wall_ns": wall, "callees": named}


def written(process: str = "hub", **threads: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    return {
        "process": process,
        "start_ns": 7_000,
        "inside_ns": INSIDE,
        "outside_ns": OUTSIDE,
        "stages": {"settle": ["sequence", False], "sync": ["sync", False], "apply": ["apply", True]},
        "threads": [
            {"name": name.replace("_", "-"), "id": at, "cpu_ns": cpu, "calls": found}
            for at, (name, (cpu, found)) in enumerate(threads.items())
        ],
    }


def a_window() -> Window:
    before = written(veen_sequencer=(50_000, {"settle": calls(1, 20_000, 30_000)}), MainThread=(0, {}))
    sync = calls(4, 20_000, 400_000)
    settle = calls(5, 120_000, 600_000, sync=sync)
    after = written(
        veen_sequencer=(170_000, {"settle": settle}),
        MainThread=(40_000, {"apply": calls(1, 30_000, 0, sync=calls(1, 10_000))}),
    )
    return Window(2, Moment(0.0, {1: 1e6}, {1: before}), Moment(0.001, {1: 1e6 + 200_000}, {1: after}))


def test_a_call_has_its_own_time_without_its_callees_and_timers() -> None:
    window = a_window()
    (process,) = between(window.before, window.after)
    sequencer, loop = process.threads
    own = {call.path: (call.stage, call.count, call.cpu, call.wall) for call in sequencer.calls}
    assert own == {
        ("settle",): ("sequence", 4, 100_000 - 20_000 - 4 * OUTSIDE - 4 * INSIDE, 570_000 - 400_000),
        ("settle", "sync"): ("sync", 4, 20_000 - 4 * INSIDE, 400_000),
    }
    assert sequencer.untimed == 120_000 - 100_000 - 4 * OUTSIDE, "what the thread did outside all calls"
    assert {call.path: call.stage for call in loop.calls} == {
        ("apply",): "apply",
        ("apply", "sync"): "apply",
    }
    assert process.timers == 10 * (INSIDE + OUTSIDE)
    assert process.start == 0


def test_the_start_of_a_process_that_was_not_there_before_is_known() -> None:
    window = a_window()
    window.after.written[2] = written("helper", MainThread=(9_000, {}))
    window.after.used[2] = 9_000
    _hub, helper = between(window.before, window.after)
    assert (helper.start, helper.measured) == (7_000, 9_000)


def test_the_rows_add_up_to_what_the_kernel_has_measured() -> None:
    window, graph = a_window(), FlameGraph("µs")
    graph.begin("load")
    found = load_profile("load", window, window, graph)
    assert sum(row.cpu_us for row in found.stages) == pytest.approx(found.measured.cpu_us)
    assert sum(row.wall_us for row in found.stages) == pytest.approx(found.measured.wall_us)
    assert found.measured.cpu_us == pytest.approx(100)
    assert found.measured.wall_us == pytest.approx(500)
    rest = found.stages[-1]
    sequencer_outside = 20_000 - 4 * OUTSIDE
    assert rest.hub_us == pytest.approx((sequencer_outside + 200_000 - 160_000) / 2 / 1_000), (
        "what a thread does outside all timers, and what is in no thread's account"
    )


def test_too_much_time_without_a_stage_is_a_failure() -> None:
    window, graph = a_window(), FlameGraph("µs")
    graph.begin("load")
    with pytest.raises(ClauseViolation, match=r"load: 29% of the processor time belongs to no stage"):
        require_attributed(load_profile("load", window, window, graph))


def test_a_flame_graph_is_one_file_that_loads_nothing() -> None:
    graph = FlameGraph("µs per message")
    graph.begin("one at a time")
    graph.add(("hub", "veen-sequencer", "Sequencer._settle"), "sequence", 30.0)
    graph.add(("hub", "veen-sequencer", "Sequencer._settle", "<lambda>"), "sync", 10.0)
    graph.begin("nothing")
    text = graph.svg()
    root = ET.fromstring(text)
    frames = {
        title.text or "": float(rect.attrib["width"])
        for group in root.iter(f"{SVG}g")
        for title, rect in [(group.find(f"{SVG}title"), group.find(f"{SVG}rect"))]
        if title is not None and rect is not None
    }
    inner = frames["<lambda>: 10.0 µs per message, 25.0%"]
    assert inner == pytest.approx(frames["Sequencer._settle: 40.0 µs per message, 100.0%"] / 4, abs=0.2)
    assert text.count("http") == 1, "the namespace, and no address"
    assert not {"script", "image", "use", "a", "foreignObject"} & {
        each.tag.removeprefix(SVG) for each in root.iter()
    }


def test_the_kernels_account_of_a_process_grows_with_its_work() -> None:
    before, began = cpu_ns(os.getpid()), time.process_time()
    while time.process_time() - began < 0.1:
        pass
    assert 0.05e9 <= cpu_ns(os.getpid()) - before <= 10e9
    assert cpu_ns(2**22 + 1) == 0, "no such process"


def test_the_floor_is_measured_with_one_process_per_core() -> None:
    floor = core_floor(0.1)
    assert floor.processes == len(os.sched_getaffinity(0))
    assert floor.one > 0
    assert 0 < floor.ratio <= 3 * floor.processes, "a busy machine slows either"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "FLOOR_SEC", 0.05)
    monkeypatch.setattr(measurement, "MAX_UNATTRIBUTED", 0.5)  # of tens of milliseconds, in ticks of ten
    loads = (
        Load("one at a time", lanes=1, size=1, quick=160, full=1),
        Load("batches", lanes=8, size=64, quick=4_096, full=1),
    )
    monkeypatch.setattr(measurement, "LOADS", loads)


@pytest.mark.usefixtures("small")
def test_a_real_hub_under_real_load_has_a_profile(healthy: OwnFleet, tmp_path: Path) -> None:
    svg = tmp_path / "flames.svg"
    report = run_all(profile_of("perf"), healthy, 1, RunOptions(flame_graph=svg), lambda _event: None)
    (result,) = report.results
    assert result.outcome is CheckOutcome.PASSED, result.why
    (profile,) = report.profiles
    alone, batches = profile.loads
    for load in profile.loads:
        rows = {row.stage: row for row in load.stages}
        for stage in ("HTTP", "decode", "verify", "sequence", "sign", "write", "sync", "answer"):
            assert rows[stage].cpu_us > 0, f"{load.load}: {stage}"
        assert rows["sync"].wall_us > rows["sync"].cpu_us
        assert sum(row.cpu_us for row in load.stages) == pytest.approx(load.measured.cpu_us)
        assert sum(row.wall_us for row in load.stages) == pytest.approx(load.measured.wall_us)
        assert load.measured.wall_us == pytest.approx(1e6 / load.per_second)
        assert load.plain_us > 0
    assert (alone.messages, batches.messages) == (160, 4_096)
    assert alone.measured.cpu_us > batches.measured.cpu_us
    assert ET.parse(svg).getroot().tag == f"{SVG}svg"
    first, *_rest = table(profile)
    assert first.startswith("floor: one process verifies and signs ")
    (found,) = json.loads(json.dumps(reports.as_object(report)))["profiles"]
    assert found["floor_ratio"] == round(profile.floor.ratio, 3)
    assert [load["load"] for load in found["loads"]] == ["one at a time", "batches"]
    assert found["loads"][0]["stages"][0].keys() == {"stage", "hub_us", "helpers_us", "wall_us"}


@pytest.mark.usefixtures("small")
def test_a_hub_without_timers_has_no_profile(
    healthy: OwnFleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(measurement, "TIMES_VARIABLE", "VEEN_IGNORED")
    monkeypatch.setattr(stage_times, "ANSWER_SEC", 0.5)
    options = RunOptions(flame_graph=tmp_path / "flames.svg")
    report: RunReport = run_all(profile_of("perf"), healthy, 2, options, lambda _event: None)
    (result,) = report.results
    assert result.outcome is CheckOutcome.FAILED
    assert "has not written its stage times" in result.why
    assert report.profiles == []
    assert not options.flame_graph.exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["core", "--profile"], "--profile measures one thing"),
        (["--profile"], "--profile measures one thing"),
        (["perf", "--profile", "--only=hub.batch"], "--profile measures one thing"),
        (["perf", "--flame-graph=x.svg"], "--flame-graph belongs to --profile"),
    ],
    ids=["another suite", "no suite", "one figure", "no profile"],
)
def test_options_of_a_profile_stand_with_it(arguments: list[str], why: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert why in done.stderr
