"""Make the vectors of records, or check that the files are what would be made.

    python packages/veen-overlays/tests/vectors/generate.py            writes
    python packages/veen-overlays/tests/vectors/generate.py --check    prints what differs; 1 if anything does

A case is a folder: ``wire.hex`` is the body; ``value.json`` is the decoded record of a good case, and
``expect.json`` is text of the error that a ``_fail`` case causes. ``published/`` is never touched.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import cbor2

from veen_core.ids import ClientId, HubId, Label, LeafHash, MmrRoot, StreamId, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_overlays.bridge import ImportedEvent, ImportMapping
from veen_overlays.control.records import HandedOver
from veen_overlays.federation import Mirror
from veen_overlays.fold.overlay import StateHash
from veen_overlays.identifiers import realm_id
from veen_overlays.recorder.records import (
    KeyContinuity,
    MigrationRecord,
    QueryAudit,
    RecordEvent,
    ResultDigestHash,
    UnixMilliseconds,
    sign_continuity,
)
from veen_overlays.schema.record import Record
from veen_overlays.snapshot import StateCheckpoint, StateId

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from handovers import handed_over  # noqa: E402 - a module of the tests, found by the line above
from imported_events import imported  # noqa: E402 - as above
from vector_files import as_json, run  # noqa: E402 - as above

WRITER = ClientId(bytes(range(32)))
SHAPES: dict[str, type[Record]] = {
    shape.NAME: shape
    for shape in (
        RecordEvent,
        MigrationRecord,
        KeyContinuity,
        QueryAudit,
        HandedOver,
        ImportedEvent,
        ImportMapping,
        StateCheckpoint,
        Mirror,
    )
}


def event(payload: Any, **changed: Any) -> RecordEvent:
    fields = {
        "subject_id": "user:ann",
        "principal_id": WRITER,
        "event_type": "login",
        "event_time": UnixMilliseconds(1_700_000_000_123),
        "origin": "auth-service",
    }
    return RecordEvent(**{**fields, **changed}, payload=payload)


def migration(before: tuple[str, ...], after: tuple[str, ...]) -> MigrationRecord:
    return MigrationRecord(
        from_=before, to=after, reason="one stream per service", at=UnixTime(1_700_000_000)
    )


AUDIT = QueryAudit(
    requester_identity=WRITER,
    resource_identifier="patient:1234:lab-results",
    resource_class="personal-data",
    query_parameters={"projection": ["value"], "filter": {"year": 2024}},
    purpose_code="treatment",
    result_digest=ResultDigestHash(b"\x55" * 32),
    request_time=UnixTime(1_700_000_000),
    metadata={"ticket": "T-7"},
)
MINIMAL_AUDIT = QueryAudit(
    requester_identity=WRITER, resource_identifier="record/app/shop", resource_class="system-log"
)

LINK = sign_continuity(SigningKey(SigningSeed(b"\x07" * 32)), WRITER)

PASSED = handed_over(realm_id("shop"), 0, 1, 1_700_000_000)
WRAPPED, RESEALED = imported(resealed=False), imported(resealed=True)
MAPPING = ImportMapping(
    source_hub_id=HubId(b"\x11" * 32),
    source_stream_id=StreamId(b"\x22" * 32),
    source_stream="export/zone1/orders",
    target_stream_id=StreamId(b"\x33" * 32),
    target_stream="import/zone1/orders",
    import_time=UnixTime(1_700_000_000),
    bridge_id=WRITER,
    operator="nightly import",
)

CHECKPOINT = StateCheckpoint(
    state_id=StateId(b"\x66" * 32),
    upto_stream_seq=StreamSeq(9),
    mmr_root=MmrRoot(b"\x77" * 32),
    state_hash=StateHash(b"\x88" * 32),
    state_class="wallet.ledger",
)
MIRROR = Mirror(
    source_hub_identifier="hub.example",
    source_label=Label(b"\x11" * 32),
    source_stream_seq=StreamSeq(7),
    source_leaf_hash=LeafHash(b"\x22" * 32),
    source_receipt_root=MmrRoot(b"\x33" * 32),
    target_label=Label(b"\x44" * 32),
)

GOOD: dict[str, dict[str, Record]] = {
    "record.event.v1": {
        "payload_map": event({"address": "10.0.0.7", "attempts": 3, "ok": True, "note": None}),
        "payload_null": event(None),
        "payload_integers": event([0, -1, 2**53, 2**64 - 1, -(2**64)]),
        "payload_bytes": event({"digest": b"\x00\xff"}),
        "payload_nested": event({"a": [{"b": {"c": []}}]}),
        "text_not_ascii": event({"ключ": "значение"}, subject_id="user:анна", origin="служба"),
        "empty_text": event({}, subject_id="", event_type="", origin=""),
        "time_zero": event({}, event_time=UnixMilliseconds(0)),
    },
    "record.migration.v1": {
        "rename": migration(("record/app/shop",), ("record/app/store",)),
        "split": migration(("record/app/shop",), ("record/app/cart", "record/app/till")),
        "added": migration((), ("record/app/shop",)),
        "retired": migration(("record/app/shop",), ()),
    },
    "record.continuity.v1": {"signed": LINK},
    "veen.fed.handover.v1": {"signed": PASSED},
    "bridge.import.v1": {
        "wrapped": WRAPPED,
        "resealed": RESEALED,
        "resealed_without_leaf": dataclasses.replace(RESEALED, origin_leaf=None),
    },
    "bridge.import.mapping.v1": {"all_fields": MAPPING},
    "query.audit.v1": {"all_fields": AUDIT, "required_fields": MINIMAL_AUDIT},
    "state.checkpoint.v1": {
        "all_fields": dataclasses.replace(CHECKPOINT, metadata={"by": "auditor"}),
        "required_fields": CHECKPOINT,
    },
    "federation.mirror.v1": {
        "all_fields": dataclasses.replace(MIRROR, mirror_time=UnixTime(1_700_000_000), metadata=[1]),
        "required_fields": MIRROR,
    },
}


def plain(record: Record) -> dict[str, Any]:
    """The map of a record, to be altered."""
    item = cbor2.loads(record.encode())
    assert type(item) is dict
    return item


def deep(levels: int) -> Any:
    return {"in": deep(levels - 1)} if levels else 0


def bad() -> dict[str, dict[str, tuple[bytes, str]]]:
    """For each record: the bodies that it refuses, and text of the error."""
    login, move, audit = plain(event({"a": 1})), plain(migration(("a",), ("b",))), plain(AUDIT)
    events = {
        "payload_missing": ({k: v for k, v in login.items() if k != "payload"}, "payload"),
        "payload_integer_key": (login | {"payload": {1: 2}}, "text keys"),
        "payload_bytes_key_inside": (login | {"payload": [{"a": {b"k": 1}}]}, "text keys"),
        "payload_float": (login | {"payload": 1.5}, "floats"),
        "payload_17_levels": (login | {"payload": deep(17)}, "16 deep"),
        "payload_undefined": (login | {"payload": cbor2.undefined}, "simple values"),
        "principal_id_short": (login | {"principal_id": bytes(31)}, "principal_id"),
        "principal_id_text": (login | {"principal_id": "ann"}, "principal_id"),
        "event_time_negative": (login | {"event_time": -1}, "event_time"),
        "event_time_text": (login | {"event_time": "2024-01-01"}, "event_time"),
        "subject_id_null": (login | {"subject_id": None}, "subject_id"),
        "event_type_bytes": (login | {"event_type": b"login"}, "event_type"),
        "unknown_key": (login | {"severity": 1}, "unknown key"),
        "keys_misordered": (dict(reversed(login.items())), "out of order"),
        "array": (list(login.values()), "want map"),
    }
    moves = {
        "no_stream": (move | {"from": [], "to": []}, "at least one stream"),
        "stream_twice": (move | {"to": ["b", "b"]}, "twice"),
        "from_text": (move | {"from": "a"}, "from"),
        "at_missing": ({k: v for k, v in move.items() if k != "at"}, "at"),
    }
    audits = {
        "result_digest_short": (audit | {"result_digest": b"\x55" * 31}, "result_digest"),
        "purpose_code_null": (audit | {"purpose_code": None}, "purpose_code"),
        "query_parameters_integer_key": (audit | {"query_parameters": {1: 2}}, "text keys"),
        "metadata_bytes_key": (audit | {"metadata": {b"k": 2}}, "text keys"),
        "resource_class_missing": (
            {k: v for k, v in audit.items() if k != "resource_class"},
            "resource_class",
        ),
    }
    link = plain(LINK)
    links = {
        "sig_short": (link | {"sig": bytes(63)}, "sig"),
        "client_id_missing": ({k: v for k, v in link.items() if k != "client_id"}, "client_id"),
    }
    handed, mapping = plain(PASSED), plain(MAPPING)
    other = handed_over(PASSED.realm_id, 2, 1, 1_700_000_000)
    forged = dataclasses.replace(PASSED.record, sig=other.record.sig).encode()
    not_signed = "signed by a key of the hub"
    passed = {
        "identity_of_another_hub": (handed | {"identity": other.identity}, not_signed),
        "signature_of_another_hub": (handed | {"handover": forged}, not_signed),
        "handover_is_none": (handed | {"handover": b"\xa0"}, not_signed),
        "realm_id_short": (handed | {"realm_id": bytes(31)}, "realm_id"),
    }
    wrapped, resealed = plain(WRAPPED), plain(RESEALED)
    leaf, other_leaf = resealed["origin_leaf"], "origin_leaf hashes to the leaf of origin_receipt"
    imports = {
        **{
            f"origin_leaf_of_another_{name}": (
                resealed | {"origin_leaf": leaf | {name: 9 if name == "client_seq" else bytes(32)}},
                other_leaf,
            )
            for name in leaf
        },
        "origin_leaf_beside_origin_msg": (wrapped | {"origin_leaf": leaf}, other_leaf),
        "origin_leaf_without_client_id": (
            resealed | {"origin_leaf": {k: v for k, v in leaf.items() if k != "client_id"}},
            "client_id",
        ),
        "origin_msg_of_another_receipt": (
            wrapped | {"origin_msg": wrapped["origin_msg"].replace(wrapped["source_label"], bytes(32))},
            "origin_msg is the message of origin_receipt",
        ),
        "source_stream_seq_of_another_receipt": (
            wrapped | {"source_stream_seq": 2},
            "origin_receipt is the receipt of source_stream_seq",
        ),
    }
    mappings = {
        "source_stream_bytes": (mapping | {"source_stream": b"export/zone1/orders"}, "source_stream"),
        "target_stream_id_short": (mapping | {"target_stream_id": bytes(31)}, "target_stream_id"),
        "operator_missing": ({k: v for k, v in mapping.items() if k != "operator"}, "operator"),
    }
    checkpoint, mirror = plain(CHECKPOINT), plain(MIRROR)
    checkpoints = {
        "state_hash_short": (checkpoint | {"state_hash": bytes(31)}, "state_hash"),
        "upto_stream_seq_negative": (checkpoint | {"upto_stream_seq": -1}, "upto_stream_seq"),
        "mmr_root_missing": ({k: v for k, v in checkpoint.items() if k != "mmr_root"}, "mmr_root"),
        "metadata_null": (checkpoint | {"metadata": None}, "metadata"),
        "keys_misordered": (dict(reversed(checkpoint.items())), "out of order"),
    }
    mirrors = {
        "source_hub_identifier_bytes": (mirror | {"source_hub_identifier": b"hub"}, "source_hub_identifier"),
        "source_leaf_hash_short": (mirror | {"source_leaf_hash": bytes(31)}, "source_leaf_hash"),
        "target_label_missing": ({k: v for k, v in mirror.items() if k != "target_label"}, "target_label"),
        "mirror_time_null": (mirror | {"mirror_time": None}, "mirror_time"),
        "unknown_key": (mirror | {"verified": True}, "unknown key"),
    }
    named = {
        "state.checkpoint.v1": checkpoints,
        "federation.mirror.v1": mirrors,
        "veen.fed.handover.v1": passed,
        "bridge.import.v1": imports,
        "bridge.import.mapping.v1": mappings,
        "record.continuity.v1": links,
        "record.event.v1": events,
        "record.migration.v1": moves,
        "query.audit.v1": audits,
    }
    made = {
        name: {case: (cbor2.dumps(item), text) for case, (item, text) in cases.items()}
        for name, cases in named.items()
    }
    body = event({"a": 1}).encode()
    made["record.event.v1"]["trailing_byte"] = body + b"\x00", "after the item"
    made["record.event.v1"]["truncated"] = body[:-1], "ends early"
    long_time = body.replace(cbor2.dumps(1_700_000_000_123), b"\x1b" + (5).to_bytes(8, "big"))
    made["record.event.v1"]["event_time_long_form"] = long_time, "not canonical"
    return made


Good = dict[str, dict[str, Record]]
Bad = dict[str, dict[str, tuple[bytes, str]]]


def make() -> dict[str, bytes]:
    """Path and content of every file."""
    return files_of(GOOD, bad())


def files_of(good: Good, bad: Bad) -> dict[str, bytes]:
    """Path and content of the files of these cases."""
    files: dict[str, bytes] = {}
    for name, cases in good.items():
        for case, made in cases.items():
            files[f"{name}/{case}/wire.hex"] = made.encode().hex().encode() + b"\n"
            files[f"{name}/{case}/value.json"] = as_json(made.codec.write_json(made))
    for name, refused in bad.items():
        for case, (body, text) in refused.items():
            files[f"{name}/{case}_fail/wire.hex"] = body.hex().encode() + b"\n"
            files[f"{name}/{case}_fail/expect.json"] = as_json({"error": "DecodeError", "match": text})
    return files


def on_disk() -> dict[str, bytes]:
    """Path and content of every file of these records."""
    return files_on_disk(SHAPES)


def files_on_disk(shapes: dict[str, type[Record]]) -> dict[str, bytes]:
    """Path and content of every file of the records of these names."""
    files = [path for name in shapes for path in (HERE / name).rglob("*") if path.is_file()]
    return {path.relative_to(HERE).as_posix(): path.read_bytes() for path in files}


if __name__ == "__main__":
    raise SystemExit(run(HERE, make(), on_disk(), sys.argv[1:]))
