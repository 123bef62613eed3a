"""The profile of a hub under one load: processor time per message by stage, and the lines that show it.

The stages come from timers in the hub, the totals from the kernel's account of its processes.
``unattributed`` is the difference, so that the rows of a table always add up to what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

UNATTRIBUTED: Final = "unattributed"
TOTAL: Final = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreFloor:
    """How much one process verifies and signs that does nothing else, and one process per core at once."""

    one: float
    """Verifications with one signature each, per second, of one process alone."""
    together: float
    """Of all processes together."""
    processes: int

    @property
    def ratio(self) -> float:
        return self.together / self.one

    @property
    def microseconds(self) -> float:
        """One verification and one signature."""
        return 1e6 / self.one


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """Microseconds per message of one stage."""

    stage: str
    hub_us: float
    """Processor time of the hub's main process."""
    helpers_us: float
    """Processor time of its helper processes."""
    wall_us: float
    """Elapsed time of the sequencer's thread, with its waits in this stage."""

    @property
    def cpu_us(self) -> float:
        return self.hub_us + self.helpers_us


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProfile:
    """One load, and where the time of its messages went."""

    load: str
    messages: int
    per_second: float
    calls: int
    """Calls that were timed."""
    stages: tuple[StageTime, ...]
    """In the order of a message's way; the last is ``unattributed``."""
    measured: StageTime
    """Totals by the kernel's accounts, and the elapsed time."""
    plain_us: float
    """Processor time per message of a hub without timers, under the same load."""
    plain_per_second: float
    """Messages per second of that hub."""

    @property
    def unattributed(self) -> float:
        """Share of the measured processor time that no stage accounts for."""
        return self.stages[-1].cpu_us / self.measured.cpu_us if self.measured.cpu_us else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubProfile:
    """The profile of a hub under several loads."""

    floor: CoreFloor
    loads: tuple[LoadProfile, ...]
    flame_graph: str
    """File with the flame graph."""


LEGEND: Final = (
    "hub, helpers, all: processor time; measured: the kernel's account; unattributed: what no timer covers",
    "sequencer: elapsed time of the thread that orders messages, with its waits for disk, locks and helpers;",
    "  its row measured is the time between two messages",
    "HTTP: with event loop and sockets. write: frames and journal. hand over: between threads and processes.",
    "upkeep: metrics, checkpoints. apply: to chunk files and index, after the receipt. start: of helpers.",
    "timers: what this measurement costs",
)


def table(profile: HubProfile) -> Iterator[str]:
    """Yield the profile as lines for people, the floor first."""
    floor = profile.floor
    yield (
        f"floor: one process verifies and signs {floor.one:,.0f} messages/s, {floor.microseconds:.1f} µs "
        f"each; {floor.processes} processes at once {floor.together:,.0f}/s, {floor.ratio:.2f} times as many"
    )
    for load in profile.loads:
        yield ""
        yield (
            f"{load.load}: {load.messages:,} messages, {load.per_second:,.0f}/s; "
            f"a hub without timers: {load.plain_per_second:,.0f}/s, {load.plain_us:,.1f} µs"
        )
        yield f"{'µs per message':<16}{'hub':>10}{'helpers':>10}{'all':>10}{'share':>8}{'sequencer':>12}"
        for row in (*load.stages, load.measured):
            share = row.cpu_us / load.measured.cpu_us if load.measured.cpu_us else 0.0
            yield (
                f"{row.stage:<16}{row.hub_us:>10.1f}{row.helpers_us:>10.1f}{row.cpu_us:>10.1f}{share:>8.0%}"
                f"{row.wall_us:>12.1f}"
            )
    yield ""
    yield from LEGEND
    yield f"flame graph: {profile.flame_graph}"
