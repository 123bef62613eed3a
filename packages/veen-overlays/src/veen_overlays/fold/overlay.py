"""The overlay: records, a decoder that never fails, and a summary monoid, as one value (core §11.1, §11.3).

``lift`` turns one event into a summary, ``combine`` joins the summaries of neighbouring ranges, ``view``
turns the summary of a prefix into a state. A ``Summary`` adds to the overlay's own part the numbers of events
and of ignored messages, and lists the first ignored ones. No message makes a fold fail.

Duplicates (see ``event``) are dropped *before* lifting, in stream order, with the help of ``SeenKeys``. If
the keys were part of summaries, a summary would be as long as its range, and no fold could take O(log n)
(core §11.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from veen_core import cbor
from veen_core.hashing import Ht
from veen_core.ids import FixedBytes, SchemaId
from veen_overlays.fold.event import Event, IgnoredMessage, MemorySeenKeys, Message, SeenKeys
from veen_overlays.fold.monoid import Monoid
from veen_overlays.fold.table import WHOLE_STATE, Table
from veen_overlays.schema.record import Record, Undecodable, decode_record

S = TypeVar("S")

SUMMARY_FORMAT: Final = 6
"""Version of stored summaries; increase it when their bytes or keys change, so that logs are folded again."""
MAX_PART_EVENTS: Final = 4_096
"""Events whose summaries are combined at once while a log is folded."""
MAX_LISTED_IGNORED: Final = 16
"""Longest list of ignored messages in a summary; the counts cover all of them."""


class StateHash(FixedBytes):
    """The hash of a state: ``Ht("veen/state-" + name, state)`` (spec-3 7.4)."""

    __slots__ = ()


class Summary(NamedTuple, Generic[S]):
    """The summary of a range: counts that every overlay has, and the overlay's own part."""

    events: int
    foreign: int
    undecodable: int
    ignored: tuple[IgnoredMessage, ...]
    inner: S


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay(Generic[S]):
    """An overlay, declared by its parts; ``name`` is the state_class of spec-3."""

    name: str
    title: str
    schemas: tuple[type[Record], ...]
    monoid: Monoid[S]
    lift: Callable[[Event], S]
    view: Callable[[S], Any]
    """The state of a prefix as a plain CBOR item in a fixed order; it is shown and hashed."""
    keys: Callable[[Record], tuple[bytes, ...]] | None = None
    """The keys of a record of which only the first use counts, in addition to the event's identity."""
    bulk: Callable[[Iterable[Message], SeenKeys], tuple[S, int, list[Message]]] | None = None
    """A faster fold of many messages: the summary, the number of events, and the ignored messages."""
    table: Table = WHOLE_STATE
    """The rows and columns of the state, for Spark."""
    reads_signer: bool = False
    """Whether ``lift`` reads ``Event.client_id``; a reader that does not know the signers must not fold."""
    reads_time: bool = False
    """Whether ``lift`` reads ``Event.hub_ts``; a reader that does not know the receipts must not fold."""
    start: S | None = None
    """Combined before the message at position 1, so that the fold knows where the log starts; see
    ``course``."""
    exchanged: tuple[type[Record], ...] = ()
    """Records about the state that no fold reads, such as queries and replies; the reference lists them."""
    scope: bytes = b""
    """The one wallet or stream that the overlay is restricted to; empty if it is not restricted."""
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
        """The id that stored summaries are bound to: name, scope, schemas and format (core §11.3)."""
        return Ht("veen/overlay", cbor.encode([self.name, self.scope, list(self.schema_ids), SUMMARY_FORMAT]))

    # --- one message

    def decode(self, message: Message, repeated: tuple[bool, ...] = ()) -> Event | IgnoredMessage:
        """Decode a message into an event, or into the reason why it is ignored; never raises (core §4.7)."""
        seq, msg_id, schema, body, parent_id, client_id, hub_ts = message
        shapes = self.shapes.get(schema)
        if shapes is None:
            return IgnoredMessage(seq, message.origin, schema, "")
        record = decode_record(shapes, body)
        if isinstance(record, Undecodable):
            return IgnoredMessage(seq, message.origin, schema, record.why)
        origin = parent_id or msg_id
        return Event(seq, message.identity, record, repeated, client_id, origin, hub_ts, body)

    def summarise(self, event: Event | IgnoredMessage) -> Summary[S]:
        """The summary of one event or ignored message."""
        foreign = isinstance(event, IgnoredMessage) and not event.why
        undecodable = isinstance(event, IgnoredMessage) and not foreign
        ignored = (event,) if isinstance(event, IgnoredMessage) else ()
        return Summary(int(not ignored), int(foreign), int(undecodable), ignored, self._inner(event))

    def _inner(self, event: Event | IgnoredMessage) -> S:
        """The overlay's part of the summary; the log's first message also tells that the log starts there."""
        inner = self.monoid.empty if isinstance(event, IgnoredMessage) else self.lift(event)
        return inner if self.start is None or event.seq != 1 else self.monoid.combine(self.start, inner)

    def distinct(self, message: Message, seen: SeenKeys) -> Event | IgnoredMessage | None:
        """Decode a message; None if it repeats an earlier event. ``seen`` records its keys."""
        if not seen.first(message.identity, message.seq):
            return None
        event = self.decode(message)
        if self.keys is None:
            return event
        repeated = tuple([not seen.first(key, message.seq) for key in self.keys_of(event)])
        return event._replace(repeated=repeated) if isinstance(event, Event) and any(repeated) else event

    def keys_of(self, event: Event | IgnoredMessage) -> tuple[bytes, ...]:
        """The keys of an event of which only the first use counts; a parallel fold groups by them."""
        return () if self.keys is None or isinstance(event, IgnoredMessage) else self.keys(event.record)

    # --- ranges

    def combine(self, a: Summary[S], b: Summary[S]) -> Summary[S]:
        """The summary of ``a`` followed by ``b``."""
        return Summary(
            a.events + b.events,
            a.foreign + b.foreign,
            a.undecodable + b.undecodable,
            (a.ignored + b.ignored)[:MAX_LISTED_IGNORED],
            self.monoid.combine(a.inner, b.inner),
        )

    def merge(self, summaries: Iterable[Summary[S]]) -> Summary[S]:
        """Combine neighbouring summaries in a balanced tree, so that each part is copied log n times."""
        stack: list[tuple[int, Summary[S]]] = []
        for summary in summaries:
            height, right = 0, summary
            while stack and stack[-1][0] == height:
                height, right = height + 1, self.combine(stack.pop()[1], right)
            stack.append((height, right))
        return reduce(lambda right, left: self.combine(left[1], right), reversed(stack), self.empty)

    def fold(self, messages: Iterable[Message], seen: SeenKeys | None = None) -> Summary[S]:
        """Fold messages in stream order; ``seen`` contains the keys of all earlier messages."""
        seen = MemorySeenKeys() if seen is None else seen
        if self.bulk is not None:
            inner, events, ignored = self.bulk(messages, seen)
            frame = self.merge(self.summarise(self.decode(message)) for message in ignored)
            return frame._replace(events=events, inner=inner)
        return self.merge(self._fold_parts(messages, seen))

    def _fold_parts(self, messages: Iterable[Message], seen: SeenKeys) -> Iterator[Summary[S]]:
        """Summaries of at most ``MAX_PART_EVENTS`` messages; each part is combined at once."""
        distinct = (event for message in messages if (event := self.distinct(message, seen)) is not None)
        while part := list(islice(distinct, MAX_PART_EVENTS)):
            ignored = [event for event in part if isinstance(event, IgnoredMessage)]
            frame = reduce(self.combine, map(self.summarise, ignored), self.empty)
            inner = self.monoid.combine_all([self._inner(event) for event in part])
            yield frame._replace(events=len(part) - len(ignored), inner=inner)

    # --- bytes

    def encode(self, summary: Summary[S]) -> bytes:
        """The canonical bytes of a summary."""
        return cbor.encode(
            [*summary[:3], [list(f) for f in summary.ignored], self.monoid.dump(summary.inner)]
        )

    def load(self, data: bytes) -> Summary[S]:
        """The inverse of ``encode``, for bytes of this overlay."""
        item: Any = cbor.decode(data)
        events, foreign, undecodable, ignored, inner = item
        faults = tuple(IgnoredMessage(*fault) for fault in ignored)
        return Summary(events, foreign, undecodable, faults, self.monoid.load(inner))

    def view_json(self, summary: Summary[S]) -> Any:
        """The state for JSON: byte strings, also as keys, in lowercase hex (RESOLUTIONS B17)."""
        return in_json(self.view(summary.inner))

    def state_bytes(self, summary: Summary[S]) -> bytes:
        """The canonical bytes of the state of a prefix (spec-3 7.3)."""
        return cbor.encode(self.view(summary.inner))

    def state_hash(self, summary: Summary[S]) -> StateHash:
        """The hash of the state of a prefix; ignored messages are not part of it (spec-3 7.4)."""
        return StateHash(Ht(f"veen/state-{self.name}", self.state_bytes(summary)))


def in_json(item: Any) -> Any:
    """A plain item for JSON: byte strings, also as keys, in lowercase hex (RESOLUTIONS B17)."""
    if isinstance(item, bytes):
        return item.hex()
    if isinstance(item, dict):
        return {in_json(key): in_json(value) for key, value in item.items()}
    return [in_json(value) for value in item] if isinstance(item, list) else item
