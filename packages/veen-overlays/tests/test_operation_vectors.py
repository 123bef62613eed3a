"""Records of operations, and the tokens of grants, are what their vectors say (spec-3 2.2 to 4.2, 3.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from generated_vectors import VECTORS, check_bad, check_good, generator

from veen_core import cbor
from veen_core.cap import verify_token
from veen_core.errors import CapError
from veen_core.hashing import H, Ht
from veen_overlays.operations.access import AccessGrant, cap_token

MADE = generator("operations")


def cases(name: str) -> list[Any]:
    found = json.loads((VECTORS / "operations" / name).read_text("utf-8"))
    return [
        pytest.param(each, id=" ".join(str(each[k]) for k in ("record", "case") if k in each))
        for each in found
    ]


@pytest.mark.parametrize("case", cases("records.json"))
def test_a_record_is_decoded_or_refused_as_its_vector_says(case: dict[str, Any]) -> None:
    shape, body = MADE.SHAPES[case["record"]], bytes.fromhex(case["body"])
    if "error" in case:
        check_bad(shape, body, case["error"])
    else:
        check_good(shape, body, case["value"])


@pytest.mark.parametrize("case", cases("cap_tokens.json"))
def test_a_grant_gives_the_token_of_its_vector(case: dict[str, Any]) -> None:
    grant, issuer = AccessGrant.decode(bytes.fromhex(case["grant"])), bytes.fromhex(case["issuer"])
    if "error" in case:
        with pytest.raises(CapError, match=case["error"]):
            cap_token(grant, issuer, case["hub_ts"])
        return
    token = cap_token(grant, issuer, case["hub_ts"])
    assert token.encode().hex() == case["token"]
    assert Ht("veen/cap", bytes.fromhex(case["token"])).hex() == case["auth_ref"] == token.auth_ref.hex()
    with pytest.raises(CapError):
        verify_token(token)  # no hub authorizes it


def test_the_vectors_are_what_the_generator_makes() -> None:
    assert MADE.make() == MADE.on_disk(), "run: python packages/veen-overlays/tests/vectors/operations.py"


@pytest.mark.parametrize(
    "name", ["paid.operation.v1", "access.grant.v1", "access.revoke.v1", "delegated.execution.v1"]
)
def test_the_schema_ids_are_those_of_spec_3(name: str) -> None:
    assert H(f"veen/schema:{name}".encode()) == MADE.SHAPES[name].SCHEMA


def test_the_keys_are_in_the_order_of_the_document() -> None:
    body = cbor.decode(MADE.FULL_GRANT.encode())
    assert isinstance(body, dict)
    assert list(body) == [
        *(
            "subject_identity",
            "subject_label",
            "allowed_stream_ids",
            "expiry_time",
            "maximum_rate_per_second",
        ),
        *("maximum_burst", "maximum_amount", "currency_code", "reason", "parent_operation_id"),
    ]
