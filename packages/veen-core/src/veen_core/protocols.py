"""What lies outside the core, as protocols: reading a log, writing to one, telling the time.

Implementations verify before they return (§9): an ``Entry`` that comes out of a ``LogReader`` has
its signatures, invariants and root checked. All of them raise ``VeenError`` and nothing else.
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
    """Tells the time; a hub's never goes back (H3)."""

    def now(self) -> UnixTime: ...


@runtime_checkable
class LogReader(Protocol):
    """Reads durable entries of a label, in order of stream_seq."""

    async def head(self, label: Label) -> Receipt | None:
        """The newest receipt; None for a label that holds nothing."""

    async def page(self, label: Label, from_seq: StreamSeq, max_items: int) -> Sequence[Entry]:
        """At most ``max_items`` entries from ``from_seq`` on; fewer only at the end."""

    def follow(self, label: Label, from_seq: StreamSeq) -> AsyncIterator[Entry]:
        """Entries from ``from_seq`` on, for ever, each as soon as it is durable."""

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt: ...

    async def proof(
        self, label: Label, stream_seq: StreamSeq, tree_size: StreamSeq | None = None
    ) -> MmrProof:
        """Of any leaf against any tree that holds it (B10)."""

    async def consistency(self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency: ...

    async def checkpoint(self, label: Label) -> Checkpoint | None:
        """The latest one; None if there is none yet."""


@runtime_checkable
class LogWriter(Protocol):
    """Submits sealed messages."""

    async def submit(self, msg: Msg) -> Receipt:
        """The hub's receipt: by then the message is durable (H2)."""
