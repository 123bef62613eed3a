"""Deterministic CBOR: one value, one byte string (§3.1, B3)."""

import enum
import sys
import time
from collections.abc import Callable
from datetime import date

import pytest

from veen_core import DecodeError, HubIdentity, Label, Msg, Receipt, api, cbor, verify_msg
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
def test_a_value_encodes_to_its_bytes_and_decodes_from_them(name: str) -> None:
    wire, value = CANONICAL[name]
    assert cbor.decode(bytes.fromhex(wire)) == value
    assert cbor.encode(value).hex() == wire


@pytest.mark.parametrize("name", REFUSED)
def test_bytes_that_are_not_canonical_are_refused(name: str) -> None:
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


NESTED = {"arrays": (b"\x81", b"\x00"), "maps": (b"\xa1\x00", b"\x00"), "empty arrays": (b"\x81", b"\x80")}


@pytest.mark.parametrize("name", NESTED)
def test_nesting_is_at_most_32_deep(name: str) -> None:
    head, core = NESTED[name]
    inner = core == b"\x80"  # is itself one deep
    assert cbor.MAX_DEPTH == 32
    for decode in (cbor.decode, cbor.decode_items, cbor.item_end, lambda d: list(cbor.split_sequence(d))):
        decode(head * (32 - inner) + core)
        for depth in (33, 34, 100_000):
            with pytest.raises(DecodeError, match="nested deeper than 32"):
                decode(head * (depth - inner) + core)


def test_plain_values_are_at_most_32_deep() -> None:
    value: object = 0
    for _ in range(32):
        value = [value]
    cbor.check_plain(value)
    with pytest.raises(DecodeError):
        cbor.check_plain([value])


def test_a_value_without_an_encoding_is_a_clear_error() -> None:
    with pytest.raises(EncodeError, match="no canonical encoding"):
        cbor.encode(object())


class Word(enum.StrEnum):
    """Text with a name."""

    A = "a"


@pytest.mark.parametrize(
    "item",
    [
        *(1.5, 2**64, -(2**64) - 1, {1, 2}, bytearray(1), date(2026, 1, 1), (1, (2.0,)), [[2**70]]),
        *({"a": [1.5]}, {1.5: 1}, {True: 1}, {None: 1}, {2**64: 1}),
    ],
    ids=repr,
)
def test_a_value_that_deterministic_cbor_forbids_is_not_encoded(item: object) -> None:
    with pytest.raises(EncodeError, match="no canonical encoding"):
        cbor.encode(item)


def test_an_encoded_value_decodes_to_itself() -> None:
    item = [0, 2**64 - 1, -(2**64), b"", "", True, None, {1: [{}], "a": {b"b": []}}]
    assert cbor.decode(cbor.encode(item)) == item
    assert cbor.decode(cbor.encode((Word.A, (1, Label(bytes(32)))))) == ["a", [1, bytes(32)]]


def test_encoding_bounds_nesting_too() -> None:
    deep: list[object] = []
    for _ in range(cbor.MAX_DEPTH):
        deep = [deep]
    with pytest.raises(EncodeError, match="nested deeper"):
        cbor.encode(deep)
    assert cbor.decode(cbor.encode(deep[0])) == deep[0]
    deep.append(deep)
    with pytest.raises(EncodeError, match="nested deeper"):
        cbor.encode(deep)


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
def test_values_that_cbor_cannot_represent_are_not_plain(value: object) -> None:
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


def test_splitting_accepts_an_item_that_its_decoder_refuses() -> None:
    first, long_zero = cbor.split_sequence(bytes.fromhex("011800"))
    assert cbor.decode(first) == 1
    with pytest.raises(DecodeError, match="not canonical CBOR: first difference"):
        cbor.decode(long_zero)


# --- looking over heads before anything is built


ENDS = {
    "an integer": ("00", 1),
    "an integer of eight bytes": ("1b" + "00" * 8, 9),
    "a string": ("43616263", 4),
    "nothing in an array": ("80", 1),
    "an array": ("8201820203", 5),
    "a map": ("a20102036161", 6),
    "a map in a map": ("a101a1020304", 5),
}


@pytest.mark.parametrize("name", ENDS)
def test_an_item_ends_where_its_heads_say(name: str) -> None:
    wire, end = bytes.fromhex(ENDS[name][0]), ENDS[name][1]
    assert cbor.item_end(wire) == end
    assert cbor.item_end(b"\xff" + wire + b"\xff", 1) == end + 1


@pytest.mark.parametrize("name", ENDS)
def test_an_item_that_is_cut_off_ends_early(name: str) -> None:
    wire = bytes.fromhex(ENDS[name][0])[: ENDS[name][1]]
    for length in range(len(wire)):
        with pytest.raises(DecodeError, match="ends early"):
            cbor.item_end(wire[:length])


@pytest.mark.parametrize("key", ["80", "8101", "a0", "f4", "f5", "f6"])
def test_a_map_key_is_an_integer_or_a_string(key: str) -> None:
    for wire in (f"a1{key}00", f"a20000{key}00", f"8101a1{key}00"[:2] + f"a1{key}00"):
        with pytest.raises(DecodeError, match="map key that is neither an integer nor a string"):
            cbor.item_end(bytes.fromhex(wire))
    assert cbor.decode(bytes.fromhex(f"a100{key}" if key != "8101" else "a1008101")) is not None


