"""Settle a stream before its log is read: deliver or drop the messages that an earlier run left pending (P8).

The client keeps the messages of a killed run in its outbox, and sends them before any new message. A bridge
that reads the target's log first would not see them there, and would send their events a second time.
"""

from __future__ import annotations

from veen_core.errors import StateError
from veen_hub.client import Stream


async def settle_pending(stream: Stream) -> None:
    """Deliver the pending messages of a stream; raise while the outcome of one of them is unknown."""
    delivery = await stream.settle()
    if delivery.unanswered:
        raise delivery.failure or StateError(
            f"stream {stream.name}: {len(delivery.unanswered)} messages of an earlier run are unanswered",
            action="try again when the hub answers",
        )
