"""A hub with recorder events of several kinds, and the events as one process opens them, entry by entry."""

from __future__ import annotations

from typing import Any

from veen_core.entry import Entry
from veen_core.ids import ClientId
from veen_overlays.kv import Put
from veen_overlays.query import canonical_json
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.event import SourceEvent
from veen_overlays.query.plain_engine import PlainEngine, SourceLog
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.recorder.records import RecordEvent, UnixMilliseconds

from .logs import BORN, Hub, reader_key, signing_key

LOGIN, HTTP = "record/security/login", "record/app/http"
READER = "auditor"


def event(number: int, **values: Any) -> RecordEvent:
    """Return event ``number``; every third is a failed login of one of two users."""
    fields: dict[str, Any] = {
        "subject_id": f"user:{number % 2}",
        "principal_id": ClientId(signing_key("alice").public),
        "event_type": "login.failed" if number % 3 == 0 else "login",
        "event_time": UnixMilliseconds(BORN * 1000 + number),
        "origin": f"gate-{number % 4}",
        "payload": {"status": 200 + number, "from": {"port": number, "hash": bytes([number % 256])}},
    }
    return RecordEvent(**(fields | values))


def fill(hub: Hub, *, logins: int = 30) -> None:
    """Write two streams; some entries do not open, are no recorder event, or name another principal."""
    for start in range(0, logins, 8):
        hub.send_records(LOGIN, [event(n) for n in range(start, min(start + 8, logins))], reader=READER)
    hub.send_records(LOGIN, [event(99)], reader="nobody")
    hub.send_records(LOGIN, [Put(key=b"a", value=b"1")], reader=READER)
    hub.send_records(HTTP, [event(n, event_type="http") for n in range(5)], reader=READER, who="bob")


def plain_engine(hub: Hub, *names: str) -> PlainEngine:
    """Return the plain loop over these streams, opened here with veen_core alone."""
    return PlainEngine([_source(hub, name) for name in names])


def _source(hub: Hub, name: str) -> SourceLog:
    label = hub.label(name)
    head = hub.store.read.head(label)
    assert head is not None
    place = {"stream": name, "hub_id": hub.identity.hub_id, "label": label, "epoch": 0}
    entries = [_opened(entry, place) for entry in hub.store.read.entries(label, 1, head.stream_seq)]
    return SourceLog(
        prefix=Prefix(**place, to_seq=head.stream_seq, mmr_root=head.mmr_root),  # type: ignore[arg-type]
        entries=entries,
    )


def _opened(entry: Entry, place: dict[str, Any]) -> SourceEvent | EntryKind:
    try:
        opened = entry.msg.open(reader_key(READER))
    except Exception:  # noqa: BLE001 - whatever the reason, it does not open
        return EntryKind.UNOPENED
    if opened.header.schema != RecordEvent.SCHEMA:
        return EntryKind.OTHER
    found, receipt = RecordEvent.decode(opened.body), entry.receipt
    names = ("subject_id", "event_type", "event_time", "origin")
    return SourceEvent(
        **place,
        **{name: getattr(found, name) for name in names},
        principal_id=bytes(found.principal_id),
        seq=receipt.stream_seq,
        hub_commit_time=receipt.hub_ts * 1000,
        payload_json=canonical_json.encode(found.payload),
        attributed=found.principal_id == entry.msg.client_id,
        receipt=entry.receipt_bytes,
        leaf_hash=receipt.leaf_hash,
    )
