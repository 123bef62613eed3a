"""Send an operation and read its outcome in the log (spec-3 §1)."""

from __future__ import annotations

from typing import Any, NamedTuple

from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.overlays.overlay_stream import OverlayStream, sent_data
from veen_core.ids import LeafHash, OperationId, StreamId
from veen_core.msg import operation_id
from veen_core.receipt import Receipt
from veen_overlays.operations.domain.state import DomainState, OperationOutcome
from veen_overlays.operations.overlays import GRANTS, state_after
from veen_overlays.operations.refusal import Refusal
from veen_overlays.schema.record import Record

ACTIONS: dict[str, str] = {
    Refusal.ISSUER: "act as an authority, which the first `veen grant domain` of the stream has named",
    Refusal.EXPIRED: "issue a new grant",
    Refusal.REVOKED: "issue a new grant",
    Refusal.CURRENCY: "choose the --currency of the accounts",
    Refusal.DAILY_LIMIT: "wait for the next UTC day, or have the limit raised (`veen wallet limit`)",
    Refusal.FUNDS: "choose a smaller amount, or deposit first (`veen wallet deposit`)",
    Refusal.NO_GRANT: "ask an authority for a grant with --max-amount (`veen grant issue`)",
    Refusal.AMOUNT: "choose a smaller amount, or ask for another grant",
    Refusal.RATE: "wait, and pay again",
}
"""The next step after a refusal."""


class Published(NamedTuple):
    """An operation in the log, and the state after it."""

    record: Record
    receipt: Receipt
    operation_id: OperationId
    outcome: OperationOutcome
    state: DomainState

    def data(self, stream: StreamId) -> dict[str, Any]:
        """The JSON of the operation: its receipt, its id and its outcome."""
        return {
            **sent_data(self.record, self.receipt, stream.hex()),
            "operation_id": self.operation_id.hex(),
            "outcome": self.outcome.refusal or "applied",
        }


async def publish(source: OverlayStream, record: Record) -> Published:
    """Send an operation; fail if a rule refused it at its position in the log.

    A refused operation stays in the log without an effect. Whether it counts depends on the messages before
    it, and only the hub decides their order.
    """
    receipt = await source.send(record)
    async with source.view(GRANTS) as view:
        state = state_after((await view.state()).summary.inner)
    name = operation_id(LeafHash(receipt.leaf_hash))
    outcome = state.outcome(name)
    if outcome is None:
        raise CommandFailed(
            f"message {receipt.stream_seq} is sent, but your keys do not open it",
            Exit.USAGE,
            action="name the stream's reader key with --reader",
        )
    if outcome.refusal:
        raise CommandFailed(
            f"{outcome.refusal}: message {receipt.stream_seq} has no effect",
            Exit.POLICY,
            ACTIONS.get(outcome.refusal),
            reason=str(outcome.refusal),
        )
    return Published(record, receipt, name, outcome, state)
