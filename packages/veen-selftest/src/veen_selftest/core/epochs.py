"""Epochs: what the hub says, what it takes, and how it goes from one to the next (§3.2, §12)."""

from __future__ import annotations

import time
from typing import Final

from veen_core import rejection, stream
from veen_core.status import Status
from veen_selftest.core.checkpoints import make
from veen_selftest.hubs.clock import PACE
from veen_selftest.hubs.http_hub import Hub, refused_by
from veen_selftest.runner.check import Check, Skip, Violation, only, require, same
from veen_selftest.runner.context import Bench
from veen_selftest.runner.hub_setup import ROTATING, TURNING


def _status(bench: Bench) -> None:
    """The hub's epoch is that of its hub_ts, and both are near now (§12)."""
    hub = bench.hub(ROTATING)
    status = hub.status()
    same(status.epoch, stream.epoch_at(status.hub_ts, status.profile.epoch_sec), "status.epoch (§3.2)")
    require(abs(status.hub_ts - time.time()) < 60, f"hub_ts {status.hub_ts} is far from this clock")


def _window(bench: Bench) -> None:
    """Labels within the skew are taken, those just outside are not (§12)."""
    hub = bench.hub(ROTATING)
    known = hub.known
    for _attempt in range(2):  # once more if the epoch turns in between
        status = hub.status()
        window = stream.epoch_window(status.hub_ts, known.profile.epoch_sec, known.limits.max_epoch_skew_sec)
        answers = {}
        for epoch in range(window.start - 1, window.stop + 1):
            writer = bench.writer(hub, on=f"at {status.epoch}", epoch=epoch)
            answers[epoch] = hub.submit(writer.next())
        if hub.status().epoch == status.epoch:
            break
    else:
        raise Violation("the epoch turned twice within one check (§3.2)")
    for epoch, answer in answers.items():
        if epoch in window:
            same(answer.status, 200, f"status of a message at epoch {epoch - status.epoch:+}")
        else:
            refused_by(rejection.EPOCH, answer)


def _roll(bench: Bench) -> None:
    """When the epoch turns, the new label is taken, chained to the last one; what left the window is not."""
    hub = bench.hub(TURNING)
    length, skew = hub.known.profile.epoch_sec, hub.known.limits.max_epoch_skew_sec
    for _attempt in range(3):  # again if the epoch turns in between
        before = _early_enough(bench, hub)
        writer = bench.writer(hub, on=f"at {before.epoch}", epoch=before.epoch - skew // length)
        answer = hub.submit(writer.next())
        if hub.status().epoch == before.epoch:
            break
    else:
        raise Violation("the epoch turned three times within one check (§3.2)")
    same(answer.status, 200, "status of a message at the oldest epoch of the window")
    now = _turned(hub, before)
    same(now.epoch, stream.epoch_at(now.hub_ts, length), "the epoch after the turn")
    refused_by(rejection.EPOCH, hub.submit(writer.next()))
    newer = bench.writer(hub, on="new", epoch=now.epoch)
    receipt = hub.accept(newer.next())
    if hub.admin is not None:
        made = only(make(hub, newer.label), "checkpoints of one label")
        same(made.label_prev, hub.label(newer.stream_id, now.epoch - 1), "label_prev over the turn (H9)")
        same(made.epoch, stream.epoch_at(receipt.hub_ts, length), "epoch of the new label's checkpoint (H9)")


def _early_enough(bench: Bench, hub: Hub) -> Status:
    """The hub's status in an epoch that does not end at once, if that does not take too long."""
    pace = PACE if bench.fleet.starts_hubs else 1
    length, now = hub.known.profile.epoch_sec, hub.status()
    left = length - now.hub_ts % length
    wait = left if left > pace else left + length
    if wait > bench.effort.patience * pace:
        raise Skip(f"the next epoch begins in {wait} s: --patience {length + 1} waits for it")
    return now if wait == left else _turned(hub, now)


def _turned(hub: Hub, before: Status) -> Status:
    """In the next epoch."""
    deadline = time.monotonic() + hub.known.profile.epoch_sec + 5
    while (now := hub.status()).epoch == before.epoch:
        require(time.monotonic() < deadline, "the epoch does not turn (§3.2)")
        time.sleep(0.1)
    return now


CHECKS: Final = (
    Check("epoch.status", "§12, §3.2", _status),
    Check("epoch.window", "§12", _window),
    Check("epoch.roll", "§12, spec-1 §20 C", _roll),
)
