"""Who caused what: the recorder events of a stream by subject, principal and origin (SDR0 I3, P10).

A summary has, for each pair of principal and signing client_id, the activities before and after the entry
that links the two keys. Combining two ranges moves the activities of the right range behind a link of the
left one, so that a fold in any tree marks the same events as a reader who walks the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from veen_core import cbor
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import Monoid, map_of
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps
from veen_overlays.recorder.attribution import links
from veen_overlays.recorder.records import KeyContinuity, RecordEvent


class Activity(NamedTuple):
    """The events of one subject, origin and event type."""

    events: int
    first_seq: int
    last_seq: int
    first_time: int
    """The smallest event_time, in milliseconds."""
    last_time: int


def _joined(a: Activity, b: Activity) -> Activity:
    return Activity(
        a.events + b.events,
        min(a.first_seq, b.first_seq),
        max(a.last_seq, b.last_seq),
        min(a.first_time, b.first_time),
        max(a.last_time, b.last_time),
    )


Activities = Mapping[bytes, Activity]
"""Activities by the CBOR of ``[subject_id, origin, event_type]``."""

_ACTIVITIES: Final[Monoid[Activities]] = map_of(
    Monoid(Activity(0, 0, 0, 0, 0), _joined, list, Activity._make)  # the unit; ``map_of`` never stores it
)


class SignedActivities(NamedTuple):
    """The activities of one principal that one client_id has signed."""

    linked: bool
    before: Activities
    """Activities before the entry that links the two keys."""
    after: Activities


def _combined(a: SignedActivities, b: SignedActivities) -> SignedActivities:
    join = _ACTIVITIES.combine
    if a.linked:
        return SignedActivities(True, a.before, join(a.after, join(b.before, b.after)))
    return SignedActivities(b.linked, join(a.before, b.before), b.after)


_SIGNED: Final[Monoid[SignedActivities]] = Monoid(
    SignedActivities(False, {}, {}),
    _combined,
    lambda s: [s.linked, _ACTIVITIES.dump(s.before), _ACTIVITIES.dump(s.after)],
    lambda item: SignedActivities(item[0], _ACTIVITIES.load(item[1]), _ACTIVITIES.load(item[2])),
)

ActorState = Mapping[bytes, SignedActivities]
"""By ``principal_id || client_id``; the second part is empty if the signer of an event is not known."""


def _lift(event: Event) -> ActorState:
    record, client = event.record, event.client_id
    if isinstance(record, KeyContinuity):
        if not links(record, client):
            return {}
        return {bytes(record.principal_id + record.client_id): SignedActivities(True, {}, {})}
    assert isinstance(record, RecordEvent)
    what = cbor.encode([record.subject_id, record.origin, record.event_type])
    once = Activity(1, event.seq, event.seq, record.event_time, record.event_time)
    return {bytes(record.principal_id) + (client or b""): SignedActivities(False, {what: once}, {})}


def actor_rows(state: ActorState) -> Iterator[dict[str, Any]]:
    """One row per subject, principal, origin, event type and attribution, in the order of these."""
    rows: dict[tuple[str, bytes, str, str, bool], Activity] = {}
    for key, signed in state.items():
        principal, client = key[:32], key[32:]
        own = principal == client
        for part, attributed in ((signed.before, own), (signed.after, True)):
            for what, activity in part.items():
                subject, origin, kind = _decode(what)
                row = subject, principal, origin, kind, attributed
                rows[row] = _joined(rows[row], activity) if row in rows else activity
    for subject, principal, origin, kind, attributed in sorted(rows):
        activity = rows[subject, principal, origin, kind, attributed]
        yield {
            "subject_id": subject,
            "principal_id": principal,
            "origin": origin,
            "event_type": kind,
            "attributed": attributed,
            **activity._asdict(),
        }


def _decode(what: bytes) -> tuple[str, str, str]:
    item: Any = cbor.decode(what)
    subject, origin, kind = item
    return subject, origin, kind


ACTORS: Final[Overlay[ActorState]] = Overlay(
    name="record.actors",
    title="Who caused what, by subject, principal and origin; unattributed events are marked (SDR0 I3).",
    schemas=(RecordEvent, KeyContinuity),
    monoid=map_of(_SIGNED),
    lift=_lift,
    view=lambda state: list(actor_rows(state)),
    reads_signer=True,
    table=table_of_maps(
        {
            "subject_id": ColumnType.TEXT,
            "principal_id": ColumnType.BYTES,
            "origin": ColumnType.TEXT,
            "event_type": ColumnType.TEXT,
            "attributed": ColumnType.BOOL,
            "events": ColumnType.UINT,
            "first_seq": ColumnType.UINT,
            "last_seq": ColumnType.UINT,
            "first_time": ColumnType.UINT,
            "last_time": ColumnType.UINT,
        }
    ),
)
