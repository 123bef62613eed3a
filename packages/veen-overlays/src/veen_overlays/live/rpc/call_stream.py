"""A stream's interface for RPC servers and clients: keys that open it, and a way to send a record (RPC0.1).

The stream's readers share a reader key (H11), to which requests and replies are sealed: a server must be able
to read its own replies after it lost its memory (P15). Entries are read through core's ``LogReader``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from veen_core.entry import Entry
from veen_core.errors import StateError
from veen_core.ids import ClientId, Label, LeafHash, StreamId
from veen_core.keys import DhKey
from veen_core.protocols import LogReader
from veen_core.receipt import Receipt
from veen_overlays.bridge.unwrapping import is_wrapped
from veen_overlays.fold.event import Message
from veen_overlays.live.opening import open_entry
from veen_overlays.schema.record import Record


class CallStream(Protocol):
    """A stream of a connected hub; the shape of veen-hub's ``Stream``."""

    id: StreamId

    @property
    def has_epochs(self) -> bool:
        """Whether the stream changes its label with each epoch (core §12)."""

    def label(self) -> Label:
        """The label that the next message goes to."""

    @property
    def hub_time(self) -> int:
        """The hub's time now, in whole seconds, as its status and receipts have shown it (H3)."""

    @property
    def keys(self) -> Sequence[DhKey]: ...

    async def client_id(self) -> ClientId:
        """The client_id of the next message."""

    async def send(self, body: Record, *, parent: LeafHash | None = None) -> Receipt:
        """Send a record; it is durable when this returns (H2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAccess:
    """One stream under one label: how to read it and how to write to it. Made by ``access``."""

    stream: CallStream
    id: StreamId
    label: Label
    reader: LogReader

    def open(self, entry: Entry) -> Message:
        """Open an entry; one that no key opens has the schema ``UNOPENED``."""
        return open_entry(entry, entry.receipt, self.stream.keys)

    def is_copy(self, entry: Entry, opened: Message) -> bool:
        """Whether an opened message is a wrapped copy of an original that names no parent itself (P4, P7)."""
        if opened.parent_id is None:
            return False
        outer = open_entry(entry, entry.receipt, self.stream.keys, keep_wrappers=True)
        return is_wrapped(outer) and outer.parent_id == opened.parent_id


def access(stream: CallStream, reader: LogReader) -> StreamAccess:
    """The access to a stream of a hub, with the hub's log reader; refuses a stream with epochs (ADR 0026)."""
    if stream.has_epochs:
        raise StateError(
            "calls need one order of all messages; at this hub a stream changes its label with each epoch",
            action="use a hub whose profile has no epochs (default or bulk)",
        )
    return StreamAccess(stream=stream, id=stream.id, label=stream.label(), reader=reader)
