"""Epochs: the hub's current epoch, the labels that it accepts, and the change of epochs (§3.2, §12)."""

from __future__ import annotations

import time
from typing import Final

from veen_core import rejection, stream
from veen_core.status import Status
from veen_selftest.core.checkpoints import make
from veen_selftest.hubs.clock import CLOCK_SPEED
from veen_selftest.hubs.http_hub import HttpHub, require_refused_by
from veen_selftest.runner.check import Check, ClauseViolation, Skip, require, require_equal, require_one
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import FAST_EPOCHS, ROTATING


def _status(context: CheckContext) -> None:
    """The hub's epoch follows from its hub_ts, which is near this machine's clock (core §12)."""
    hub = context.hub(ROTATING)
    status = hub.status()
    require_equal(
        status.epoch, stream.epoch_at(status.hub_ts, status.profile.epoch_sec), "status.epoch (core §3.2)"
    )
    require(
        abs(status.hub_ts - time.time()) < 60,
        f"hub_ts {status.hub_ts} differs by 60 s or more from the time here",
    )


def _window(context: CheckContext) -> None:
    """Labels of epochs within the skew are accepted; labels just outside are refused (core §12)."""
    hub = context.hub(ROTATING)
    known = hub.known
    for _attempt in range(2):  # repeat if the epoch ended during the attempt
        status = hub.status()
        window = stream.epoch_window(status.hub_ts, known.profile.epoch_sec, known.limits.max_epoch_skew_sec)
        answers = {}
        for epoch in range(window.start - 1, window.stop + 1):
            writer = context.writer(hub, on=f"at {status.epoch}", epoch=epoch)
            answers[epoch] = hub.submit(writer.next())
        if hub.status().epoch == status.epoch:
            break
    else:
        raise ClauseViolation("the epoch ended during both attempts of this check (core §3.2)")
    for epoch, answer in answers.items():
        if epoch in window:
            require_equal(answer.status, 200, f"status of a message at epoch {epoch - status.epoch:+}")
        else:
            require_refused_by(rejection.EPOCH, answer)


def _roll(context: CheckContext) -> None:
    """When the epoch ends, the next label is accepted and names the one before; old labels are refused."""
    hub = context.hub(FAST_EPOCHS)
    length, skew = hub.known.profile.epoch_sec, hub.known.limits.max_epoch_skew_sec
    for _attempt in range(3):  # repeat if the epoch ended during the attempt
        before = _fresh_epoch(context, hub)
        writer = context.writer(hub, on=f"at {before.epoch}", epoch=before.epoch - skew // length)
        answer = hub.submit(writer.next())
        if hub.status().epoch == before.epoch:
            break
    else:
        raise ClauseViolation("the epoch ended during all three attempts of this check (core §3.2)")
    require_equal(answer.status, 200, "status of a message at the oldest epoch of the window")
    now = _next_epoch(hub, before)
    require_equal(now.epoch, stream.epoch_at(now.hub_ts, length), "the epoch after the change")
    require_refused_by(rejection.EPOCH, hub.submit(writer.next()))
    newer = context.writer(hub, on="new", epoch=now.epoch)
    receipt = hub.accept(newer.next())
    if hub.admin is not None:
        made = require_one(make(hub, newer.label), "checkpoints of one label")
        require_equal(
            made.label_prev, hub.label(newer.stream_id, now.epoch - 1), "label_prev after the change (H9)"
        )
        require_equal(
            made.epoch, stream.epoch_at(receipt.hub_ts, length), "epoch of the new label's checkpoint (H9)"
        )


def _fresh_epoch(context: CheckContext, hub: HttpHub) -> Status:
    """Return the status in this or the next epoch, with enough time left; skip if that takes too long."""
    speed = CLOCK_SPEED if context.fleet.starts_hubs else 1
    length, now = hub.known.profile.epoch_sec, hub.status()
    left = length - now.hub_ts % length
    wait = left if left > speed else left + length
    if wait > context.options.max_wait * speed:
        raise Skip(f"the next epoch begins in {wait} s: give --max-wait {length + 1}")
    return now if wait == left else _next_epoch(hub, now)


def _next_epoch(hub: HttpHub, before: Status) -> Status:
    """Wait for the next epoch and return its status."""
    max_sec = hub.known.profile.epoch_sec + 5
    deadline = time.monotonic() + max_sec
    while (now := hub.status()).epoch == before.epoch:
        require(time.monotonic() < deadline, f"the epoch has not ended after {max_sec} s (core §3.2)")
        time.sleep(0.1)
    return now


CHECKS: Final = (
    Check("epoch.status", "core §12, §3.2", _status),
    Check("epoch.window", "core §12", _window),
    Check("epoch.roll", "core §12, spec-1 §20 C", _roll),
)
