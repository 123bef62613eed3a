"""The figures: each is measured, put beside its target, and missed if it does not reach it.

History is built through the API, in batches, since nothing else of a hub is known here: so it is shorter
than the million entries that ``hub.growth`` and ``hub.rss_mb`` are stated for, unless ``--history`` asks for
them. What was measured is said with each figure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import uvloop

from veen_core.cap import mint
from veen_core.stream import stream_id
from veen_selftest.hubs.http_hub import Hub
from veen_selftest.peers.writer import LONG, Writer
from veen_selftest.perf import load
from veen_selftest.perf.yardstick import crypto_floor, lone_seconds
from veen_selftest.runner.check import Check, Skip, Violation
from veen_selftest.runner.context import Bench, Figure

IN_FLIGHT: Final = 256
LANES: Final = 16
ROUNDS: Final = 5
SHORT: Final = 1_000
STREAMS_A_TOKEN: Final = 1_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    single: int
    batch: int
    alone: int
    read: int
    follow_sec: int
    history: int
    labels: int


QUICK: Final = Sizes(6_400, 20_480, 300, 5_000, 3, 8_000, 1_000)
FULL: Final = Sizes(38_400, 61_440, 2_000, 40_000, 10, 100_000, 20_000)


def sizes(bench: Bench) -> Sizes:
    chosen = QUICK if bench.effort.quick else FULL
    if bench.effort.history is None:
        return chosen
    return Sizes(
        chosen.single,
        chosen.batch,
        chosen.alone,
        chosen.read,
        chosen.follow_sec,
        bench.effort.history,
        chosen.labels,
    )


def _say(
    bench: Bench,
    value: float,
    unit: str,
    about: str,
    *,
    least: float | None = None,
    most: float | None = None,
) -> None:
    """Write a figure down; raises if it misses its target."""
    ok = (least is None or value >= least) and (most is None or value <= most)
    target = f"at least {least:,g}" if least is not None else f"at most {most:,g}"
    bench.figures.append(
        Figure(name=bench.name, value=round(value, 3), unit=unit, target=target, ok=ok, about=about)
    )
    if not ok:
        raise Violation(f"{value:,.3f} {unit}, want {target}: {about}")


def _hub(bench: Bench) -> Hub:
    """One whose labels outlive what is measured on them."""
    hub = bench.free_hub()
    if hub.known.profile.epoch_sec:
        raise Skip("it takes a hub without epochs: else a label leaves its window while it is measured (§12)")
    return hub


def _writers(bench: Bench, hub: Hub, count: int, on: str = "log") -> list[Writer]:
    """Many, with tokens if the hub asks for them."""
    made = [bench.stranger(hub, f"writer {n}", on=on) for n in range(count)]
    if hub.known.gating:
        tokens = [writer.token() for writer in made]
        uvloop.run(load.authorize(hub, [token.encode() for token in tokens]))
        for writer, token in zip(made, tokens, strict=True):
            writer.auth_ref = token.auth_ref
    return made


def _fill(hub: Hub, writer: Writer, count: int) -> None:
    """History, in batches."""
    while count:
        some = min(count, 10_000)
        uvloop.run(load.drive(hub, [load.batched(load.bodies(writer, some), 256)], sequences=True))
        count -= some


def _single(bench: Bench) -> None:
    """Durable submits a second, one message a request, 256 in flight, to the crypto floor."""
    hub, each = _hub(bench), sizes(bench).single // IN_FLIGHT
    _to_floor(bench, hub, [load.bodies(writer, each) for writer in _writers(bench, hub, IN_FLIGHT)], 1, 0.35)


def _batch(bench: Bench) -> None:
    """Durable submits a second in sequences of 64, 16 requests under way, to the crypto floor."""
    hub, each = _hub(bench), sizes(bench).batch // LANES
    prepared = [load.batched(load.bodies(writer, each)) for writer in _writers(bench, hub, LANES)]
    _to_floor(bench, hub, prepared, load.TOGETHER, 0.8)


def _to_floor(bench: Bench, hub: Hub, lanes: Sequence[list[bytes]], size: int, least: float) -> None:
    """Requests of ``size`` messages, in rounds, each between two measurements of the floor; at the median.

    A machine's moods last for seconds: they must not fall on one side only.
    """
    length = len(lanes[0]) // ROUNDS
    ratios, rates, floors = [], [], [crypto_floor()]
    for turn in range(ROUNDS):
        part = [lane[turn * length : (turn + 1) * length] for lane in lanes]
        seconds = uvloop.run(load.drive(hub, part, sequences=size > 1))
        floors.append(crypto_floor())
        rates.append(length * size * len(lanes) / seconds)
        ratios.append(rates[-1] / statistics.mean(floors[-2:]))
    rate, floor = statistics.median(rates), statistics.median(floors)
    about = (
        f"{rate:,.0f}/s; the floor is {floor:,.0f}/s; "
        f"median of {ROUNDS} rounds, {min(ratios):.2f} to {max(ratios):.2f}"
    )
    _say(bench, statistics.median(ratios), "of floor", about, least=least)


def _p50(bench: Bench) -> None:
    """One client, one message at a time: the median to one verify, one sign and one fdatasync."""
    own = bench.own()  # only of a hub on this machine the disk is known
    hub = own.start()
    prepared = load.bodies(bench.writer(hub), sizes(bench).alone)
    with TemporaryDirectory(dir=own.log.parent) as place:
        before = lone_seconds(Path(place))
        p50 = uvloop.run(load.alone(hub, prepared))
        ideal = (before + lone_seconds(Path(place))) / 2
    own.stop()
    about = f"{p50 * 1e3:.2f} ms; verify, sign and fdatasync take {ideal * 1e3:.2f} ms"
    _say(bench, p50 / ideal, "of ideal", about, most=3.0)


def _read(bench: Bench) -> None:
    """Entries a second to one reader that takes pages and does not verify."""
    hub, count = _hub(bench), sizes(bench).read
    writer = bench.writer(hub)
    _fill(hub, writer, count)
    page = min(1_000, hub.known.max_page_items)
    seconds = min(uvloop.run(load.read_pages(hub, writer.label, count, page)) for _ in range(3))
    _say(
        bench,
        count / seconds,
        "entries/s",
        f"{count:,} entries, pages of {page:,}, with receipts",
        least=20_000,
    )


def _follow(bench: Bench) -> None:
    """Milliseconds from durable to a follower, at 1,000 messages a second, at the 99th of 100."""
    hub = _hub(bench)
    delays = uvloop.run(load.follow_delays(hub, bench.writer(hub), sizes(bench).follow_sec))
    p99 = delays[int(len(delays) * 0.99)] * 1e3
    about = f"{len(delays):,} messages; median {delays[len(delays) // 2] * 1e3:.2f} ms"
    _say(bench, p99, "ms", about, most=20.0)


def _growth(bench: Bench) -> None:
    """Submit p50 in a label with a long history to that in a label with 1,000 entries."""
    hub, chosen = _hub(bench), sizes(bench)
    deep, shallow = bench.writer(hub, on="long"), bench.writer(hub, on="short")
    _fill(hub, deep, chosen.history)
    _fill(hub, shallow, SHORT)
    times: dict[Writer, list[float]] = {deep: [], shallow: []}
    for _turn in range(5):  # in turns, and the best of each: what else the machine does hits both
        for writer, found in times.items():
            found.append(uvloop.run(load.alone(hub, load.bodies(writer, chosen.alone // 3))))
    long, short = min(times[deep]), min(times[shallow])
    about = (
        f"{chosen.history:,} entries to {SHORT:,}: {long * 1e3:.2f} ms to {short * 1e3:.2f} ms "
        "(stated for 1,000,000: --history)"
    )
    _say(bench, long / short, "x", about, most=1.3)


def _memory(bench: Bench) -> None:
    """Resident memory of a hub with a long label and many labels."""
    own = bench.own()
    hub, chosen = own.start(), sizes(bench)
    _fill(hub, bench.writer(hub, on="long"), chosen.history)
    _many_labels(bench, hub, chosen.labels)
    heavy = own.resident_mb()
    own.stop()
    about = (
        f"{chosen.history:,} entries in one label and {chosen.labels:,} labels, the hub and its processes "
        "(stated for 1,000,000 and 100,000)"
    )
    _say(bench, heavy, "MB", about, most=400)


def _many_labels(bench: Bench, hub: Hub, count: int) -> None:
    """One entry each, under tokens that name a thousand streams."""
    assert hub.admin is not None
    for start in range(0, count, STREAMS_A_TOKEN):
        names = [f"{bench.name}/{n}" for n in range(start, min(count, start + STREAMS_A_TOKEN))]
        writer = bench.stranger(hub, f"wide {start}")
        token = mint(hub.admin, writer.client_id, [stream_id(name) for name in names], LONG)
        writer.auth_ref = hub.authorize(token).auth_ref
        labels = [bytes(hub.label(stream_id(name), 0)) for name in names]
        hub.accept_many([writer.message(1, label=label) for label in labels])


CHECKS: Final = (
    Check("hub.single", "DESIGN numbers", _single),
    Check("hub.batch", "DESIGN numbers", _batch),
    Check("hub.p50", "hub numbers", _p50),
    Check("hub.read", "hub numbers", _read),
    Check("hub.follow_p99_ms", "hub numbers, H15", _follow),
    Check("hub.growth", "§3.4", _growth),
    Check("hub.rss_mb", "DESIGN numbers", _memory),
)
