"""An overlay: a schema set, a total decoder and a summary monoid, as one value (§11.1, §11.3).

``lift`` turns one event into a summary, ``combine`` is associative with ``empty`` as identity, ``view``
renders the state of a whole prefix. The frame around every overlay's own summary is the same: how many
events it holds, how many messages were foreign or undecodable, and the first few of those. A fold never
fails on a message: what is not an event is counted and listed.

Duplicates (see ``event``) are settled *before* lifting, in stream order, by ``SeenKeys``: were the keys part
of every summary, a summary would be as long as its range and no fold could be polylogarithmic (§11.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, Generic, NamedTuple, TypeVar

from veen_core import cbor
from veen_core.hashing import Ht
from veen_core.ids import FixedBytes, SchemaId
from veen_overlays.fold.event import Event, IgnoredMessage, MemorySeenKeys, Message, SeenKeys
from veen_overlays.fold.monoid import Monoid
from veen_overlays.fold.table import WHOLE_STATE, Table
from veen_overlays.schema.record import Record, Undecodable, decode_record

S = TypeVar("S")

SUMMARY_FORMAT: Final = 4
"""Of stored summaries: raised when a summary's bytes change, so that stored ones are folded anew."""
MAX_LISTED: Final = 16
"""How many foreign or undecodable messages a summary names; it counts them all."""


class StateHash(FixedBytes):
    """``Ht("veen/state-" + state_class, serialized state)`` (spec-3 7.4)."""

    __slots__ = ()


