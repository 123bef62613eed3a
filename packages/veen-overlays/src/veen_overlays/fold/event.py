"""Messages and events: the part of a MSG that a fold sees, and how it detects copies (core §11, §11.1).

A fold depends on schema, body and stream order only. Two messages are the same event if they have the same
origin and the same payload: a bridge copies schema and body byte for byte and names the original as
``parent_id`` (ANCHOR0.3, WALBR0 11.3, ID 12.1). The first one in stream order counts, so a replay or a
mirrored copy changes nothing.

A message that *answers* another names it as its parent too (RPC0.1). Its payload differs, so it is an event
of its own. Two answers to one message with the same payload cannot be distinguished from a copy and count
once. An overlay may declare further keys, such as a transfer_id, of which only the first use counts.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from veen_core.hashing import H
from veen_overlays.schema.record import Record

Stamp = tuple[int, int, bytes]
"""``(timestamp, stream_seq, identity)``: the order of events with a timestamp (core §11.1)."""

EVENT_TAG: Final = b"veen/event\x00"
"""The tag of ``Ht("veen/event", …)`` as bytes: every message is hashed with it."""

UNOPENED: Final = bytes(32)
"""The schema given to a message that the reader's keys do not open; every overlay ignores it."""


class Message(NamedTuple):
    """The part of an opened MSG that a fold sees."""

    seq: int
    """The stream_seq, or the position in a stream with epochs."""
    msg_id: bytes
    schema: bytes
    body: bytes
    parent_id: bytes | None = None
    client_id: bytes | None = None
    """The key that signed the MSG: for a wrapped event its original, None if the reader does not know it."""
    hub_ts: int = 0
    """The time of the RECEIPT in the log that was read, in Unix seconds; 0 if the reader does not know it."""

    @property
    def origin(self) -> bytes:
        """The msg_id of the original, if this message claims to be a copy; otherwise its own msg_id."""
        return self.parent_id or self.msg_id

    @property
    def identity(self) -> bytes:
        """The event id that all copies share: ``Ht("veen/event", origin || schema || body)``."""
        return H(EVENT_TAG + (self.parent_id or self.msg_id) + self.schema + self.body)


class Event(NamedTuple):
    """A message whose body is a valid record of its schema."""

    seq: int
    identity: bytes
    record: Record
    repeated: tuple[bool, ...] = ()
    """For each key of the record, whether an earlier event used it; empty if all keys are new."""
    client_id: bytes | None = None
    """The key that signed the message, for overlays that compare it with the record (RESOLUTIONS P10)."""
    origin: bytes = b""
    """The msg_id of the MSG that this one copies or answers, otherwise its own (spec-3 1.1, RPC0.1)."""
    hub_ts: int = 0
    """The time of the message's RECEIPT, for overlays with deadlines or expiry (RESOLUTIONS P15)."""
    body: bytes = b""
    """The canonical bytes of the record."""

    def stamp(self, ts: int) -> Stamp:
        """The event's sort key: ``ts``, then stream_seq, then identity."""
        return ts, self.seq, self.identity


class IgnoredMessage(NamedTuple):
    """A message that an overlay ignores: foreign (another schema) or undecodable (a broken body)."""

    seq: int
    origin: bytes
    schema: bytes
    why: str
    """Why the body cannot be decoded; empty for a foreign message."""


class SeenKeys(Protocol):
    """The keys that earlier events used."""

    def first(self, key: bytes, seq: int) -> bool:
        """Return whether event ``seq`` is the first that uses the key; if it is, record the use."""


class MemorySeenKeys:
    """Used keys in memory; the first call with a key is its first use."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: set[bytes] = set()

    def first(self, key: bytes, seq: int) -> bool:  # noqa: ARG002 - other implementations need it
        if key in self._keys:
            return False
        self._keys.add(key)
        return True
