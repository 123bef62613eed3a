"""A faster fold for overlays in which one record is far more frequent than the others.

The frequent record is read from the groups of its pattern, and goes into one map of the summary. Every
message that ``add`` does not take, such as one with a rare optional field, is decoded and lifted as usual.

Measured as the benchmark's ``overlays.fold`` is, on 20,000 messages: confirmations, publications and
approvals reach three to four times the rate of the usual fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from veen_overlays.fold.event import Event, Message, SeenKeys
from veen_overlays.fold.monoid import Monoid
from veen_overlays.schema.record import Record, decode_record

Groups = tuple[Any, ...]
"""The bytes of each field that a pattern has matched; None for an absent field."""
Add = Callable[[dict[bytes, Any], Groups, Message, bytes], bool]
"""Adds a record to the map by its groups, message and event identity; returns False if it does not take it.

The groups match the record's pattern. ``add`` checks what the pattern does not: text, lists, free values and
the rules of the record.
"""


def bulk_fold(
    frequent: type[Record],
    part: str,
    add: Add,
    *,
    others: tuple[type[Record], ...],
    lift: Callable[[Event], Mapping[str, Any]],
    monoid: Monoid[Mapping[str, Any]],
) -> Callable[[Iterable[Message], SeenKeys], tuple[Mapping[str, Any], int, list[Message]]]:
    """The ``bulk`` of an overlay without keys whose monoid combines in any order.

    ``part`` is the map of the summary that the frequent record goes into.
    """
    shapes = {bytes(shape.SCHEMA): (shape,) for shape in (frequent, *others)}
    schema, pattern = bytes(frequent.SCHEMA), frequent.PATTERN
    assert pattern is not None

    def fold(messages: Iterable[Message], seen: SeenKeys) -> tuple[Mapping[str, Any], int, list[Message]]:
        found: dict[bytes, Any] = {}
        lifted, ignored, events = [], list[Message](), 0
        for message in messages:
            identity = message.identity
            if not seen.first(identity, message.seq):
                continue
            events += 1
            groups = pattern.groups(message.body) if message.schema == schema else None
            if groups is not None and add(found, groups, message, identity):
                continue
            event = _event(shapes, message, identity)
            if event is None:
                ignored.append(message)
                events -= 1
            else:
                lifted.append(lift(event))
        whole = monoid.combine_all([*lifted, {part: found}] if found else lifted)
        return whole, events, ignored

    return fold


def _event(
    shapes: Mapping[bytes, tuple[type[Record], ...]], message: Message, identity: bytes
) -> Event | None:
    record = decode_record(shapes.get(message.schema, ()), message.body)
    if not isinstance(record, Record):
        return None
    seq, client, body = message.seq, message.client_id, message.body
    return Event(seq, identity, record, (), client, message.origin, message.hub_ts, body)


def is_utf8(content: bytes) -> bool:
    """Whether the content of a text string is valid, which patterns do not check."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
