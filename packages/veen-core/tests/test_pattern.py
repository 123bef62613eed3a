"""A pattern and the general codec give the same values, and the pattern accepts nothing else (§3.1)."""

import contextlib
import random
from dataclasses import dataclass
from typing import Any, Literal, NewType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen_core import DecodeError, Label, Msg, Receipt, cbor
from veen_core.codec import ArrayCodec
from veen_core.hashing import U64_MAX
from veen_core.ids import Signature
from veen_core.kinds import UINT, AnyValue, Bytes, Nullable, Scalar
from veen_core.pattern import pattern_of
from veen_core.wire import Wire, array

Count = NewType("Count", int)
NUMBERS = [0, 1, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, U64_MAX]
LENGTHS = [0, 1, 23, 24, 255, 256, 65_535, 65_536]


@array("PLAIN", section="9.9")
@dataclass(frozen=True, slots=True, kw_only=True)
class Plain(Wire):
    """Every kind that has a pattern, and two strings of variable length."""

    ver: Literal[1, 2] = 1
    label: Label
    count: Count
    first: bytes
    maybe: Label | None
    number: int | None
    second: bytes
    sig: Signature


def plain(**changes: Any) -> Plain:
    fields: dict[str, Any] = {
        "label": Label(b"\x58" * 32),
        "count": Count(7),
        "first": b"\x58\x40" * 3,
        "maybe": None,
        "number": None,
        "second": b"",
        "sig": Signature(b"\n" * 64),
    }
    return Plain(**fields | changes)


def read(data: bytes) -> Plain:
    """Decode with the general codec, without the pattern."""
    return Plain.codec.read(cbor.decode_items(data, flat=True))  # type: ignore[no-any-return]


def agree(data: bytes) -> None:
    """Check that pattern and codec agree on ``data``."""
    matched, expected = Plain.codec.match(data), None
    with contextlib.suppress(DecodeError):
        expected = read(data)
    assert matched == expected
    assert type(matched) is type(expected)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_length_of_a_number_is_matched(number: int) -> None:
    value = plain(count=Count(number), number=number)
    assert Plain.codec.match(value.encode()) == value == read(value.encode())


@pytest.mark.parametrize("length", LENGTHS)
def test_every_length_of_a_string_is_matched(length: int) -> None:
    value = plain(first=bytes(length), second=b"\xff" * length, maybe=Label(bytes(32)), ver=2)
    assert Plain.codec.match(value.encode()) == value == read(value.encode())


def test_values_have_their_types() -> None:
    matched = Plain.codec.match(plain(maybe=Label(bytes(32))).encode())
    assert [type(getattr(matched, name)) for name in ("label", "maybe", "sig", "first", "count")] == [
        Label,
        Label,
        Signature,
        bytes,
        int,
    ]


@pytest.mark.parametrize(
    ("canonical", "other"),
    [
        (b"\x07", b"\x18\x07"),
        (b"\x07", b"\x19\x00\x07"),
        (b"\x07", b"\x1a\x00\x00\x00\x07"),
        (b"\x07", b"\x1b" + bytes(7) + b"\x07"),
        (b"\x07", b"\x1b\x00\x00\x00\x00\xff\xff\xff\xff"),
        (b"\x07", b"\x1a\x00\x00\xff\xff"),
        (b"\x07", b"\x19\x00\xff"),
        (b"\x07", b"\x18\x17"),
        (b"\x46\x58\x40", b"\x58\x06\x58\x40"),
        (b"\x46\x58\x40", b"\x59\x00\x06\x58\x40"),
        (b"\x46\x58\x40", b"\x5b" + bytes(7) + b"\x06\x58\x40"),
        (b"\x46\x58\x40", b"\x47\x58\x40"),
        (b"\x46\x58\x40", b"\x45\x58\x40"),
        (b"\xf6", b"\xf7"),
        (b"\xf6", b"\xf4"),
        (b"\x88\x01", b"\x88\x03"),
        (b"\x88\x01", b"\x89\x01"),
        (b"\x88\x01", b"\x98\x08\x01"),
        (b"\x88\x01", b"\x9f\x01"),
    ],
)
def test_another_form_is_not_matched(canonical: bytes, other: bytes) -> None:
    data = plain().encode()
    assert canonical in data
    changed = data.replace(canonical, other, 1)
    assert Plain.codec.match(changed) is None
    with pytest.raises(DecodeError):
        Plain.decode(changed)


def test_nothing_may_follow_or_be_missing() -> None:
    data = plain(second=b"end").encode()
    for end in range(len(data)):
        assert Plain.codec.match(data[:end]) is None
    assert Plain.codec.match(data + b"\x00") is None


@array("STRING", section="9.9")
@dataclass(frozen=True, slots=True, kw_only=True)
class EndsInString(Wire):
    """An array whose last field is a byte string: nothing in the pattern follows it."""

    number: int
    last: bytes


def test_a_truncated_last_string_is_refused() -> None:
    value = EndsInString(number=1, last=b"twelve bytes")
    data = value.encode()
    assert EndsInString.codec.match(data) == value
    assert EndsInString.codec.end(data, 0) == len(data)
    for end in range(len(data)):
        assert EndsInString.codec.match(data[:end]) is None
        assert EndsInString.codec.end(data[:end], 0) is None
        with pytest.raises(DecodeError):
            EndsInString.decode(data[:end])


@given(
    value=st.builds(
        plain,
        ver=st.sampled_from([1, 2]),
        count=st.integers(0, U64_MAX) | st.sampled_from(NUMBERS),
        first=st.binary(max_size=300),
        second=st.binary(max_size=300),
        number=st.none() | st.integers(0, U64_MAX),
    ),
    seed=st.integers(0, 2**32),
)
def test_damaged_bytes_are_decided_by_the_general_codec(value: Plain, seed: int) -> None:
    data, draw = value.encode(), random.Random(seed)
    agree(data)
    assert Plain.codec.match(data) == value
    for _ in range(20):
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        agree(bytes(changed))


def test_messages_and_receipts_are_read_by_pattern() -> None:
    for wire in (Msg, Receipt):
        assert isinstance(wire.codec, ArrayCodec)
        assert wire.codec.pattern is not None


def test_an_array_with_other_kinds_of_fields_has_no_pattern() -> None:
    assert pattern_of([UINT, AnyValue()]) is None
    assert pattern_of([UINT, Scalar(str, "tstr")]) is None
    assert pattern_of([Nullable(Bytes())]) is None
