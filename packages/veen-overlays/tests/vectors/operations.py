"""Make the vectors of the operation profiles, or check that the files are what would be made.

    python packages/veen-overlays/tests/vectors/operations.py    writes
    python packages/veen-overlays/tests/vectors/operations.py --check    prints what differs; 1 if any

``operations/records.json`` has good bodies of each record, and bodies that it refuses with text of the
error. ``operations/cap_tokens.json`` has grants with the tokens they stand for, and grants that have none.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cbor2
from vector_files import as_json, json_files, run

from veen_core.ids import AuthRef, OperationId, StreamId, UnixTime
from veen_overlays.operations.access import AccessGrant, AccessRevoke, cap_token
from veen_overlays.operations.delegation import DelegatedExecution
from veen_overlays.operations.operation import AccountId, IdentityId
from veen_overlays.operations.payment import Domain, PaidOperation
from veen_overlays.operations.results import Claim, Result
from veen_overlays.schema.record import Record

FOLDER = Path(__file__).resolve().parent / "operations"
ANN, BOB = IdentityId(bytes(range(32))), IdentityId(b"\xb0" * 32)
STREAMS = StreamId(b"\x01" * 32), StreamId(b"\x02" * 32)
NOON = 1_700_006_400
PAID = PaidOperation(
    operation_type="translate",
    operation_args={"text": "hello", "to": ["fr", "de"]},
    payer_account=AccountId(b"\x0a" * 32),
    payee_account=AccountId(b"\x0b" * 32),
    amount=40,
)
GRANT = AccessGrant(subject_identity=BOB, allowed_stream_ids=STREAMS, expiry_time=UnixTime(NOON + 3_600))
FULL_GRANT = replace(
    GRANT,
    subject_label="Bob",
    maximum_rate_per_second=10,
    maximum_burst=20,
    maximum_amount=500,
    currency_code="EUR",
    reason="shift",
    parent_operation_id=OperationId(b"\x0c" * 32),
)
EXECUTION = DelegatedExecution(
    principal_identity=ANN,
    agent_identity=BOB,
    delegation_chain=(AuthRef(b"\x0d" * 32), AuthRef(b"\x0e" * 32)),
    operation_schema=PAID.SCHEMA,
    operation_body=cbor2.loads(PAID.encode()),
)
DOMAIN = Domain(authorities=(ANN, BOB), negative_balances=False, grants_required=True, currency_code="EUR")
SHAPES: dict[str, type[Record]] = {
    shape.NAME: shape
    for shape in (PaidOperation, AccessGrant, AccessRevoke, DelegatedExecution, Domain, Claim, Result)
}
GOOD: tuple[tuple[str, Record], ...] = (
    ("required fields", PAID),
    (
        "all fields",
        replace(
            PAID,
            currency_code="EUR",
            operation_reference=OperationId(b"\x01" * 32),
            parent_operation_id=OperationId(b"\x02" * 32),
            ttl_seconds=60,
            metadata={"n": [1, {"deep": None}]},
        ),
    ),
    ("required fields", GRANT),
    ("all fields", FULL_GRANT),
    ("every capability", AccessRevoke(subject_identity=BOB)),
    ("one capability", AccessRevoke(subject_identity=BOB, target_capability_reference=AuthRef(b"\x0d" * 32))),
    ("payment", EXECUTION),
    ("all fields", DOMAIN),
    ("claim", Claim(operation_id=OperationId(b"\x03" * 32))),
    ("done", Result(operation_id=OperationId(b"\x03" * 32), outcome="done", result={"text": "bonjour"})),
)


def _plain(record: Record) -> dict[str, Any]:
    item: dict[str, Any] = cbor2.loads(record.encode())
    return item


def bad() -> list[tuple[type[Record], str, Any, str]]:
    """Record, case, altered map and text of the error."""
    paid, grant, run = _plain(PAID), _plain(FULL_GRANT), _plain(EXECUTION)
    return [
        (PaidOperation, "amount negative", paid | {"amount": -1}, "amount"),
        (PaidOperation, "amount missing", {k: v for k, v in paid.items() if k != "amount"}, "amount"),
        (PaidOperation, "float in the arguments", paid | {"operation_args": [1.5]}, "floats"),
        (PaidOperation, "payer of 31 bytes", paid | {"payer_account": bytes(31)}, "payer_account"),
        (PaidOperation, "optional null", paid | {"metadata": None}, "metadata"),
        (PaidOperation, "keys in another order", dict(reversed(paid.items())), "out of order"),
        (AccessGrant, "no stream", grant | {"allowed_stream_ids": []}, "at least one stream"),
        (AccessGrant, "streams unsorted", grant | {"allowed_stream_ids": list(STREAMS[::-1])}, "sorted"),
        (AccessGrant, "a stream twice", grant | {"allowed_stream_ids": [STREAMS[0]] * 2}, "sorted"),
        (
            AccessGrant,
            "burst without rate",
            {k: v for k, v in grant.items() if k != "maximum_rate_per_second"},
            "maximum_burst",
        ),
        (AccessGrant, "rate beyond the limit", grant | {"maximum_rate_per_second": 100_001}, "14.1"),
        (AccessRevoke, "subject missing", {}, "subject_identity"),
        (DelegatedExecution, "D1: empty chain", run | {"delegation_chain": []}, "D1"),
        (DelegatedExecution, "17 capabilities", run | {"delegation_chain": [bytes(32)] * 17}, "at most 16"),
        (Domain, "authorities unsorted", _plain(DOMAIN) | {"authorities": [BOB, ANN]}, "sorted"),
        (Result, "unknown outcome", {"operation_id": bytes(32), "outcome": "maybe"}, "outcome"),
    ]


def make() -> dict[str, bytes]:
    """Name and content of every file."""
    records: list[dict[str, Any]] = [
        {"record": made.NAME, "case": case, "body": made.encode().hex(), "value": made.codec.write_json(made)}
        for case, made in GOOD
    ]
    records += [
        {"record": shape.NAME, "case": case, "body": cbor2.dumps(item).hex(), "error": text}
        for shape, case, item, text in bad()
    ]
    tokens: list[dict[str, Any]] = []
    for case, grant, hub_ts in (
        ("no rate", GRANT, NOON),
        ("rate and burst", FULL_GRANT, NOON + 1),
        ("last second", GRANT, NOON + 3_600),
    ):
        token = cap_token(grant, ANN, hub_ts)
        tokens.append(
            _grant(case, grant, hub_ts) | {"token": token.encode().hex(), "auth_ref": token.auth_ref.hex()}
        )
    rate_only = replace(FULL_GRANT, maximum_burst=None)
    token = cap_token(rate_only, ANN, NOON)
    tokens.append(
        _grant("rate only", rate_only, NOON)
        | {"token": token.encode().hex(), "auth_ref": token.auth_ref.hex()}
    )
    tokens.append(_grant("expired before its receipt", GRANT, NOON + 3_601) | {"error": "expired"})
    return {"records.json": as_json(records), "cap_tokens.json": as_json(tokens)}


def _grant(case: str, grant: AccessGrant, hub_ts: int) -> dict[str, Any]:
    return {"case": case, "grant": grant.encode().hex(), "issuer": ANN.hex(), "hub_ts": hub_ts}


def on_disk() -> dict[str, bytes]:
    """Name and content of every file."""
    return json_files(FOLDER)


if __name__ == "__main__":
    raise SystemExit(run(FOLDER, make(), on_disk(), sys.argv[1:]))
