"""Epochs: what the hub says, what it takes, and how it goes from one to the next (§3.2, §12)."""

from __future__ import annotations

import time
from typing import Final

from veen_core import rejection, stream
from veen_core.ids import UnixTime
from veen_selftest.bench import Bench
from veen_selftest.check import Check, Skip, Violation, require, same
from veen_selftest.hub import refused_by
from veen_selftest.setup import ROTATING


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
    """When the epoch turns, the new label is taken and the one that left the window is not (§12)."""
    hub = bench.hub(ROTATING)
    length, status = hub.known.profile.epoch_sec, hub.status()
    wait = length - status.hub_ts % length + 1
    if wait > bench.effort.patience:
        raise Skip(f"the next epoch begins in {wait} s: --patience {length + 2} waits for it")
    oldest = status.epoch - hub.known.limits.max_epoch_skew_sec // length
    writer = bench.writer(hub, epoch=oldest)
    hub.accept(writer.next())
    deadline = time.monotonic() + wait + 5
    while (now := hub.status()).epoch == status.epoch:
        require(time.monotonic() < deadline, "the epoch does not turn (§3.2)")
        time.sleep(0.2)
    same(now.epoch, stream.epoch_at(UnixTime(now.hub_ts), length), "the epoch after the turn")
    refused_by(rejection.EPOCH, hub.submit(writer.next()))
    hub.accept(bench.writer(hub, on="new", epoch=now.epoch).next())


CHECKS: Final = (
    Check("epoch.status", "§12, §3.2", _status),
    Check("epoch.window", "§12", _window),
    Check("epoch.roll", "§12", _roll),
)