@pytest.mark.parametrize("key", ["00", "20", "4161", "6161"])
def test_integers_and_strings_are_keys(key: str) -> None:
    assert len(cbor.decode(bytes.fromhex(f"a1{key}00"))) == 1  # type: ignore[arg-type]


def test_an_array_decoded_as_flat_contains_no_array_or_map() -> None:
    assert cbor.decode_items(bytes.fromhex("83014161f6"), flat=True) == [1, b"a", None]
    assert cbor.decode_items(bytes.fromhex("8280a0"), flat=True) == [[], {}]  # for a declaration to refuse
    for wire in ("8183010203", "81a10102", "820182f6f6", "81a18000", "818180"):
        with pytest.raises(DecodeError, match="not CBOR"):
            cbor.decode_items(bytes.fromhex(wire), flat=True)


@pytest.mark.parametrize("wire", ["811800", "8100 00", "9f00ff", "81c100", "8200"])
def test_an_array_decoded_as_flat_must_be_canonical(wire: str) -> None:
    with pytest.raises(DecodeError):
        cbor.decode_items(bytes.fromhex(wire), flat=True)


@pytest.mark.parametrize("wire", [b"\xa1\x80\x00", b"\x98\x18" + b"\x00" * 23 + b"\xa1\x80\x00"])
def test_an_item_other_than_a_short_array_is_scanned_even_with_flat(wire: bytes) -> None:
    with pytest.raises(DecodeError, match="map key"):
        cbor.decode_items(wire, flat=True)


SECRET = b"not to be repeated"


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(b"\xa2" + (b"\x52" + SECRET + b"\x00") * 2, id="a duplicate key"),
        pytest.param(b"\x72" + SECRET[:-1] + b"\xff", id="text that is not UTF-8"),
        pytest.param(b"\xc1\x52" + SECRET, id="a tag around it"),
        pytest.param(b"\x58\x12" + SECRET, id="a length in a longer form"),
        pytest.param(b"\x52" + SECRET + b"\x00", id="something after it"),
        pytest.param(b"\x82\x52" + SECRET, id="something missing after it"),
    ],
)
@pytest.mark.parametrize("flat", [False, True], ids=["looked over", "flat"])
def test_an_error_carries_no_content(wire: bytes, flat: bool) -> None:
    data = b"\x81" + wire if flat else wire
    with pytest.raises(DecodeError) as caught:
        cbor.decode_items(data, flat=flat)
    assert caught.value.__context__ is None
    for part in (SECRET[:8], SECRET[-9:-1]):
        assert part.decode() not in str(caught.value)
        assert part.hex() not in str(caught.value)


# --- keys that collide (tuples hash without a seed, so a map of array keys can cost quadratic time)

_M, _P1, _P2, _P5 = 2**64, 11400714785074694791, 14029467366897019727, 2870177450012600261


def _colliding(count: int) -> list[tuple[int, int]]:
    """Pairs of integers whose tuples hash alike: CPython's xxHash, solved for the second lane."""
    pairs: list[tuple[int, int]] = []
    inverse, first = pow(_P2, -1, _M), 0
    while len(pairs) < count:
        first += 1
        lane = (_P5 + first * _P2) % _M
        second = (12345 - ((lane << 31 | lane >> 33) % _M) * _P1) * inverse % _M
        if second < 2**61 - 1:
            pairs.append((first, second))
        elif 1 < _M - second < 2**61 - 1:
            pairs.append((first, second - _M))
    return pairs


PAIRS = _colliding(14_000)
COLLIDING = b"\xb9" + len(PAIRS).to_bytes(2, "big") + b"".join(cbor.encode(list(p)) + b"\xf6" for p in PAIRS)
PLACES = {
    "alone": COLLIDING,
    "first in an array": b"\x8a" + COLLIDING + b"\x00" * 9,
    "in a map": b"\xa2\x01\x01\x02" + COLLIDING,
    "deep inside": b"\x81" * 31 + COLLIDING,
}
DECODERS: dict[str, Callable[[bytes], object]] = {
    "cbor.decode": cbor.decode,
    "split_sequence": lambda data: list(cbor.split_sequence(data)),
    "Msg.decode": Msg.decode,
    "Receipt.decode": Receipt.decode,
    "HubIdentity.decode": HubIdentity.decode,
    "StreamResponse.decode": api.StreamResponse.decode,
    "verify_msg": verify_msg,
    "unwrap_submit": lambda data: Msg.decode(api.unwrap_submit(data)),
}


@pytest.mark.skipif(sys.maxsize != 2**63 - 1, reason="solved for 64-bit hashes")
def test_the_hashes_of_the_array_keys_collide() -> None:
    assert len({hash(pair) for pair in PAIRS}) == 1
    assert len(set(PAIRS[:100])) == 100
    assert 190_000 < len(COLLIDING) < 220_000


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", DECODERS)
def test_colliding_keys_are_refused_before_they_cost_anything(name: str, place: str) -> None:
    started = time.process_time()
    with pytest.raises(DecodeError):
        DECODERS[name](PLACES[place])
    assert time.process_time() - started < 0.1  # building that map takes seconds
