"""J1: every imported event has exactly one origin receipt, and the origin's bytes (AGB0 4.5, 4.8)."""

from __future__ import annotations

from typing import Final

from veen_overlays.bridge import ImportedEvent
from veen_selftest.bridge.zones import IMPORT, bridged_zones
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext


def _origins(context: CheckContext) -> None:
    """Each exported event is imported once, with its original MSG and RECEIPT, byte for byte."""
    bodies = [f"event {n} {context.rng.random()}" for n in range(25)]
    with bridged_zones(context) as zones:
        for number, part in enumerate((bodies[:10], bodies[10:])):
            zones.send(part)
            code, result = zones.import_(zones.export(str(number)))
            require_equal(code, 0, "exit code of import")
            require_equal(result["bundles"][0]["written"], len(part), "events written")
        events = [ImportedEvent.decode(message.body) for message in zones.read(IMPORT)]
        require_equal([each.source_stream_seq for each in events], list(range(1, 26)), "origins")
        require(
            all(each.source_hub_id == zones.source_id for each in events), "an origin of another hub (J1)"
        )
        exported = zones.read_export()
        require_equal([message.text for message in exported], bodies, "payloads in the export stream")
        require(
            [(each.origin_msg, each.origin_receipt) for each in events]
            == [(message.entry.msg_bytes, message.entry.receipt_bytes) for message in exported],
            "an imported event has not the bytes of its original MSG and RECEIPT (AGB0 4.5)",
        )
        code, found = zones.reconcile()
        require_equal((code, found["findings"]), (0, []), "reconciliation")
        require_equal(found["regions"][0]["to_seq"], 25, "end of the consistent region (K2)")
        code, trace = zones.reconcile("--trace", "12")
        require_equal((code, trace["complete"]), (0, True), "trace of one event (K1)")


CHECKS: Final = (Check("bridge.one-to-one", "AGB0 J1, K1, K2", _origins),)
