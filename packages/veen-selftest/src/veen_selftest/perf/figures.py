"""The figures: each is measured and compared with its target; a missed target is a failed check.

History is written through the API, in batches, since the hub's storage is unknown here. It is therefore
shorter than the million entries for which the targets of ``hub.growth`` and ``hub.rss_mb`` are stated, unless
``--history`` asks for them. Each figure says what it was measured on.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import uvloop

from veen_core.cap import mint
from veen_core.stream import stream_id
from veen_hub.client import Refused
from veen_hub.load import MESSAGES_PER_BATCH, LoadSizes, LoadTarget, batched, measure_clients
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.writer import LONG_TTL_SEC, NEEDS_TOKEN, Writer
from veen_selftest.perf import load
from veen_selftest.perf.yardstick import crypto_floor, lone_seconds
from veen_selftest.runner.check import Check, ClauseViolation, Skip
from veen_selftest.runner.context import CheckContext, Figure

IN_FLIGHT: Final = 256
LANES: Final = 16
ROUNDS: Final = 5
SHORT_HISTORY: Final = 1_000
STREAMS_PER_TOKEN: Final = 1_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of messages, seconds, entries and labels per figure."""

    single: int
    batch: int
    alone: int
    read: int
    follow_sec: int
    history: int
    labels: int
    clients: LoadSizes


QUICK: Final = Sizes(
    6_400, 20_480, 300, 5_000, 3, 8_000, 1_000, LoadSizes(one_by_one=40, per_sender=4, batches=2_048)
)
FULL: Final = Sizes(
    38_400,
    61_440,
    2_000,
    40_000,
    10,
    100_000,
    20_000,
    LoadSizes(one_by_one=300, per_sender=8, batches=10_240),
)


def sizes(context: CheckContext) -> Sizes:
    chosen = QUICK if context.options.quick else FULL
    if context.options.history is None:
        return chosen
    return dataclasses.replace(chosen, history=context.options.history)


def _report(
    context: CheckContext,
    value: float,
    unit: str,
    about: str,
    *,
    least: float | None = None,
    most: float | None = None,
) -> None:
    """Record a figure; raises ``ClauseViolation`` if it misses its target."""
    ok = (least is None or value >= least) and (most is None or value <= most)
    target = f"at least {least:,g}" if least is not None else f"at most {most:,g}"
    context.figures.append(
        Figure(name=context.name, value=round(value, 3), unit=unit, target=target, ok=ok, about=about)
    )
    if not ok:
        raise ClauseViolation(f"{value:,.3f} {unit}, the target is {target}: {about}")


def _hub(context: CheckContext) -> HttpHub:
    """Return a hub whose labels stay open during the measurement."""
    hub = context.hub_without_pow()
    if hub.known.profile.epoch_sec:
        raise Skip("needs a hub without epochs: otherwise a label closes during the measurement (core §12)")
    return hub


def writers(context: CheckContext, hub: HttpHub, count: int, on: str = "log") -> list[Writer]:
    """Return writers of this check, with tokens if the hub is gated."""
    made = [context.writer_without_token(hub, f"writer {n}", on=on) for n in range(count)]
    if hub.known.gating:
        tokens = [writer.token() for writer in made]
        uvloop.run(load.authorize(hub, [token.encode() for token in tokens]))
        for writer, token in zip(made, tokens, strict=True):
            writer.auth_ref = token.auth_ref
    return made


def _fill(hub: HttpHub, writer: Writer, count: int) -> None:
    """Write ``count`` messages, in batches."""
    while count:
        some = min(count, 10_000)
        uvloop.run(load.drive(hub, [batched(load.bodies(writer, some), 256)], sequences=True))
        count -= some


def _single(context: CheckContext) -> None:
    """Durable submits per second, one message per request, 256 in flight, divided by the crypto floor."""
    hub, each = _hub(context), sizes(context).single // IN_FLIGHT
    _to_floor(
        context, hub, [load.bodies(writer, each) for writer in writers(context, hub, IN_FLIGHT)], 1, 0.35
    )


def _batch(context: CheckContext) -> None:
    """Durable submits per second in sequences of 64, 16 requests in flight, divided by the crypto floor."""
    hub, each = _hub(context), sizes(context).batch // LANES
    prepared = [batched(load.bodies(writer, each)) for writer in writers(context, hub, LANES)]
    _to_floor(context, hub, prepared, MESSAGES_PER_BATCH, 0.8)


