"""Make the vectors of RPC0's records, or check them; see ``generate``.

python packages/veen-overlays/tests/vectors/generate_rpc.py [--check]
"""

from __future__ import annotations

import sys

import cbor2
from generate import HERE, Bad, deep, files_of, files_on_disk, plain
from vector_files import run

from veen_core.ids import ClientId, StreamId
from veen_core.keys import SigningKey, SigningSeed
from veen_overlays.rpc.records import CallKey, ErrorBody, Reply, Request, ServerLease, Take, sign_lease
from veen_overlays.schema.record import Record

SHAPES: dict[str, type[Record]] = {shape.NAME: shape for shape in (Request, Reply, ServerLease, Take)}
OPERATOR = SigningKey(SigningSeed(b"\x07" * 32))
SERVER = ClientId(bytes(range(32)))
LEASE = sign_lease(OPERATOR, SERVER, ("add", "divide"), 30)

GOOD: dict[str, dict[str, Record]] = {
    "rpc.v1": {
        "required_fields": Request(method="add", args=None),
        "args_by_position": Request(method="add", args=[2, 3]),
        "all_fields": Request(
            method="add",
            args={"a": 2, "b": 3},
            timeout_ms=5_000,
            reply_to=StreamId(b"\x33" * 32),
            idem=2**64 - 1,
        ),
        "idem_zero": Request(method="", args=b"\x00", idem=0),
    },
    "rpc.res.v1": {
        "result": Reply(ok=True, result=5),
        "result_false": Reply(ok=True, result=False),
        "result_map": Reply(ok=True, result={"sum": [1, b"\x02", "3", None]}),
        "error": Reply(ok=False, error=ErrorBody(code="rpc.deadline")),
        "error_with_detail": Reply(ok=False, error=ErrorBody(code="math.zero", detail="the divisor is 0")),
    },
    "rpc.server.v1": {
        "announcement": LEASE,
        "withdrawal": sign_lease(OPERATOR, SERVER, (), 0),
        "new_client_id": sign_lease(OPERATOR, SERVER, ("add",), 300, ClientId(b"\x44" * 32)),
    },
    "rpc.take.v1": {"take": Take(call=CallKey(b"\x55" * 32))},
}


def bad() -> Bad:
    """For each record: the bodies that it refuses, and text of the error."""
    request, answer = plain(GOOD["rpc.v1"]["all_fields"]), plain(GOOD["rpc.res.v1"]["result"])
    failure, lease = plain(GOOD["rpc.res.v1"]["error"]), plain(LEASE)
    requests = {
        "method_missing": ({k: v for k, v in request.items() if k != "method"}, "method"),
        "args_missing": ({k: v for k, v in request.items() if k != "args"}, "args"),
        "args_float": (request | {"args": 1.5}, "floats"),
        "args_17_levels": (request | {"args": deep(17)}, "16 deep"),
        "timeout_negative": (request | {"timeout_ms": -1}, "timeout_ms"),
        "timeout_null": (request | {"timeout_ms": None}, "timeout_ms"),
        "reply_to_short": (request | {"reply_to": bytes(31)}, "reply_to"),
        "idem_first": ({"idem": 1} | {k: v for k, v in request.items() if k != "idem"}, "out of order"),
        "idem_text": (request | {"idem": "1"}, "idem"),
        "unknown_key": (request | {"version": 1}, "unknown key"),
    }
    replies = {
        "ok_without_result": ({"ok": True}, "result is present if ok is true"),
        "ok_with_error": (answer | {"error": {"code": "x"}}, "error is present if ok is false"),
        "error_with_result": ({"ok": False, "result": 5, "error": {"code": "x"}}, "result is present"),
        "failure_without_error": ({"ok": False}, "error is present if ok is false"),
        "result_null": (answer | {"result": None}, "result"),
        "error_without_code": (failure | {"error": {"detail": "why"}}, "code"),
        "ok_integer": (answer | {"ok": 1}, "ok"),
    }
    leases = {
        "methods_unsorted": (lease | {"methods": ["divide", "add"]}, "sorted and unique"),
        "methods_twice": (lease | {"methods": ["add", "add"]}, "sorted and unique"),
        "lease_too_long": (lease | {"lease_sec": 301}, "at most 300"),
        "sig_short": (lease | {"sig": bytes(63)}, "sig"),
    }
    takes = {"call_short": ({"call": bytes(31)}, "call"), "call_missing": ({}, "call")}
    named = {"rpc.v1": requests, "rpc.res.v1": replies, "rpc.server.v1": leases, "rpc.take.v1": takes}
    return {
        name: {case: (cbor2.dumps(item), text) for case, (item, text) in cases.items()}
        for name, cases in named.items()
    }


def make() -> dict[str, bytes]:
    """Path and content of every file."""
    return files_of(GOOD, bad())


def on_disk() -> dict[str, bytes]:
    """Path and content of every file of these records."""
    return files_on_disk(SHAPES)


if __name__ == "__main__":
    raise SystemExit(run(HERE, make(), on_disk(), sys.argv[1:]))
