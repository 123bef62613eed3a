"""Load on two hubs, one with stage timers and one without, and the table of what the timers say.

Both hubs take the same load one after the other; the hub without timers shows what the timers cost. Totals
are the kernel's account of the hub and of each of its helper processes, read from outside. What no timer
covers is a row of its own. Of the event loop's thread only the loop and its sockets are untimed: HTTP.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import uvloop

from veen_hub.load import MESSAGES_PER_BATCH, batched
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.own_hub import OwnHub
from veen_selftest.perf import load
from veen_selftest.perf.figures import IN_FLIGHT, LANES, writers
from veen_selftest.perf.profile.flame_graph import FlameGraph
from veen_selftest.perf.profile.stage_times import Moment, ProcessCalls, between, moment_of
from veen_selftest.perf.profile.stages import HTTP, SEQUENCER_WAITS, STAGES, START, TIMERS
from veen_selftest.perf.yardstick import core_floor
from veen_selftest.runner.check import Check, require
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.load_profile import (
    TOTAL,
    UNATTRIBUTED,
    HubProfile,
    LoadProfile,
    StageTime,
)

TIMES_VARIABLE: Final = "VEEN_STAGE_TIMES"
"""The environment variable with which ``veen-hub`` writes stage times."""
MAX_UNATTRIBUTED: Final = 0.1
"""Largest share of a load's processor time that may belong to no stage."""
FLOOR_SEC: Final = 1.0
HUB: Final = "hub"
"""Name of the main process."""
EVENT_LOOP, SEQUENCER, TIMERS_THREAD = "MainThread", "veen-sequencer", "veen-stage-times"
TAKING: Final = ("Sequencer._take",)
"""The call in which the sequencer's thread waits for work."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of ``size`` messages on ``lanes`` connections; each sends one after the other."""

    name: str
    lanes: int
    size: int
    quick: int
    full: int
    """Messages; the warm-up before takes an eighth of them."""

    def prepared(self, context: CheckContext, hub: HttpHub) -> Iterator[list[list[bytes]]]:
        """Yield the requests of each lane for the warm-up, then for the measurement."""
        count = self.quick if context.options.quick else self.full
        lanes = writers(context, hub, self.lanes, on=self.name)
        for share in (count // 8, count):
            each = max(1, share // self.lanes // self.size) * self.size
            yield [batched(load.bodies(writer, each), self.size) for writer in lanes]

    def run(self, hub: HttpHub, lanes: Sequence[Sequence[bytes]]) -> None:
        uvloop.run(load.drive(hub, lanes, sequences=self.size > 1))


LOADS: Final = (
    Load("one at a time", lanes=1, size=1, quick=1_000, full=6_000),
    Load(f"{IN_FLIGHT} in flight", lanes=IN_FLIGHT, size=1, quick=10_240, full=40_960),
    Load(f"batches of {MESSAGES_PER_BATCH}", LANES, MESSAGES_PER_BATCH, quick=32_768, full=131_072),
)


@dataclass(frozen=True, slots=True)
class Window:
    """One load on one hub: its messages, and the moments before and after it."""

    messages: int
    before: Moment
    after: Moment

    @property
    def seconds(self) -> float:
        return self.after.at - self.before.at

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu(self) -> float:
        """Processor time of all processes, in nanoseconds."""
        return sum(used - self.before.used.get(pid, 0.0) for pid, used in self.after.used.items())

    def per_message(self, nanoseconds: float) -> float:
        """Return microseconds per message."""
        return nanoseconds / self.messages / 1_000


def _window(context: CheckContext, each: Load, own: OwnHub, hub: HttpHub, folder: Path | None) -> Window:
    warm_up, measured = each.prepared(context, hub)
    each.run(hub, warm_up)
    messages = sum(len(lane) for lane in measured) * each.size
    before = moment_of(own.processes(), folder)
    each.run(hub, measured)
    return Window(messages, before, moment_of(own.processes(), folder))


@dataclass(slots=True)
class Attribution:
    """Nanoseconds by stage in one window."""

    hub: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    helpers: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    wall: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: int = 0

    def add(self, found: ProcessCalls, window: Window, graph: FlameGraph) -> None:
        """Add what one process did."""
        account = self.hub if found.process == HUB else self.helpers
        account[TIMERS] += found.timers
        account[START] += found.start
        for thread in found.threads:
            self.calls += sum(call.count for call in thread.calls)
            rest = TIMERS if thread.name == TIMERS_THREAD else None
            if (found.process, thread.name) == (HUB, EVENT_LOOP):
                rest = HTTP
            if rest is not None:
                account[rest] += thread.untimed
            where = (found.process, thread.name.rstrip("0123456789").rstrip("_"))
            graph.add((*where, "(outside)"), rest or UNATTRIBUTED, window.per_message(thread.untimed))
            for call in thread.calls:
                account[call.stage] += call.cpu
                graph.add((*where, *call.path), call.stage, window.per_message(call.cpu))
                if thread.name == SEQUENCER and call.path != TAKING:
                    self.wall[call.stage] += call.wall


def load_profile(name: str, window: Window, plain: Window, graph: FlameGraph) -> LoadProfile:
    """Return the table of one load; ``plain`` is the same load on a hub without timers."""
    found = Attribution()
    processes = list(between(window.before, window.after))
    for each in processes:
        found.add(each, window, graph)
    hub = sum(each.measured for each in processes if each.process == HUB)
    totals = (hub, window.cpu - hub, window.seconds * 1e9)

    def row(stage: str, nanoseconds: tuple[float, float, float]) -> StageTime:
        hub_us, helpers_us, wall_us = map(window.per_message, nanoseconds)
        return StageTime(stage=stage, hub_us=hub_us, helpers_us=helpers_us, wall_us=wall_us)

    known = [(found.hub[stage], found.helpers[stage], found.wall[stage]) for stage in STAGES]
    hub_rest, helpers_rest, waiting = (
        total - math.fsum(column) for total, column in zip(totals, zip(*known, strict=True), strict=True)
    )
    return LoadProfile(
        load=name,
        messages=window.messages,
        per_second=window.per_second,
        calls=found.calls,
        stages=(
            *(row(stage, nanoseconds) for stage, nanoseconds in zip(STAGES, known, strict=True)),
            row(SEQUENCER_WAITS, (0.0, 0.0, waiting)),
            row(UNATTRIBUTED, (hub_rest, helpers_rest, 0.0)),
        ),
        measured=row(TOTAL, totals),
        plain_us=plain.per_message(plain.cpu),
        plain_per_second=plain.per_second,
    )


@contextlib.contextmanager
def _running(own: OwnHub, environment: Mapping[str, str] | None = None) -> Iterator[HttpHub]:
    hub = own.start(environment)
    try:
        yield hub
    finally:
        own.stop()


def _profile(context: CheckContext) -> None:
    """Every stage of a message's way through the hub has its processor time, and little is left over."""
    plain_hub, timed_hub = context.own_hub(), context.own_hub()
    floor = core_floor(FLOOR_SEC)
    graph_file = context.options.flame_graph
    graph, found = FlameGraph("µs of processor time per message"), []
    with (
        TemporaryDirectory(prefix="veen-selftest-") as name,
        _running(plain_hub) as plain,
        _running(timed_hub, {TIMES_VARIABLE: name}) as timed,
    ):
        for done, each in enumerate(LOADS):
            context.progress(done, len(LOADS))
            without = _window(context, each, plain_hub, plain, None)
            window = _window(context, each, timed_hub, timed, Path(name))
            graph.begin(each.name)
            found.append(load_profile(each.name, window, without, graph))
    graph_file.write_text(graph.svg(), encoding="utf-8")
    context.profiles.append(HubProfile(floor=floor, loads=tuple(found), flame_graph=str(graph_file)))
    for profile in found:
        require_attributed(profile)


def require_attributed(profile: LoadProfile) -> None:
    """Raise if too much of the processor time belongs to no stage: the table would say too little."""
    require(
        profile.unattributed <= MAX_UNATTRIBUTED,
        f"{profile.load}: {profile.unattributed:.0%} of the processor time belongs to no stage, more than "
        f"{MAX_UNATTRIBUTED:.0%}: it needs a timer in veen_hub.ops.stage_timers",
    )


PROFILE: Final = Check("hub.profile", "no target", _profile)
