"""Who caused what: attribution, migrations and audits (SDR0 I3; RESOLUTIONS P10)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from veen_core.hashing import H, u64be
from veen_core.ids import ClientId, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_overlays.fold.event import Message
from veen_overlays.recorder import ACTORS, AUDITS, MIGRATIONS, Attribution
from veen_overlays.recorder.records import (
    KeyContinuity,
    MigrationRecord,
    QueryAudit,
    RecordEvent,
    UnixMilliseconds,
    sign_continuity,
)
from veen_overlays.schema.record import Record

KEYS = [SigningKey(SigningSeed(bytes([n]) * 32)) for n in range(1, 4)]
IDS = [ClientId(key.public) for key in KEYS]


def event(principal: ClientId, subject: str = "user:ann", kind: str = "login", time: int = 5) -> RecordEvent:
    return RecordEvent(
        subject_id=subject,
        principal_id=principal,
        event_type=kind,
        event_time=UnixMilliseconds(time),
        origin="auth",
        payload=None,
    )


def log_of(*entries: tuple[Record, ClientId | None]) -> list[Message]:
    return [
        Message(n, H(u64be(n)), record.SCHEMA, record.encode(), None, client)
        for n, (record, client) in enumerate(entries, 1)
    ]


def rows(*entries: tuple[Record, ClientId | None]) -> list[dict[str, Any]]:
    found = ACTORS.view(ACTORS.fold(log_of(*entries)).inner)
    assert isinstance(found, list)
    return found


def test_an_event_that_its_principal_signed_is_attributed() -> None:
    (row,) = rows((event(IDS[0]), IDS[0]), (event(IDS[0], time=9), IDS[0]))
    assert row["attributed"] is True
    assert (row["events"], row["first_seq"], row["last_seq"]) == (2, 1, 2)
    assert (row["first_time"], row["last_time"]) == (5, 9)


def test_an_event_that_another_key_signed_is_kept_and_marked() -> None:
    (row,) = rows((event(IDS[0]), IDS[1]))
    assert row["attributed"] is False
    assert row["principal_id"] == IDS[0]


def test_an_event_with_an_unknown_signer_is_not_attributed() -> None:
    (row,) = rows((event(IDS[0]), None))
    assert row["attributed"] is False


def test_a_signed_link_attributes_the_events_after_it_and_not_those_before() -> None:
    link = sign_continuity(KEYS[0], IDS[1])
    marked, kept = rows((event(IDS[0]), IDS[1]), (link, IDS[1]), (event(IDS[0]), IDS[1]))
    assert (marked["attributed"], marked["last_seq"]) == (False, 1)
    assert (kept["attributed"], kept["first_seq"]) == (True, 3)


def test_a_link_that_another_key_sent_or_signed_links_nothing() -> None:
    """Both keys have to agree: one signs the record, the other signs the message."""
    link = sign_continuity(KEYS[0], IDS[1])
    forged = replace(link, principal_id=IDS[2])
    for entry in ((link, IDS[2]), (forged, IDS[1]), (link, None)):
        (row,) = rows(entry, (event(entry[0].principal_id), IDS[1]))
        assert row["attributed"] is False


def any_entry() -> st.SearchStrategy[tuple[Record, ClientId]]:
    at = st.integers(0, len(KEYS) - 1)
    links = st.builds(lambda a, b: sign_continuity(KEYS[a], IDS[b]), at, at)
    events = st.builds(lambda a, kind: event(IDS[a], kind=kind), at, st.sampled_from(("login", "logout")))
    return st.tuples(links | events, at.map(IDS.__getitem__))


@settings(max_examples=60)
@given(entries=st.lists(any_entry(), max_size=16), data=st.data())
def test_a_fold_in_parts_attributes_what_a_reader_of_the_whole_log_attributes(
    entries: list[tuple[Record, ClientId]], data: st.DataObject
) -> None:
    walk, expected = Attribution(), Counter[tuple[bytes, str, bool]]()
    for record, client in entries:
        if isinstance(record, KeyContinuity):
            walk.add(record, client)
        elif isinstance(record, RecordEvent):
            found = walk.attributed(record, client)
            expected[bytes(record.principal_id), record.event_type, found] += 1
    log = log_of(*entries)
    cut = data.draw(st.integers(0, len(log)))
    whole = ACTORS.combine(ACTORS.fold(log[:cut]), ACTORS.fold(log[cut:]))
    assert ACTORS.encode(whole) == ACTORS.encode(ACTORS.fold(log))
    assert ACTORS.encode(ACTORS.load(ACTORS.encode(whole))) == ACTORS.encode(whole)
    shown = {(r["principal_id"], r["event_type"], r["attributed"]): r["events"] for r in whole_rows(whole)}
    assert shown == dict(expected)


def whole_rows(summary: Any) -> list[dict[str, Any]]:
    found = ACTORS.view(summary.inner)
    assert isinstance(found, list)
    return found


def test_migrations_are_listed_in_order() -> None:
    first = MigrationRecord(from_=("a",), to=("b",), reason="rename", at=UnixTime(9))
    second = MigrationRecord(from_=("b",), to=("c", "d"), reason="split", at=UnixTime(3))
    view = MIGRATIONS.view(MIGRATIONS.fold(log_of((first, None), (second, None))).inner)
    assert [each["reason"] for each in view] == ["rename", "split"]


def test_audits_count_the_accesses_of_each_requester_and_resource() -> None:
    def audit(who: ClientId, purpose: str) -> QueryAudit:
        return QueryAudit(
            requester_identity=who,
            resource_identifier="record/app/shop",
            resource_class="system-log",
            purpose_code=purpose,
        )

    log = log_of(*((audit(IDS[n % 2], f"p{n}"), None) for n in range(3)))
    view = AUDITS.view(AUDITS.fold(log).inner)
    by_requester = {row["requester_identity"]: (row["accesses"], row["last"]["purpose_code"]) for row in view}
    assert by_requester == {bytes(IDS[0]): (2, "p2"), bytes(IDS[1]): (1, "p1")}
