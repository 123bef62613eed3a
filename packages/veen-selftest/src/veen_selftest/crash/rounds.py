"""Kill -9 at once after a receipt, and under load at moments that chance decides (H2)."""

from __future__ import annotations

import threading
import time
from typing import Final

from veen_core.api import ReceiptRequest, ReceiptResponse
from veen_core.receipt import Receipt
from veen_selftest.crash.ledger import Lane, Ledger
from veen_selftest.peers.verifier import VerifiedLog
from veen_selftest.runner.check import Check, require, same
from veen_selftest.runner.context import Bench

LANES: Final = (1, 1, 1, 8, 40)
"""Messages a request."""


def _at_once(bench: Bench) -> None:
    """A receipt that has arrived is kept, however soon after it the hub is killed (H2)."""
    own = bench.own()
    hub = own.start()
    writer = bench.writer(hub)
    given: list[Receipt] = []
    rounds = max(2, bench.effort.crash_rounds // 2)
    for done in range(1, rounds + 1):
        given.append(hub.accept(writer.next()))
        own.kill()
        writer.hub = hub = own.start()
        for receipt in given:
            answer = hub.post(
                "/v1/receipt", ReceiptRequest(label=receipt.label, stream_seq=receipt.stream_seq)
            )
            require(answer.status == 200, f"the message acknowledged at {receipt.stream_seq} is lost (H2)")
            same(answer.read(ReceiptResponse).receipt, receipt, f"the receipt at {receipt.stream_seq}")
        bench.progress(done, rounds)
    same(VerifiedLog(hub, writer.label).read().tree.size, rounds, "entries after as many kills")
    own.kill()


def _under_load(bench: Bench) -> None:
    """Killed under load again and again: no acknowledged message is lost, none is there twice (H2, I8)."""
    own = bench.own()
    hub = own.start()
    lanes = [Lane(bench.writer(hub, f"lane {n}"), together) for n, together in enumerate(LANES)]
    ledger = Ledger(lanes)
    for done in range(1, bench.effort.crash_rounds + 1):
        threads = [threading.Thread(target=lane.run, args=(hub,), daemon=True) for lane in lanes]
        for thread in threads:
            thread.start()
        time.sleep(bench.chance.uniform(0.02, 0.3))  # the moment of the crash is what is random here
        own.kill()
        for thread in threads:
            thread.join()
        hub = own.start()
        for lane in lanes:
            lane.writer.hub = hub
        ledger.check_newest(hub)
        bench.progress(done, bench.effort.crash_rounds)
    ledger.check_all(hub)
    require(ledger.promised > 0, "nothing was acknowledged, so nothing was shown")
    own.kill()


CHECKS: Final = (
    Check("crash.at-once", "H2", _at_once),
    Check("crash.under-load", "H2, I8", _under_load),
)
