"""Kill -9 right after a receipt, and under load at random moments (H2)."""

from __future__ import annotations

import threading
import time
from typing import Final

from veen_core.api import ReceiptRequest, ReceiptResponse
from veen_core.receipt import Receipt
from veen_selftest.crash.ledger import Lane, WriterLedger
from veen_selftest.peers.verifier import VerifiedLog
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext

LANES: Final = (1, 1, 1, 8, 40)
"""Messages per request of each writer."""


def _at_once(context: CheckContext) -> None:
    """A message whose receipt has arrived is kept, even if the hub is killed right after it (H2)."""
    own = context.own_hub()
    hub = own.start()
    writer = context.writer(hub)
    given: list[Receipt] = []
    rounds = max(2, context.options.crash_rounds // 2)
    for done in range(1, rounds + 1):
        given.append(hub.accept(writer.next()))
        own.kill()
        writer.hub = hub = own.start()
        for receipt in given:
            answer = hub.post(
                "/v1/receipt", ReceiptRequest(label=receipt.label, stream_seq=receipt.stream_seq)
            )
            require(answer.status == 200, f"the message acknowledged at {receipt.stream_seq} is lost (H2)")
            require_equal(
                answer.read(ReceiptResponse).receipt, receipt, f"the receipt at {receipt.stream_seq}"
            )
        context.progress(done, rounds)
    require_equal(
        VerifiedLog(hub, writer.label).read().tree.size, rounds, "entries after one message per kill"
    )
    own.kill()


def _under_load(context: CheckContext) -> None:
    """After kills under load no acknowledged message is lost, and none is in the log twice (H2, I8)."""
    own = context.own_hub()
    hub = own.start()
    lanes = [Lane(context.writer(hub, f"lane {n}"), per_request) for n, per_request in enumerate(LANES)]
    ledger = WriterLedger(lanes)
    for done in range(1, context.options.crash_rounds + 1):
        threads = [threading.Thread(target=lane.run, args=(hub,), daemon=True) for lane in lanes]
        for thread in threads:
            thread.start()
        time.sleep(context.rng.uniform(0.02, 0.3))  # the moment of the kill is random
        own.kill()
        for thread in threads:
            thread.join()
        hub = own.start()
        for lane in lanes:
            lane.writer.hub = hub
        ledger.check_newest(hub)
        context.progress(done, context.options.crash_rounds)
    ledger.check_all(hub)
    require(ledger.acknowledged > 0, "nothing was acknowledged, so nothing was tested")
    own.kill()


CHECKS: Final = (
    Check("crash.at-once", "H2", _at_once),
    Check("crash.under-load", "H2, I8", _under_load),
)
