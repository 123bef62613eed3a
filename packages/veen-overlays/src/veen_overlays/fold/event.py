"""Messages and events: what a fold may look at, and which messages are the same one twice (§11, §11.1).

A fold depends on schema, body and stream order, and on nothing else of a MSG. Two messages are the
same event if they have the same origin and the same payload: a bridge copies schema and body byte for
byte and names the original as ``parent_id`` (ANCHOR0.3, WALBR0 11.3, ID 12.1). The first in order counts,
so a replay or a mirrored copy changes nothing. A message that *answers* another names it as its parent
too (RPC0.1); its payload is another one, so it is an event of its own and can suppress nobody's. (Two
answers to one message with one payload cannot be told from a copy, and count once.) An overlay may
name further keys of its own, such as a transfer_id, of which the first use counts.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from veen_core.hashing import H
from veen_overlays.schema.record import Record

Stamp = tuple[int, int, bytes]
"""``(timestamp, stream_seq, identity)``: the order of §11.1 where a timestamp exists."""

EVENT_TAG: Final = b"veen/event\x00"
"""``Ht``'s tag, spelled out: an identity is computed of every message."""

UNOPENED: Final = bytes(32)
"""Stands for the schema of a message that this reader's key does not open: foreign to every overlay."""


class Message(NamedTuple):
    """An opened MSG, as far as a fold may see it."""

    seq: int
    """``stream_seq``: the primary order."""
    msg_id: bytes
    schema: bytes
    body: bytes
    parent_id: bytes | None = None

    @property
    def origin(self) -> bytes:
        """The msg_id of the message it is a copy of, as it says; else its own."""
        return self.parent_id or self.msg_id

    @property
    def identity(self) -> bytes:
        """What the message is, wherever it was copied from: ``Ht("veen/event", origin, schema, body)``."""
        return H(EVENT_TAG + (self.parent_id or self.msg_id) + self.schema + self.body)


class Event(NamedTuple):
    """A message whose body is the record that its schema promises."""

    seq: int
    identity: bytes
    record: Record
    repeated: tuple[bool, ...] = ()
    """For each key the overlay names: whether an earlier event had it. Empty: none had."""

    def stamp(self, ts: int) -> Stamp:
        return ts, self.seq, self.identity


class IgnoredMessage(NamedTuple):
    """A message that is no event of this overlay: foreign (another's schema) or undecodable."""

    seq: int
    origin: bytes
    schema: bytes
    why: str
    """Empty for a foreign one: it is somebody else's, and nothing is wrong with it."""


class SeenKeys(Protocol):
    """Which keys came before, in stream order."""

    def first(self, key: bytes, seq: int) -> bool:
        """Whether ``seq`` is the first to have the key; then it is taken."""


class MemorySeenKeys:
    """In memory: whoever asks first is first, also if it is the same message again."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: set[bytes] = set()

    def first(self, key: bytes, seq: int) -> bool:  # noqa: ARG002 - a log on disk needs it
        before = len(self._keys)
        self._keys.add(key)
        return len(self._keys) != before
