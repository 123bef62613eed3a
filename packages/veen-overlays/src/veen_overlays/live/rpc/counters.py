"""The numbers that a server of calls reports when it ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ServerCounters:
    """Counts of a server since its start."""

    executed: int = 0
    failed: int = 0
    """Executions whose reply is an error."""
    repeated: int = 0
    """Replies that repeat an earlier answer (RPC0.3)."""
    late: int = 0
    """Requests answered ``rpc.deadline`` (P15)."""
    refused: int = 0
    """Requests answered without execution, for another reason."""
    taken: int = 0
    """Calls taken over from a server that has died."""