def _to_floor(
    context: CheckContext, hub: HttpHub, lanes: Sequence[list[bytes]], size: int, least: float
) -> None:
    """Report the median ratio of several rounds, each between two measurements of the floor.

    The speed of a machine changes within seconds: a measurement of the hub and one of the floor next to it
    have the same speed.
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
    _report(context, statistics.median(ratios), "of floor", about, least=least)


def _p50(context: CheckContext) -> None:
    """Median latency of one client, divided by one verification, one signature and one fdatasync."""
    own = context.own_hub()  # of this run: ``lone_seconds`` must measure the disk of the hub's data
    hub = own.start()
    prepared = load.bodies(context.writer(hub), sizes(context).alone)
    with TemporaryDirectory(dir=own.log.parent) as place:
        before = lone_seconds(Path(place))
        p50 = uvloop.run(load.alone(hub, prepared))
        ideal = (before + lone_seconds(Path(place))) / 2
    own.stop()
    about = f"{p50 * 1e3:.2f} ms; verify, sign and fdatasync take {ideal * 1e3:.2f} ms"
    _report(context, p50 / ideal, "of ideal", about, most=3.0)


def _read(context: CheckContext) -> None:
    """Entries per second to one reader of pages that does not verify."""
    hub, count = _hub(context), sizes(context).read
    writer = context.writer(hub)
    _fill(hub, writer, count)
    page = min(1_000, hub.known.max_page_items)
    seconds = min(uvloop.run(load.read_pages(hub, writer.label, count, page)) for _ in range(3))
    _report(
        context,
        count / seconds,
        "entries/s",
        f"{count:,} entries, pages of {page:,}, with receipts",
        least=20_000,
    )


def _follow(context: CheckContext) -> None:
    """Milliseconds from durable to the arrival at a follower, 99th percentile, at 1,000 messages a second."""
    hub = _hub(context)
    delays = uvloop.run(load.follow_delays(hub, context.writer(hub), sizes(context).follow_sec))
    p99 = delays[int(len(delays) * 0.99)] * 1e3
    about = f"{len(delays):,} messages; median {delays[len(delays) // 2] * 1e3:.2f} ms"
    _report(context, p99, "ms", about, most=20.0)


def _clients(context: CheckContext) -> None:
    """The hub serves the client that ships, a plain HTTP client and a raw generator."""
    hub = _hub(context)
    if hub.known.gating and hub.admin is None:
        raise Skip(NEEDS_TOKEN)
    target = LoadTarget(
        url=hub.url,
        hub_id=hub.known.identity.hub_id,
        admin=hub.admin if hub.known.gating else None,
        tls=hub.tls,
        refused=load.RefusedUnderLoad(hub),
    )
    with TemporaryDirectory(prefix="veen-selftest-") as state:
        rates = measure_clients(target, sizes(context).clients, Path(state), context.stream_name("load"))
        try:
            context.clients.extend(uvloop.run(rates))
        except Refused as refusal:
            hub.skip_if_announced((refusal.detail_enum or "").encode())
            raise


def _growth(context: CheckContext) -> None:
    """Submit latency in a long label divided by that in a label of 1,000 entries (least of five medians)."""
    hub, chosen = _hub(context), sizes(context)
    deep, shallow = context.writer(hub, on="long"), context.writer(hub, on="short")
    _fill(hub, deep, chosen.history)
    _fill(hub, shallow, SHORT_HISTORY)
    times: dict[Writer, list[float]] = {deep: [], shallow: []}
    # The labels are measured in turns, because other work on this machine slows both. Each counts with the
    # smallest of its medians.
    for _turn in range(5):
        for writer, found in times.items():
            found.append(uvloop.run(load.alone(hub, load.bodies(writer, chosen.alone // 3))))
    long, short = min(times[deep]), min(times[shallow])
    about = (
        f"{chosen.history:,} entries to {SHORT_HISTORY:,}: {long * 1e3:.2f} ms to {short * 1e3:.2f} ms "
        "(stated for 1,000,000: --history)"
    )
    _report(context, long / short, "x", about, most=1.3)


def _memory(context: CheckContext) -> None:
    """Resident memory of a hub with one long label and many labels."""
    own = context.own_hub()
    hub, chosen = own.start(), sizes(context)
    _fill(hub, context.writer(hub, on="long"), chosen.history)
    _many_labels(context, hub, chosen.labels)
    heavy = own.resident_mb()
    own.stop()
    about = (
        f"{chosen.history:,} entries in one label and {chosen.labels:,} labels, the hub and its processes "
        "(stated for 1,000,000 and 100,000)"
    )
    _report(context, heavy, "MB", about, most=400)


def _many_labels(context: CheckContext, hub: HttpHub, count: int) -> None:
    """Write one entry to each label, with tokens that name a thousand streams."""
    assert hub.admin is not None
    for start in range(0, count, STREAMS_PER_TOKEN):
        names = [f"{context.name}/{n}" for n in range(start, min(count, start + STREAMS_PER_TOKEN))]
        writer = context.writer_without_token(hub, f"wide {start}")
        token = mint(hub.admin, writer.client_id, [stream_id(name) for name in names], LONG_TTL_SEC)
        writer.auth_ref = hub.authorize(token).auth_ref
        labels = [bytes(hub.label(stream_id(name), 0)) for name in names]
        hub.accept_many([writer.message(1, label=label) for label in labels])


CHECKS: Final = (
    Check("hub.single", "performance target", _single),
    Check("hub.batch", "performance target", _batch),
    Check("hub.p50", "performance target", _p50),
    Check("hub.read", "performance target", _read),
    Check("hub.follow_p99_ms", "H15", _follow),
    Check("hub.clients", "no target", _clients),
    Check("hub.growth", "core §3.4", _growth),
    Check("hub.rss_mb", "performance target", _memory),
)
