"""Deterministic CBOR: one value, one byte string (§3.1, B3)."""

import pytest

from veen_core import DecodeError, cbor
from veen_core.errors import EncodeError

CANONICAL = {
    "zero": ("00", 0),
    "one byte": ("1818", 24),
    "largest": ("1bffffffffffffffff", 2**64 - 1),
    "smallest": ("3bffffffffffffffff", -(2**64)),
    "bytes": ("43616263", b"abc"),
    "text": ("63616263", "abc"),
    "array": ("83010203", [1, 2, 3]),
    "map": ("a2010a020b", {1: 10, 2: 11}),
    "text keys in document order": ("a2617a01616102", {"z": 1, "a": 2}),
    "null": ("f6", None),
    "booleans": ("82f5f4", [True, False]),
}

REFUSED = {
    "an integer in a longer form": "1800",
    "a length in a longer form": "5803616263",
    "an array length in a longer form": "980101",
    "an indefinite byte string": "5f4161ff",
    "an indefinite array": "9f01ff",
    "an indefinite map": "bf0101ff",
    "an epoch date": "c100",
    "a text date": "c074323031332d30332d32315432303a30343a30305a",
    "a big number that fits": "c24101",
    "a regular expression": "d8236161",
    "a shared reference": "d81c80",
    "a self-described value": "d9d9f701",
    "an unknown tag": "d9cafe01",
    "a half float": "f93c00",
    "a single float": "fa3f800000",
    "a double float": "fb3ff0000000000000",
    "not a number": "f97e00",
    "undefined": "f7",
    "another simple value": "f0",
    "a simple value in two bytes": "f820",
    "a duplicate key": "a201010102",
    "a null key": "a1f601",
    "an array as a key": "a1800 1".replace(" ", ""),
    "a map key": "a1a001",
    "a boolean key": "a1f501",
    "a float key": "a1f93c0001",
    "trailing bytes": "0000",
    "nothing": "",
    "a cut array": "8301",
    "a cut string": "5820ab",
    "a break alone": "ff",
    "a reserved length": "1c",
    "text that is not UTF-8": "62c328",
    "an array longer than memory": "9b7fffffffffffffff",
    "a string longer than memory": "5b7fffffffffffffff",
    "a negative beyond 64 bits as a tag": "c349010000000000000000",
}


@pytest.mark.parametrize("name", CANONICAL)
def test_a_value_and_its_bytes_go_both_ways(name: str) -> None:
    wire, value = CANONICAL[name]
    assert cbor.decode(bytes.fromhex(wire)) == value
    assert cbor.encode(value).hex() == wire


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(DecodeError):
        cbor.decode(bytes.fromhex(REFUSED[name]))


def test_the_first_difference_is_named() -> None:
    with pytest.raises(DecodeError, match="first difference at byte 1"):
        cbor.decode(bytes.fromhex("821800 01".replace(" ", "")))
    with pytest.raises(DecodeError, match="2 bytes after the item"):
        cbor.decode(bytes.fromhex("000000"))


def test_a_tag_is_named_as_the_reason() -> None:
    with pytest.raises(DecodeError, match="tags are not allowed"):
        cbor.decode(bytes.fromhex("c100"))


def test_nesting_is_bounded() -> None:
    deep = lambda n: b"\x81" * n + b"\x00"  # noqa: E731
    cbor.decode(deep(cbor.MAX_DEPTH - 1))
    for depth in (cbor.MAX_DEPTH + 1, 100_000):
        with pytest.raises(DecodeError):
            cbor.decode(deep(depth))


def test_what_has_no_encoding_is_said() -> None:
    with pytest.raises(EncodeError, match="no canonical encoding"):
        cbor.encode(object())


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(1.5, id="float"),
        pytest.param(2**64, id="too large"),
        pytest.param(-(2**64) - 1, id="too small"),
        pytest.param({1.5: 1}, id="float key"),
        pytest.param([{"a": {1, 2}}], id="a set inside"),
        pytest.param((1,), id="tuple"),
    ],
)
def test_only_plain_values_are_plain(value: object) -> None:
    with pytest.raises(DecodeError):
        cbor.check_plain(value)


# --- sequences (RFC 8742, H14)


def test_a_sequence_is_split_into_the_bytes_of_its_items() -> None:
    items = [cbor.encode(x) for x in (1, [2, 3], {"a": b"b"})]
    assert list(cbor.split_sequence(b"".join(items))) == items
    assert list(cbor.split_sequence(b"")) == []


@pytest.mark.parametrize(
    ("tail", "match"),
    [
        pytest.param("1800", "item at byte 1", id="not canonical"),
        pytest.param("8201", "not CBOR", id="cut off"),
        pytest.param("c100", "not CBOR", id="a tag"),
        pytest.param("9fff", "not CBOR", id="indefinite"),
    ],
)
def test_a_sequence_is_good_up_to_its_first_bad_item(tail: str, match: str) -> None:
    items = cbor.split_sequence(b"\x01" + bytes.fromhex(tail))
    assert next(items) == b"\x01"
    with pytest.raises(DecodeError, match=match):
        next(items)
