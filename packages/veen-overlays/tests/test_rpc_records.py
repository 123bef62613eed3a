"""RPC0's records accept and refuse what their vectors say (RPC0.1, RPC0.2; RESOLUTIONS P15, B14)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from generated_vectors import check_bad, check_good, folder_cases, generator

from veen_core.errors import EncodeError
from veen_core.hashing import H
from veen_core.ids import ClientId
from veen_core.keys import SigningKey, SigningSeed
from veen_overlays.rpc.exchange import binds, is_late
from veen_overlays.rpc.records import (
    Reply,
    Request,
    ServerLease,
    Take,
    call_key,
    is_authentic,
    sign_lease,
)
from veen_overlays.schema.record import Record

SHAPES: dict[str, type[Record]] = {shape.NAME: shape for shape in (Request, Reply, ServerLease, Take)}
OPERATOR = SigningKey(SigningSeed(b"\x07" * 32))
SERVER = ClientId(b"\x01" * 32)


@pytest.mark.parametrize(("shape", "body", "value"), folder_cases(SHAPES, good=True))
def test_a_good_vector_has_its_value_and_its_bytes(shape: type[Record], body: bytes, value: Any) -> None:
    check_good(shape, body, value)


@pytest.mark.parametrize(("shape", "body", "expected"), folder_cases(SHAPES, good=False))
def test_a_failing_vector_is_refused_with_its_reason(
    shape: type[Record], body: bytes, expected: dict[str, str]
) -> None:
    check_bad(shape, body, expected["match"])


def test_the_vectors_are_what_the_generator_makes() -> None:
    made = generator("generate_rpc")
    assert made.make() == made.on_disk(), "run: python packages/veen-overlays/tests/vectors/generate_rpc.py"


def test_the_schema_ids_are_those_of_the_specification() -> None:
    assert H(b"rpc.v1") == Request.SCHEMA
    assert H(b"rpc.res.v1") == Reply.SCHEMA


def test_a_reply_that_breaks_the_rules_cannot_be_written() -> None:
    with pytest.raises(EncodeError, match="result is present"):
        Reply(ok=True).encode()


def test_an_announcement_counts_only_from_the_key_that_its_principal_signed() -> None:
    lease = sign_lease(OPERATOR, SERVER, ("add",), 30)
    assert is_authentic(lease, bytes(SERVER))
    assert not is_authentic(lease, b"\x02" * 32), "copied by another client"
    assert not is_authentic(replace(lease, client_id=ClientId(b"\x02" * 32)), b"\x02" * 32)
    assert not is_authentic(lease, None)


def test_a_call_is_named_by_method_client_and_idempotency_key() -> None:
    one = call_key("add", b"c" * 32, 1, b"m1")
    assert one == call_key("add", b"c" * 32, 1, b"m2")
    others = [("sub", b"c" * 32, 1), ("add", b"d" * 32, 1), ("add", b"c" * 32, 2), ("add", b"c" * 32, None)]
    assert one not in {call_key(*each, b"m1") for each in others}
    assert call_key("add", b"c" * 32, None, b"m1") != call_key("add", b"c" * 32, None, b"m2")


@pytest.mark.parametrize(
    ("timeout_ms", "now", "late"),
    [
        (None, 2**40, False),
        (0, 100, False),
        (0, 101, True),
        (999, 101, True),
        (1_000, 101, False),
        (1_000, 102, True),
    ],
)
def test_a_request_is_late_once_its_deadline_has_passed(timeout_ms: int | None, now: int, late: bool) -> None:
    assert is_late(100, timeout_ms, now) is late


def test_an_error_that_says_that_nothing_ran_does_not_use_up_the_key() -> None:
    assert binds(None)
    assert binds("math.zero")
    assert binds("rpc.internal")
    assert not binds("rpc.deadline")
    assert not binds("rpc.bad_args")
