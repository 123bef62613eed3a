"""``goals_audit_anchor``: an anchored log is neither replaced nor continued from a copy (ANCHOR0, P3)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from veen_core import cbor
from veen_core.hashing import H
from veen_core.status import LabelRequest
from veen_selftest.peers.verifier import VerifiedLog
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HubSetup
from veen_selftest.trust.memories import require_red

MESSAGES_BEFORE_COPY: Final = 3
"""Messages before the copy of the data is made."""
MESSAGES_AFTER_COPY: Final = 2
"""Messages after it."""


def _anchored(context: CheckContext) -> None:
    """Every anchored root is that of the log, and a hub from an older copy signs nothing."""
    with tempfile.TemporaryDirectory(prefix="veen-selftest-anchor-") as folder:
        ledger = Path(folder) / "ledger"
        setup = HubSetup(
            name="anchored",
            settings={"hub_log": {"max_entries": 1}, "anchor": {"backend": "file", "path": str(ledger)}},
        )
        own = context.own_hub(setup)
        with own.running() as hub:
            writer = context.writer(hub)
            copy = None
            for count in (MESSAGES_BEFORE_COPY, MESSAGES_AFTER_COPY):
                hub.accept_many(writer.many(count))
                for order in ("/tooling/checkpoint", "/tooling/anchor"):
                    answer = hub.admin_post(order, LabelRequest(label=writer.label).encode())
                    require_equal(answer.status, 200, f"status of the answer to {order}")
                copy = copy or context.fleet.restore(own, setup)
            log = VerifiedLog(hub, writer.label).read()
        require(ledger.exists(), "the hub was told to anchor, and there is no ledger")
        anchored = [(seq, root) for label, seq, root in _roots(ledger) if label == writer.label]
        require_equal(
            [seq for seq, _root in anchored],
            [MESSAGES_BEFORE_COPY, MESSAGES_BEFORE_COPY + MESSAGES_AFTER_COPY],
            "anchored positions",
        )
        for seq, root in anchored:
            require_equal(root, log.roots[seq - 1], f"root that is anchored for entry {seq}")
        assert copy is not None
        with copy.running() as restored:
            require_red(context, writer, restored, MESSAGES_BEFORE_COPY)


def _roots(ledger: Path) -> list[tuple[bytes, int, bytes]]:
    """Read label, position and root of each line as an auditor does, without the hub's code (ANCHOR0.1).

    A line is ``{1: offset, 2: hash of the line before, 3: {3: label, 4: upto_seq, 5: mmr_root, ...}}``.
    """
    found, offset, previous = [], 0, bytes(32)
    for item in cbor.split_sequence(ledger.read_bytes()):
        line: Any = cbor.decode(item)
        require_equal((line[1], line[2]), (offset, previous), "place of a line of the ledger")
        offset, previous = offset + len(item), H(item)
        found.append((line[3][3], line[3][4], line[3][5]))
    return found


CHECKS: Final = (Check("goal.audit-anchor", "goals_audit_anchor", _anchored),)
