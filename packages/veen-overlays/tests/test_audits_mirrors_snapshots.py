"""Audits, mirror records and snapshots against plain interpreters of the document (spec-3 §7, §9, §10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import log_of
from strategies import logs

from veen_core import cbor
from veen_core.errors import VerificationError
from veen_core.ids import MmrRoot, StreamSeq
from veen_overlays.federation import MIRRORS, Mirror
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay, StateHash
from veen_overlays.kv import KV, Put
from veen_overlays.operations.agreement import AGREEMENTS
from veen_overlays.recorder import AUDITS
from veen_overlays.recorder.records import QueryAudit
from veen_overlays.schema.record import Record, decode_record
from veen_overlays.snapshot import SNAPSHOTS, StateCheckpoint, StateId, snapshot, verify_snapshot


def distinct(overlay: Overlay[Any], log: list[Message]) -> list[tuple[int, Record]]:
    """The valid records of a log, each counted once, by the definition of a copy."""
    seen, found = set(), []
    (shape,) = overlay.schemas
    for message in log:
        if message.schema != shape.SCHEMA or message.identity in seen:
            continue
        seen.add(message.identity)
        record = decode_record((shape,), message.body)
        found += [(message.seq, record)] if isinstance(record, Record) else []
    return found


@given(logs(AUDITS))
def test_audits_say_who_read_what_and_when_last(log: list[Message]) -> None:
    rows: dict[Any, Any] = {}
    for seq, record in distinct(AUDITS, log):
        assert isinstance(record, QueryAudit)
        who = bytes(record.requester_identity), record.resource_class, record.resource_identifier
        count = rows[who]["accesses"] if who in rows else 0
        rows[who] = {
            "requester_identity": who[0],
            "resource_class": who[1],
            "resource_identifier": who[2],
            "accesses": count + 1,
            "last_seq": seq,
            "last": cbor.decode(record.encode()),
        }
    view: Any = AUDITS.view(AUDITS.fold(log).inner)
    assert sorted(view, key=repr) == sorted(rows.values(), key=repr)


@given(logs(MIRRORS))
def test_f2_mirror_records_count_once_per_source_entry_and_target(log: list[Message]) -> None:
    rows: dict[Any, Any] = {}
    seen = set()
    for _seq, record in distinct(MIRRORS, log):
        assert isinstance(record, Mirror)
        source = record.source_hub_identifier, bytes(record.source_label)
        row = rows.setdefault(source, {"mirrored": 0, "repeated": 0, "upto": 0})
        entry = *source, record.source_stream_seq, bytes(record.target_label)
        if entry in seen:
            row["repeated"] += 1
        else:
            seen.add(entry)
            row["mirrored"] += 1
            row["upto"] = max(row["upto"], record.source_stream_seq)
    expected = [
        {"source_hub_identifier": hub, "source_label": label, **rows[hub, label]}
        for hub, label in sorted(rows)
    ]
    assert MIRRORS.view(MIRRORS.fold(log).inner) == expected


@given(logs(SNAPSHOTS))
def test_s1_the_latest_snapshot_of_a_state_and_prefix_is_shown(log: list[Message]) -> None:
    latest: dict[Any, Any] = {}
    for _seq, record in distinct(SNAPSHOTS, log):
        assert isinstance(record, StateCheckpoint)
        key = bytes(record.state_id), record.upto_stream_seq, record.state_class
        latest[key] = cbor.decode(record.encode())
    assert sorted(map(repr, SNAPSHOTS.view(SNAPSHOTS.fold(log).inner))) == sorted(map(repr, latest.values()))


@pytest.mark.parametrize("overlay", [KV, AGREEMENTS], ids=lambda each: each.name)
@given(wrong=st.sampled_from(("mmr_root", "state_hash", "upto_stream_seq", "state_class")))
def test_s2_a_snapshot_with_another_root_or_state_is_invalid(overlay: Overlay[Any], wrong: str) -> None:
    summary = overlay.fold(log_of(Put(key=b"k", value=b"v")))
    root = MmrRoot(bytes(32))
    made = snapshot(overlay, summary, StateId(bytes(32)), 1, root)
    verify_snapshot(made, overlay, summary, 1, root)
    changes: dict[str, Any] = {
        "mmr_root": MmrRoot(b"\x01" * 32),
        "state_hash": StateHash(b"\x01" * 32),
        "upto_stream_seq": StreamSeq(2),
        "state_class": "other",
    }
    fields = {each.name: getattr(made, each.name) for each in made.codec.fields}
    with pytest.raises(VerificationError, match=wrong):
        verify_snapshot(StateCheckpoint(**fields | {wrong: changes[wrong]}), overlay, summary, 1, root)
