"""QueryDescriptor: validation, defaults and normal form (query-api §4, §10.1)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veen_overlays.query import QueryError, normalise, parse_descriptor, query_id_of

VECTORS = Path(__file__).parent / "vectors" / "query"
VALID = json.loads((VECTORS / "descriptors.json").read_text())
REFUSED = json.loads((VECTORS / "descriptors_fail.json").read_text())
BASE: dict[str, Any] = {
    "query_id": "q-1",
    "scope": ["record/app/http"],
    "filter": {},
    "projection": ["subject_id"],
    "evidence": {"mode": "none"},
}
EXAMPLES = 1000 * int(os.environ.get("VEEN_QUERY_FUZZ", "2"))


@pytest.mark.parametrize("vector", VALID, ids=lambda vector: vector["name"])
def test_a_valid_descriptor_has_this_normal_form(vector: dict[str, Any]) -> None:
    descriptor = parse_descriptor(json.dumps(vector["input"]).encode(), new_query_id="q-new")
    assert descriptor.canonical().decode() == vector["canonical"]
    again = normalise(descriptor.as_json(), new_query_id="q-other")
    assert again == descriptor
    assert again.canonical() == descriptor.canonical()


@pytest.mark.parametrize("vector", REFUSED, ids=lambda vector: vector["name"])
def test_an_invalid_descriptor_is_refused_and_the_error_says_what_to_do(vector: dict[str, Any]) -> None:
    item = {key: value for key, value in (BASE | vector["change"]).items() if value != "(absent)"}
    with pytest.raises(QueryError) as refused:
        normalise(item, new_query_id="q-new")
    error = refused.value
    assert (str(error.code), error.status) == (vector["error_code"], 400)
    assert vector["message"] in error.message
    assert error.action
    assert error.as_json() == {"error_code": vector["error_code"], "message": str(error)}


@pytest.mark.parametrize("item", [None, 1, "x", [], [BASE]])
def test_a_descriptor_is_an_object(item: Any) -> None:
    with pytest.raises(QueryError, match="want an object"):
        normalise(item, new_query_id="q-new")


def test_a_descriptor_that_is_not_json_is_refused_as_invalid_json() -> None:
    with pytest.raises(QueryError) as refused:
        parse_descriptor(b"{", new_query_id="q-new")
    assert refused.value.code == "invalid_json"


def test_a_descriptor_of_more_than_64_kib_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(QueryError, match="at most 65536"):
        parse_descriptor(b'"' + b"x" * 65_536 + b'"', new_query_id="q-new")


def test_the_server_makes_a_query_id_of_16_random_bytes() -> None:
    assert query_id_of(bytes(range(16))) == "q-000102030405060708090a0b0c0d0e0f"
    assert normalise({**BASE, "query_id": None}, new_query_id="q-x").query_id == "q-x"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
WORDS = st.sampled_from(
    [
        "*",
        "count",
        "min(event_time)",
        "sum(payload.a)",
        "payload.a.b",
        "receipt_id",
        "spot",
        "full",
        "2025-11-19T03:20:00Z",
        "",
        "\x00",
        "\ud800",
    ]
)
KEYS = ("query_id", "version", "scope", "filter", "projection", "aggregate", "evidence", "meta", "other")
INNER = (
    *("subject_id", "event_type", "time", "where", "from", "to"),
    *("mode", "sample_rate", "group_by", "metrics", "payload.a"),
)
NEARLY = st.recursive(
    JSON | WORDS | st.sampled_from([0, 1, 2, 0.5, 1.0]),
    lambda inner: (
        st.lists(inner | WORDS, max_size=4) | st.dictionaries(st.sampled_from(INNER), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=EXAMPLES)
@given(st.dictionaries(st.sampled_from(KEYS), NEARLY, max_size=4))
def test_thousands_of_bad_descriptors_give_query_errors_and_nothing_else(change: dict[str, Any]) -> None:
    refused = None
    try:
        descriptor = normalise({**BASE, **change}, new_query_id="q-new")
        assert normalise(descriptor.as_json(), new_query_id="q-other") == descriptor
    except QueryError as exc:
        refused = exc
    if refused is not None:
        assert refused.code in ("invalid_query_descriptor", "unsupported_version", "invalid_json")
        assert refused.status == 400
        assert refused.action
