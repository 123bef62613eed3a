"""Canonical JSON, timestamps and fields (query-api §3, RESOLUTIONS P12)."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen_overlays.query import QueryError, canonical_json
from veen_overlays.query.request.fields import parse_field
from veen_overlays.query.request.timestamp import format_timestamp, parse_timestamp
from veen_overlays.query.values import at_path

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)

# RFC 8785, appendix B: the bits of a double and its text.
RFC_8785_NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize(("bits", "text"), RFC_8785_NUMBERS.items())
def test_a_double_has_the_form_of_rfc_8785(bits: str, text: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        ({"\u20ac": 1, "\r": 2, "\U0001f600": 3, "\ufb33": 4}, '{"\\r":2,"€":1,"\ufb33":4,"😀":3}'),
        ('\x00\x1f\x7f"\\/\b\f\n\r\t€', '"\\u0000\\u001f\x7f\\"\\\\/\\b\\f\\n\\r\\t€"'),
        (2**53 + 1, "9007199254740993"),
        (-(2**64), "-18446744073709551616"),
        (b"\x00\xff", '"00ff"'),
        (1.0, "1"),
        ((), "[]"),
    ],
)
def test_a_value_has_one_encoding(value: object, text: str) -> None:
    assert canonical_json.encode(value).decode() == text


@given(JSON)
def test_encoding_decoding_and_encoding_again_gives_the_same_bytes(value: Any) -> None:
    data = canonical_json.encode(value)
    assert canonical_json.encode(canonical_json.decode_canonical(data)) == data
    assert canonical_json.encode(canonical_json.decode(json.dumps(value))) == data


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), "\ud800", {1: 2}, object(), {1}, 10**128, json.loads("[" * 33 + "]" * 33)],
)
def test_a_value_without_a_json_form_is_refused(value: object) -> None:
    with pytest.raises(QueryError) as refused:
        canonical_json.encode(value)
    assert (refused.value.code, refused.value.status) == ("invalid_json", 400)
    assert refused.value.action


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"nul",
        b'{"a":1,"a":2}',
        b"NaN",
        b"Infinity",
        b"1e400",
        b"1" * 129,
        b'"\\ud800"',
        b'"\xff"',
        b"\xef\xbb\xbf1",
        b"[" * 33 + b"]" * 33,
        b"[" * 1_000_000,
        b'{"a":' * 100_000,
        b'"\n"',
        b"01",
        b"1 2",
    ],
    ids=lambda data: repr(data[:16]),
)
def test_text_that_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(QueryError) as refused:
        canonical_json.decode(data)
    assert refused.value.code == "invalid_json"


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    with contextlib.suppress(QueryError):
        value = canonical_json.decode(data)
        assert canonical_json.decode_canonical(canonical_json.encode(value)) == value


@pytest.mark.parametrize("data", [b"1.0", b"1e2", b'{"b":1,"a":2}', b" 1", b'"\\u0041"', b"-0", b"[1, 2]"])
def test_json_that_is_not_canonical_is_refused_where_canonical_is_required(data: bytes) -> None:
    canonical_json.decode(data)
    with pytest.raises(QueryError, match="not canonical"):
        canonical_json.decode_canonical(data)


def test_a_text_that_is_too_long_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(QueryError, match="at most 10"):
        canonical_json.decode(b"[1,2,3,4,5,6]", max_bytes=10)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2025-11-19T03:20:00Z", 1_763_522_400_000),
        ("2025-11-19T03:20:00.042Z", 1_763_522_400_042),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_a_timestamp_is_read_and_written_with_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_timestamp(text) == milliseconds
    assert parse_timestamp(format_timestamp(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2025-11-19",
        "2025-11-19T03:20:00",
        "2025-11-19T03:20:00+00:00",
        "2025-11-19 03:20:00Z",
        "2025-13-19T03:20:00Z",
        "2025-02-29T03:20:00Z",
        "2025-11-19T24:00:00Z",
        "2025-11-19T03:20:60Z",
        "2025-11-19T03:20:00.1Z",
        "2025-11-19T03:20:00.1234Z",
        "1969-12-31T23:59:59Z",
        "٢٠٢٥-11-19T03:20:00Z",
        "2025-11-19T03:20:00Z\n",
    ],
)
def test_other_forms_of_a_time_are_refused(text: str) -> None:
    assert parse_timestamp(text) is None


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_different_times_have_different_texts(a: int, b: int) -> None:
    assert (format_timestamp(a) == format_timestamp(b)) == (a == b)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", {"b": [10, {"c": 1}]}),
        ("a.b.0", 10),
        ("a.b.1.c", 1),
        ("a.b.2", None),
        ("a.b.01", None),
        ("a.b.-1", None),
        ("a.b.\u0660", None),
        ("a.b.99999999999999999999", None),
        ("a.x", None),
        ("a.b.0.c", None),
    ],
)
def test_a_dotted_path_leads_to_a_value_or_to_null(path: str, value: object) -> None:
    field = parse_field(f"payload.{path}", "projection")
    assert field.path is not None
    assert at_path({"a": {"b": [10, {"c": 1}]}}, field.path) == value


@pytest.mark.parametrize(
    "name", ["", "payload.", "payload..a", "payload.a.", "x", "payload.\n", "Payload", 1, "*"]
)
def test_a_name_that_is_no_field_is_refused(name: object) -> None:
    with pytest.raises(QueryError) as refused:
        parse_field(name, "projection")
    assert refused.value.code == "invalid_query_descriptor"