class Summary(NamedTuple, Generic[S]):
    """A range folded: the overlay's own part in the frame that all share."""

    events: int
    foreign: int
    undecodable: int
    ignored: tuple[IgnoredMessage, ...]
    inner: S


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay(Generic[S]):
    """A value, not a class to derive from. ``name`` is spec-3's state_class."""

    name: str
    title: str
    schemas: tuple[type[Record], ...]
    monoid: Monoid[S]
    lift: Callable[[Event], S]
    view: Callable[[S], Any]
    """The state of a prefix, as a plain item in a fixed order: what is shown and what is hashed."""
    keys: Callable[[Record], tuple[bytes, ...]] | None = None
    """Keys of which only the first use counts, besides the event's identity."""
    bulk: Callable[[Iterable[Message], SeenKeys], tuple[S, int, list[Message]]] | None = None
    """A faster fold of many messages: its summary, how many events went into it, and what it left aside."""
    table: Table = WHOLE_STATE
    """The rows and columns of the state, for Spark."""
    scope: bytes = b""
    """What an overlay that looks at one thing only looks at: a wallet, a stream."""
    shapes: Mapping[bytes, tuple[type[Record], ...]] = field(init=False)

    def __post_init__(self) -> None:
        shapes: dict[bytes, tuple[type[Record], ...]] = {}
        for schema in self.schemas:
            shapes[schema.SCHEMA] = (*shapes.get(schema.SCHEMA, ()), schema)
        object.__setattr__(self, "shapes", shapes)

    @property
    def empty(self) -> Summary[S]:
        return Summary(0, 0, 0, (), self.monoid.empty)

    @property
    def schema_ids(self) -> tuple[SchemaId, ...]:
        return tuple(SchemaId(schema) for schema in sorted(self.shapes))

    @property
    def class_id(self) -> bytes:
        """What a stored summary is bound to: class, scope, schemas, and the form it is stored in (§11.3)."""
        return Ht("veen/overlay", cbor.encode([self.name, self.scope, list(self.schema_ids), SUMMARY_FORMAT]))

    # --- one message

    def decode(self, message: Message, repeated: tuple[bool, ...] = ()) -> Event | IgnoredMessage:
        """Total (§4.7): the event, or what is wrong with the message."""
        shapes = self.shapes.get(message.schema)
        if shapes is None:
            return IgnoredMessage(message.seq, message.origin, message.schema, "")
        record = decode_record(shapes, message.body)
        if isinstance(record, Undecodable):
            return IgnoredMessage(message.seq, message.origin, message.schema, record.why)
        return Event(message.seq, message.identity, record, repeated)

    def summarise(self, event: Event | IgnoredMessage) -> Summary[S]:
        """Lift into the frame."""
        if isinstance(event, IgnoredMessage):
            foreign = not event.why
            return Summary(0, int(foreign), int(not foreign), (event,), self.monoid.empty)
        return Summary(1, 0, 0, (), self.lift(event))

    def distinct(self, message: Message, seen: SeenKeys) -> Event | IgnoredMessage | None:
        """The event if it is the first of its identity, else None; ``seen`` learns its keys."""
        if not seen.first(message.identity, message.seq):
            return None
        event = self.decode(message)
        repeated = tuple([not seen.first(key, message.seq) for key in self.keys_of(event)])
        return event._replace(repeated=repeated) if isinstance(event, Event) and any(repeated) else event

    def keys_of(self, event: Event | IgnoredMessage) -> tuple[bytes, ...]:
        """The keys of which the first use counts, besides the identity: what a parallel fold groups by."""
        return () if self.keys is None or isinstance(event, IgnoredMessage) else self.keys(event.record)

    # --- ranges

    def combine(self, a: Summary[S], b: Summary[S]) -> Summary[S]:
        """``a`` before ``b``."""
        return Summary(
            a.events + b.events,
            a.foreign + b.foreign,
            a.undecodable + b.undecodable,
            (a.ignored + b.ignored)[:MAX_LISTED],
            self.monoid.combine(a.inner, b.inner),
        )

    def merge(self, summaries: Iterable[Summary[S]]) -> Summary[S]:
        """Neighbours combined in a balanced tree, so that a growing summary is copied log n times."""
        stack: list[tuple[int, Summary[S]]] = []
        for summary in summaries:
            height, right = 0, summary
            while stack and stack[-1][0] == height:
                height, right = height + 1, self.combine(stack.pop()[1], right)
            stack.append((height, right))
        return reduce(lambda right, left: self.combine(left[1], right), reversed(stack), self.empty)

    def fold(self, messages: Iterable[Message], seen: SeenKeys | None = None) -> Summary[S]:
        """The messages in stream order; ``seen`` carries what came before them."""
        seen = MemorySeenKeys() if seen is None else seen
        if self.bulk is not None:
            inner, events, aside = self.bulk(messages, seen)
            faults = self.merge(self.summarise(self.decode(message)) for message in aside)
            return faults._replace(events=events, inner=inner)
        events_ = (self.distinct(message, seen) for message in messages)
        return self.merge(self.summarise(event) for event in events_ if event is not None)

    # --- bytes

    def encode(self, summary: Summary[S]) -> bytes:
        """Canonical: one summary, one byte string."""
        return cbor.encode(
            [*summary[:3], [list(f) for f in summary.ignored], self.monoid.dump(summary.inner)]
        )

    def load(self, data: bytes) -> Summary[S]:
        """The inverse of ``encode``, for bytes that this overlay wrote."""
        item: Any = cbor.decode(data)
        events, foreign, undecodable, ignored, inner = item
        faults = tuple(IgnoredMessage(*fault) for fault in ignored)
        return Summary(events, foreign, undecodable, faults, self.monoid.load(inner))

    def view_json(self, summary: Summary[S]) -> Any:
        """The state for JSON: byte strings in lowercase hex, as keys too (B17)."""
        return _in_json(self.view(summary.inner))

    def state_bytes(self, summary: Summary[S]) -> bytes:
        """The state of a prefix, canonically (spec-3 7.3)."""
        return cbor.encode(self.view(summary.inner))

    def state_hash(self, summary: Summary[S]) -> StateHash:
        """Over the state alone: how a fault is worded is no part of it (spec-3 7.4)."""
        return StateHash(Ht(f"veen/state-{self.name}", self.state_bytes(summary)))


def _in_json(item: Any) -> Any:
    if isinstance(item, bytes):
        return item.hex()
    if isinstance(item, dict):
        return {_in_json(key): _in_json(value) for key, value in item.items()}
    return [_in_json(value) for value in item] if isinstance(item, list) else item
