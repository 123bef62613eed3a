"""Stage timers, for ``veen selftest perf --profile``: time and processor time of the stages of a submit.

Off unless ``VEEN_STAGE_TIMES`` names a folder: then nothing here has run, and no code of the hub is changed.
If it does, the methods in ``HUB_TIMERS`` (in a helper process, ``HELPER_TIMERS``) are replaced by timed ones
at the start. Each thread keeps a tree of the timed calls, with what they took on the clocks of that thread's
processor time and of elapsed time.

Two kinds of sampling were tried before. A thread that samples the others sees them where they release
the interpreter lock, mostly in cryptography and in waits, so its shares are wrong. ``faulthandler`` in a
signal handler sees them anywhere, and the hub died in two of fourteen runs (ADR 0009).

Each process makes a named pipe ``PROCESS-PID.requests``. The text that a reader of the times writes there
comes back, with the trees, in ``PROCESS-PID.json``. The trees name places in the program and contain no data.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from threading import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import Any, Final, Literal, NamedTuple

from veen_core.errors import ConfigError

VARIABLE: Final = "VEEN_STAGE_TIMES"
CALIBRATIONS: Final = 5
CALIBRATION_CALLS: Final = 2_000
PER_THREAD_SCHED_CLOCK: Final = 6
"""``CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`` of the kernel."""


class Timer(NamedTuple):
    """One timed function of a stage: ``module:Class.method`` or ``module:function``."""

    stage: str
    target: str
    whole: bool = False
    """Everything that the function calls belongs to its stage too."""

    @property
    def name(self) -> str:
        return self.target.rpartition(":")[2]


HUB_TIMERS: Final = (
    Timer("HTTP", "veen_hub.http.connections:Connection.data_received"),
    Timer("decode", "veen_hub.api.submit:SubmitCall._unwrap"),
    Timer("hand over", "veen_hub.pipeline.intake:Intake.enter"),
    Timer("hand over", "veen_hub.pipeline.intake:Intake._dispatch"),
    Timer("hand over", "veen_hub.pipeline.intake:Intake._work"),
    Timer("verify", "veen_hub.pipeline.intake:Intake._examine"),
    Timer("verify", "veen_hub.admission.stateless:examine"),
    Timer("decode", "veen_hub.admission.stateless:_decode"),
    Timer("hand over", "veen_hub.pipeline.worker_process:WorkerProcess.post"),
    Timer("hand over", "veen_hub.pipeline.worker_process:WorkerProcess.take"),
    Timer("hand over", "veen_hub.pipeline.sequencer:Sequencer._take"),
    Timer("hand over", "veen_hub.pipeline.sequencer:Sequencer._settle"),
    Timer("sequence", "veen_hub.pipeline.sequencer:Sequencer._commit"),
    Timer("sign", "veen_hub.pipeline.signer:ReceiptSigner.expect"),
    Timer("sign", "veen_hub.pipeline.signer:ReceiptSigner.__call__"),
    Timer("sign", "veen_storage.disk.hub_keys:HubKeys.sign_checkpoint"),
    Timer("sign", "veen_storage.disk.hub_keys:HubKeys.sign_note"),
    Timer("write", "veen_storage.commit.writer:Batch.sign"),
    Timer("write", "veen_storage.store:Store.commit"),
    Timer("sync", "veen_storage.disk.files:Files.sync"),
    Timer("sync", "veen_storage.disk.files:Files.sync_file_system"),
    Timer("sync", "veen_storage.disk.files:Files.sync_directory"),
    Timer("answer", "veen_hub.pipeline.intake:Intake._deliver"),
    Timer("answer", "veen_hub.http.connections:Connection._answer"),
    Timer("upkeep", "veen_hub.api.submit:SubmitCall.note"),
    Timer("upkeep", "veen_hub.pipeline.batch_publisher:BatchPublisher.observe"),
    Timer("upkeep", "veen_hub.pipeline.batch_publisher:BatchPublisher._publish"),
    Timer("apply", "veen_storage.commit.apply_queue:ApplyQueue._apply_taken", whole=True),
)
"""In the order of a message's way. ``Batch.sign`` frames entries; the signer that it calls is timed too."""
HELPER_TIMERS: Final = (
    Timer("hand over", "multiprocessing.connection:Connection.recv"),
    Timer("hand over", "multiprocessing.connection:Connection.send"),
    Timer("verify", "veen_hub.admission.stateless:examine"),
    Timer("decode", "veen_hub.admission.stateless:_decode"),
    Timer("sign", "veen_core.keys:SigningKey.sign"),
)


@dataclass(slots=True)
class Calls:
    """All calls of one timed function from the same callers; times are in nanoseconds, callees included."""

    count: int = 0
    cpu: int = 0
    wall: int = 0
    callees: dict[str, Calls] = field(default_factory=dict)

    def as_object(self) -> dict[str, Any]:
        callees = {name: calls.as_object() for name, calls in list(self.callees.items())}
        return {"count": self.count, "cpu_ns": self.cpu, "wall_ns": self.wall, "callees": callees}


