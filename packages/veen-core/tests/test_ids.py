"""Identifiers: one type per meaning (§2)."""

import inspect

import pytest

from veen_core import DecodeError, Label, StreamId, ids
from veen_core.errors import DecodeFault
from veen_core.ids import FixedBytes, Secret, Signature

TYPES = [c for _, c in inspect.getmembers(ids, inspect.isclass) if issubclass(c, FixedBytes)]


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_the_length_is_part_of_the_type(kind: type[FixedBytes]) -> None:
    assert len(kind(bytes(kind.SIZE))) == kind.SIZE
    for size in (0, kind.SIZE - 1, kind.SIZE + 1):
        with pytest.raises(
            DecodeError, match=f"want {kind.__name__} of {kind.SIZE} bytes, found {size}"
        ) as caught:
            kind(bytes(size))
        assert caught.value.fault is DecodeFault.SIZE


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_hex_round_trips(kind: type[FixedBytes]) -> None:
    value = kind(bytes(range(kind.SIZE)))
    assert kind.from_hex(value.hex()) == value
    assert type(kind.from_hex(value.hex())) is kind


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("zz" * 32, id="not hex"),
        pytest.param("AB" * 32, id="uppercase"),
        pytest.param("ab " * 32, id="spaces"),
        pytest.param("ab" * 31, id="too short"),
        pytest.param("a" * 63, id="half a byte"),
        pytest.param("", id="nothing"),
    ],
)
def test_only_lowercase_hex_of_the_right_length_is_parsed(text: str) -> None:
    with pytest.raises(DecodeError, match="Label"):
        Label.from_hex(text)


def test_an_identifier_shows_its_type_and_hex() -> None:
    value = Label(b"\xab" * 32)
    assert repr(value) == str(value) == f"{value}" == "Label(" + "ab" * 32 + ")"


def test_a_secret_does_not_show_its_hex() -> None:
    assert repr(Secret(bytes(32))) == str(Secret(bytes(32))) == "Secret(<secret>)"


def test_signatures_are_64_bytes() -> None:
    assert Signature.SIZE == 64


def test_identifiers_of_different_types_with_equal_bytes_are_equal() -> None:
    assert Label(bytes(32)) == StreamId(bytes(32)) == bytes(32)
    assert not hasattr(Label(bytes(32)), "__dict__")
