"""The cost of the hub log and its witnesses: ``hub.trust_overhead`` and ``trust.cosign_p99_ms``.

Two witnesses run on this machine, as processes of their own.

- ``hub.trust_overhead`` divides the rate of batches at a hub with hub checkpoints every second and both
  witnesses by that at a hub that makes none. Both hubs run; they get their load in turn.
- ``trust.cosign_p99_ms`` is the time from a receipt until the hub serves a hub checkpoint that covers the
  message and has both cosignatures. The hub makes a hub checkpoint after every message; the time contains the
  hub checkpoint's own commit, the round, the commit of the published file, and polling.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Protocol

import trust
import uvloop

from veen_core import SigningSeed
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import HubProofRequest, HubProofResponse, note_key, origin_of
from veen_core.ids import Label, StreamSeq
from veen_core.tlog.tree_head import parse_signed_head
from veen_hub.load import open_raw

HOST = "127.0.0.1"
NEVER = "hub_log: {interval_sec: 2147483647, max_entries: 2147483647}\n"
POLL_SEC = 0.001
MAX_SAMPLE_SEC = 30.0

Say = Callable[[str, float, float, bool], bool]
"""Prints one figure with its target; returns whether it was met."""


class RunningHub(Protocol):
    """A running hub, as ``run.running`` yields it."""

    port: int
    where: Label


RunHub = Callable[[Path, int, Path], AbstractContextManager[RunningHub]]
"""Run a hub on a data directory, with so many authorized writers and a hub.yaml."""
Rate = Callable[[RunningHub, int, int], float]
"""Return the batched submits per second of one round: hub, messages, number of the round."""
Message = Callable[[RunningHub, int], bytes]
"""Return the first writer's message with this client_seq, as a submit request."""


@contextlib.contextmanager
def two_witnesses(place: Path, identity: HubIdentity, more: str) -> Iterator[Path]:
    """Run two witnesses of a hub, and yield a hub.yaml that names them."""
    log = note_key(identity.hub_keys[0], origin_of(identity.hub_id)).text
    place.mkdir()
    lines = ["hub_log:", more, "  witnesses:"]
    with ExitStack() as stack:
        for number in (1, 2):
            name, seed = f"witness.example/{number}", SigningSeed(bytes([number]) * 32)
            folder = place / f"witness {number}"
            key, port = stack.enter_context(trust.run_witness(folder, name, seed, [log]))
            lines.append(f'    - {{key: "{key}", url: "http://{HOST}:{port}"}}')
        config = place / "hub.yaml"
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        yield config


def overhead(plain: RunningHub, watched: RunningHub, rate: Rate, count: int, rounds: int) -> float:
    """Return the median ratio of the two hubs' rates; which hub comes first alternates."""
    ratios = []
    for turn in range(rounds):
        hubs = (plain, watched) if turn % 2 else (watched, plain)
        rates = {id(hub): rate(hub, count // rounds, turn) for hub in hubs}
        ratios.append(rates[id(watched)] / rates[id(plain)])
    return statistics.median(ratios)


async def cosign_seconds(hub: RunningHub, message: Message, count: int) -> list[float]:
    """Send messages one by one; return how long each waited for both cosignatures after its receipt."""
    times = []
    async with open_raw(HOST, hub.port) as writing, open_raw(HOST, hub.port, refused=_Refused) as asking:
        for seq in range(1, count + 1):
            await writing.post("/v1/submit", message(hub, seq))
            started = time.perf_counter()
            asked = HubProofRequest(label=hub.where, stream_seq=StreamSeq(seq)).encode()
            async with asyncio.timeout(MAX_SAMPLE_SEC):
                while not await _is_cosigned(asking.post, asked):
                    await asyncio.sleep(POLL_SEC)
            times.append(time.perf_counter() - started)
            await asyncio.sleep(0.01)
    return times


class _Refused(Exception):  # noqa: N818 - an expected answer
    """The published hub checkpoint does not cover the message yet."""


async def _is_cosigned(post: Callable[[str, bytes], object], asked: bytes) -> bool:
    try:
        answer = await post("/v1/hublog/proof", asked)  # type: ignore[misc]  # RawConnection.post
    except _Refused:
        return False
    signed = parse_signed_head(HubProofResponse.decode(answer).checkpoint)
    return len(signed.note.signatures) == 3


def measure(
    place: Path,
    make: Callable[[Path], tuple[Path, HubIdentity]],
    run_hub: RunHub,
    rate: Rate,
    message: Message,
    *,
    count: int,
    rounds: int,
    samples: int,
    writers: int,
    say: Say,
) -> bool:
    """Print both figures. ``count`` is the number of messages in batches, ``samples`` of single ones."""
    never = place / "never.yaml"
    never.write_text(NEVER, encoding="utf-8")
    plain_root, _identity = make(place / "without hub log")
    root, identity = make(place / "with witnesses")
    with (
        two_witnesses(place / "witnesses", identity, "  interval_sec: 1") as config,
        run_hub(plain_root, writers, never) as plain,
        run_hub(root, writers, config) as watched,
    ):
        ratio = overhead(plain, watched, rate, count, rounds)
    root, identity = make(place / "one by one")
    with (
        two_witnesses(place / "more witnesses", identity, "  max_entries: 1") as config,
        run_hub(root, 1, config) as watched,
    ):
        times = sorted(uvloop.run(cosign_seconds(watched, message, samples)))
    p99 = times[math.ceil(len(times) * 0.99) - 1] * 1_000
    ok = say("hub.trust_overhead", ratio, 0.93, ratio >= 0.93)
    return say("trust.cosign_p99_ms", p99, 50.0, p99 <= 50) and ok
