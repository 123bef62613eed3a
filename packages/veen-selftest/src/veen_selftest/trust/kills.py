"""Kill -9 under load, with hub checkpoints and cosigning: one hub log, which only grows (P1, H2)."""

from __future__ import annotations

import http.client
import threading
import time
from typing import Final

from veen_core.errors import VeenError
from veen_core.ids import Label
from veen_core.receipt import Receipt
from veen_selftest.crash.ledger import Lane, WriterLedger
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.witnessed_hub import WitnessedHub
from veen_selftest.peers.hub_log_reader import PeerHubLogView, try_checkpoint, verify_checkpoint
from veen_selftest.runner.check import Check, ClauseViolation, require
from veen_selftest.runner.context import CheckContext
from veen_selftest.trust.coverage import MAX_ANSWER_SEC, wait_for, wait_for_heads, wait_until_signing
from veen_selftest.trust.views import CheckpointWatch
from veen_selftest.trust.witnesses import wait_cosigned

LANES: Final = (1, 1, 8)
"""Messages per request of each writer; each writes to its own label."""
WITNESS_KILLED_EVERY: Final = 3
"""Rounds after which the witness is killed together with the hub."""


class CheckpointReader:
    """A client that reads hub checkpoints all the time, until the hub is killed."""

    def __init__(self, watch: CheckpointWatch) -> None:
        self._watch = watch
        self._size = 0
        self.seen = 0
        self.violations: list[str] = []

    def run(self, hub: HttpHub) -> None:
        """Read until the hub is killed."""
        try:
            while True:
                checkpoint = try_checkpoint(hub)
                size = checkpoint.size if checkpoint is not None else 0
                require(size >= self._size, f"the hub log shrank from {self._size} to {size} entries (P1)")
                if checkpoint is not None:
                    self._watch.add(checkpoint)
                    self._size = size
                    self.seen += 1
        except (OSError, http.client.HTTPException, EOFError):
            pass  # killed
        except (ClauseViolation, VeenError) as exc:
            self.violations.append(str(exc))


def _under_load(context: CheckContext) -> None:
    """After kills under load the hub has signed no two roots at one size, and its log has not shrunk."""
    witnessed = context.fleet.witnessed_hub()
    try:
        _kill_often(context, witnessed)
    except BaseException:
        if not _is_usable(witnessed.hub):
            context.fleet.forget_witnessed_hub()
        raise


def _is_usable(hub: HttpHub) -> bool:
    """Return whether a hub still runs and signs, so that other checks can use it."""
    try:
        return hub.status().not_signing is None
    except (OSError, http.client.HTTPException, EOFError):
        return False


def _kill_often(context: CheckContext, witnessed: WitnessedHub) -> None:
    watch = CheckpointWatch()
    reader, rounds = CheckpointReader(watch), context.options.crash_rounds
    wait_until_signing(context, witnessed.hub)
    ledgers = [
        WriterLedger([Lane(context.writer(witnessed.hub, f"lane {n}", on=f"label {n}"), per_request)])
        for n, per_request in enumerate(LANES)
    ]
    for done in range(1, rounds + 1):
        _kill_under_load(context, witnessed, [*(each.lanes[0] for each in ledgers), reader])
        if done % WITNESS_KILLED_EVERY == 0:
            witnessed.witness.kill()
            witnessed.witness.start()
        witnessed.restart()
        _check_round(context, witnessed, watch, ledgers)
        require(not reader.violations, "; ".join(reader.violations))
        context.progress(done, rounds)
    _check_end(context, witnessed, watch, ledgers)
    require(reader.seen > 0, "no hub checkpoint was read under load, so nothing was tested")


def _kill_under_load(
    context: CheckContext, witnessed: WitnessedHub, clients: list[Lane | CheckpointReader]
) -> None:
    threads = [threading.Thread(target=client.run, args=(witnessed.hub,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    time.sleep(context.rng.uniform(0.05, 0.4))  # the moment of the kill is random
    witnessed.own.kill()
    for thread in threads:
        thread.join()


def _check_round(
    context: CheckContext, witnessed: WitnessedHub, watch: CheckpointWatch, ledgers: list[WriterLedger]
) -> None:
    """Compare what the hub, its witness and its clients have after a kill."""
    hub = witnessed.hub
    if (cosigned := witnessed.witness.newest(witnessed.origin)) is not None:
        watch.add(verify_checkpoint(hub, cosigned))  # a killed hub may never have served it
    wait_until_signing(context, hub)
    for ledger in ledgers:
        for lane in ledger.lanes:
            lane.writer.hub = hub
        ledger.check_newest(hub)
    if watch.newest is not None and watch.newest.size:
        watch.check_all(_wait_for_size(context, hub, watch.newest.size))


def _wait_for_size(context: CheckContext, hub: HttpHub, size: int) -> PeerHubLogView:
    """Wait until the hub serves a tree of the size that it has signed."""

    def found() -> PeerHubLogView | None:
        checkpoint = try_checkpoint(hub)
        return PeerHubLogView(hub, checkpoint) if checkpoint is not None and checkpoint.size >= size else None

    what = f"the hub signed a hub log of {size} entries and serves a smaller one (P1)"
    return wait_for(context, what, found, MAX_ANSWER_SEC)


def _check_end(
    context: CheckContext, witnessed: WitnessedHub, watch: CheckpointWatch, ledgers: list[WriterLedger]
) -> None:
    """Check every receipt, every label's head, and every hub checkpoint that a client or witness has seen."""
    hub, receipts = witnessed.hub, []
    for ledger in ledgers:
        ledger.check_all(hub)
        require(ledger.acknowledged > 0, "nothing was acknowledged, so nothing was tested")
        receipts.append(_newest_receipt(hub, ledger.lanes[0].writer.label))
    view = wait_for_heads(context, hub, receipts)
    watch.check_all(view)
    wait_cosigned(context, witnessed, hub, view.size)


def _newest_receipt(hub: HttpHub, label: Label) -> Receipt:
    """Return the receipt of a label's last entry, which may belong to a message without an answer."""
    *_others, last = hub.read_all(label)
    assert last.receipt is not None
    return last.receipt


CHECKS: Final = (Check("hub-log.kills", "P1, P3, H2", _under_load),)
