"""Protocols that other packages implement: read a log, write to a log, tell the time.

Implementations verify before they return (§9): the signatures, invariants and root of every ``Entry``
from a ``LogReader`` have been checked. They raise only ``VeenError``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency
from veen_core.entry import Entry
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.msg import Msg
from veen_core.proof import MmrProof
from veen_core.receipt import Receipt


@runtime_checkable
class Clock(Protocol):
    """A clock. The clock of a hub never goes back (H3)."""

    def now(self) -> UnixTime: ...


@runtime_checkable
class LogReader(Protocol):
    """Reads the durable entries of a label in the order of stream_seq."""

    async def head(self, label: Label) -> Receipt | None:
        """Return the newest receipt; None for a label without entries."""

    async def page(self, label: Label, from_seq: StreamSeq, max_items: int) -> Sequence[Entry]:
        """Return up to ``max_items`` entries from ``from_seq`` on; fewer only at the end of the log."""

    def follow(self, label: Label, from_seq: StreamSeq) -> AsyncIterator[Entry]:
        """Yield entries from ``from_seq`` on without end, each as soon as it is durable."""

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt: ...

    async def proof(
        self, label: Label, stream_seq: StreamSeq, tree_size: StreamSeq | None = None
    ) -> MmrProof:
        """Return the inclusion proof of a leaf in any tree that contains it (B10)."""

    async def consistency(self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency: ...

    async def checkpoint(self, label: Label) -> Checkpoint | None:
        """Return the latest checkpoint; None if there is none."""


@runtime_checkable
class LogWriter(Protocol):
    """Submits sealed messages."""

    async def submit(self, msg: Msg) -> Receipt:
        """Return the hub's receipt; the message is durable by then (H2)."""