class ThreadTimes:
    """The tree of one thread, and the call that it is in."""

    __slots__ = ("current", "root")

    def __init__(self) -> None:
        self.root = self.current = Calls()


class StageTimers:
    """The timers of this process."""

    def __init__(self, process: str, folder: Path, timers: tuple[Timer, ...]) -> None:
        self._process = process
        self._folder = folder
        self._timers = timers
        self._threads: dict[int, ThreadTimes] = {}
        self._inside_ns = self._outside_ns = 0.0
        self._start_ns = 0

    def install(self) -> None:
        """Replace every function of the table; call before threads and connections exist."""
        self._inside_ns, self._outside_ns = self._own_cost()
        for timer in self._timers:
            module_name, _, path = timer.target.partition(":")
            owner, (*classes, name) = importlib.import_module(module_name), path.split(".")
            for each in classes:
                owner = getattr(owner, each)
            function = getattr(owner, name)
            timed = self.timed(timer.name, function)
            holders = [owner] if classes else _modules_with(name, function)
            for holder in holders:
                setattr(holder, name, timed)
        self._start_ns = time.process_time_ns()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does what ``function`` does, and adds its times to the thread's tree."""
        threads = self._threads

        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            thread = threads.get(get_ident())
            if thread is None:
                thread = threads[get_ident()] = ThreadTimes()
            caller = thread.current
            calls = caller.callees.get(name)
            if calls is None:
                calls = caller.callees[name] = Calls()
            thread.current = calls
            wall, cpu = perf_counter_ns(), thread_time_ns()
            try:
                return function(*args, **named)
            finally:
                calls.cpu += thread_time_ns() - cpu
                calls.wall += perf_counter_ns() - wall
                calls.count += 1
                thread.current = caller

        return call

    def _own_cost(self) -> tuple[float, float]:
        """Return what a timer costs: inside the time that it measures, and outside, in the caller's time."""

        def nothing() -> None:
            pass

        costs = []
        for _ in range(CALIBRATIONS):
            probe = StageTimers(self._process, self._folder, ())
            timed = probe.timed("nothing", nothing)
            bare, both = _cpu_of(nothing), _cpu_of(timed)
            inside = probe._threads[get_ident()].root.callees["nothing"].cpu / CALIBRATION_CALLS
            costs.append((inside, max(0.0, both - bare - inside)))
        return min(costs, key=sum)

    # --- answering requests

    def serve(self) -> None:
        """Answer requests for as long as this process runs."""
        os.mkfifo(self._file("requests"), 0o600)
        threading.Thread(target=self._serve, name="veen-stage-times", daemon=True).start()

    def _serve(self) -> None:
        while True:
            asked = self._file("requests").read_text(encoding="ascii")  # waits for a writer
            part = self._file("part")
            part.write_text(json.dumps({"request": asked, **self.as_object()}), encoding="utf-8")
            part.rename(self._file("json"))

    def _file(self, kind: str) -> Path:
        return self._folder / f"{self._process}-{os.getpid()}.{kind}"

    def as_object(self) -> dict[str, Any]:
        return {
            "process": self._process,
            "pid": os.getpid(),
            "start_ns": self._start_ns,
            "inside_ns": self._inside_ns,
            "outside_ns": self._outside_ns,
            "stages": {timer.name: [timer.stage, timer.whole] for timer in self._timers},
            "threads": [self._thread_as_object(thread) for thread in threading.enumerate()],
        }

    def _thread_as_object(self, thread: threading.Thread) -> dict[str, Any]:
        # A process that was forked from a thread knows the main thread by that thread's id.
        number = os.getpid() if thread is threading.main_thread() else thread.native_id
        times = self._threads.get(thread.ident or 0)
        calls = times.root if times is not None else Calls()
        used = _cpu_ns(number or 0)
        return {"name": thread.name, "id": number, "cpu_ns": used, "calls": calls.as_object()["callees"]}


def start_if_asked(process: Literal["hub", "helper"]) -> None:
    """Install the timers of this process if the environment asks for them."""
    if not (name := os.environ.get(VARIABLE)):
        return
    folder = Path(name)
    if not folder.is_dir() or sys.platform != "linux":
        raise ConfigError(f"{VARIABLE}: {folder} is no folder, or this is not Linux", action="unset it")
    timers = StageTimers(process, folder, HUB_TIMERS if process == "hub" else HELPER_TIMERS)
    timers.install()
    timers.serve()


def _modules_with(name: str, function: object) -> Iterator[object]:
    """Yield every module that knows the function by this name, its own and those that have imported it."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is function:
            yield module


def _cpu_of(function: Callable[[], None]) -> float:
    """Return the processor time of one call in nanoseconds."""
    began = thread_time_ns()
    for _ in range(CALIBRATION_CALLS):
        function()
    return (thread_time_ns() - began) / CALIBRATION_CALLS


def _cpu_ns(thread_id: int) -> int:
    """Return the processor time of one thread of this process; 0 if it has ended."""
    try:
        return time.clock_gettime_ns((~thread_id << 3) | PER_THREAD_SCHED_CLOCK)
    except OSError:
        return 0
