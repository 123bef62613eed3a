"""Courses: folds whose events act on the whole state before them, such as a payment that may be refused.

Whether a payment counts depends on the balance before it, which depends on other accounts' payments. No
summary of a range can be shorter than its events in general: refusals can compute any boolean circuit. A
``Course`` is therefore one of two functions of the state before its range:

    state is None    the function that applies ``events`` to the state before
    otherwise        the constant ``state``: the range starts at the log's first message

A prefix has the size of its state, however long it is; another range has the size of its events.
``Overlay.start`` tells a fold where the log starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import Monoid
from veen_overlays.schema.record import Record

S = TypeVar("S")

Advance = Callable[[S, Iterable[Event]], S]
"""Returns the state after some events, given the state before them, which stays unchanged."""


class Course(NamedTuple, Generic[S]):
    """A function of the state before a range; the module explains the fields."""

    state: S | None
    events: tuple[Event, ...] = ()

    def after(self, before: S, advance: Advance[S]) -> S:
        """The state after the range, given the state before it."""
        return advance(before, self.events) if self.state is None else self.state


def course(
    shapes: Iterable[type[Record]],
    advance: Advance[S],
    dump: Callable[[S], Any],
    load: Callable[[Any], S],
) -> Monoid[Course[S]]:
    """The monoid of a course over records of ``shapes``; ``dump`` and ``load`` convert a state."""
    by_name = {shape.NAME: shape for shape in shapes}

    def combine(a: Course[S], b: Course[S]) -> Course[S]:
        if b.state is not None or not (a.events or a.state is not None):
            return b
        if a.state is not None:
            return Course(advance(a.state, b.events)) if b.events else a
        return Course(None, a.events + b.events)

    def join(courses: Sequence[Course[S]]) -> Course[S]:
        constants = [n for n, each in enumerate(courses) if each.state is not None]
        rest = courses[constants[-1] + 1 :] if constants else courses
        events = tuple([event for each in rest for event in each.events])
        return combine(courses[constants[-1]], Course(None, events)) if constants else Course(None, events)

    def load_course(item: Any) -> Course[S]:
        state, events = item
        return Course(
            load(state[0]) if state else None, tuple([_load_event(by_name, each) for each in events])
        )

    return Monoid(
        Course(None),
        combine,
        lambda c: [[] if c.state is None else [dump(c.state)], [_dump_event(each) for each in c.events]],
        load_course,
        join,
    )


def _dump_event(event: Event) -> list[Any]:
    seq, identity, record, repeated, client_id, origin, hub_ts, body = event
    return [seq, identity, record.NAME, body, list(repeated), client_id, origin, hub_ts]


def _load_event(by_name: dict[str, type[Record]], item: Any) -> Event:
    seq, identity, name, body, repeated, client_id, origin, hub_ts = item
    return Event(seq, identity, by_name[name].decode(body), tuple(repeated), client_id, origin, hub_ts, body)
