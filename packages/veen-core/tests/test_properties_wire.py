"""Properties of every wire object, derived from its declaration (§3.1, B3, B17)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen_core import cbor
from veen_core.errors import DecodeError, EncodeError
from veen_core.ids import Label, Signature
from veen_core.kinds import SIGNED
from veen_core.wire import EXPLICIT, TRAILING, Wire, array, text_map

from .strategies import (
    EQUAL,
    JSON_CLASSES,
    SECRET_CLASSES,
    WIRE_CLASSES,
    frees,
    ints,
    respellings,
    spell,
    steady,
    strategy_for,
    texts,
)

pytestmark = pytest.mark.no_cover  # tracing would double the time, and the other tests cover the package


@text_map("specimen", section="test")
@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen(Wire):
    """The kinds of field that only overlays use."""

    signed: Annotated[int, SIGNED]
    free: Any
    explicit: Annotated[int | None, EXPLICIT]
    word: Literal["a", "b", 3] = "a"
    flag: bool | None = None


@array("row", section="test")
@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Wire):
    """Null in the middle, left off at the end, objects inside."""

    maybe: Specimen | None
    labels: tuple[Label, ...]
    text: str
    trailing: Annotated[tuple[Signature, ...] | None, TRAILING] = None


CLASSES = [*WIRE_CLASSES, Specimen, Row]
every_class = pytest.mark.parametrize("cls", CLASSES, ids=[cls.__name__ for cls in CLASSES])


def test_every_declared_object_is_covered() -> None:
    names = {cls.__name__ for cls in WIRE_CLASSES}
    assert {"Msg", "Receipt", "Checkpoint", "MmrProof", "CapToken", "Keystore", "ClientState"} <= names
    assert len({cls.codec.name for cls in WIRE_CLASSES}) == len(WIRE_CLASSES)


# --- round trips


@every_class
def test_decoding_an_encoded_value_gives_it_back(cls: type[Wire]) -> None:
    @steady(25)
    @given(strategy_for(cls))
    def check(value: Wire) -> None:
        decoded = cls.decode(value.encode())
        assert decoded == value
        assert type(decoded) is cls
        assert decoded.encode() == value.encode()

    check()


@pytest.mark.parametrize("cls", [*JSON_CLASSES, Specimen, Row], ids=lambda cls: cls.__name__)
def test_reading_the_json_of_a_value_gives_it_back(cls: type[Wire]) -> None:
    @steady(20)
    @given(strategy_for(cls))
    def check(value: Wire) -> None:
        text = value.to_json()
        assert cls.from_json(text) == value
        assert cls.from_json(text.encode()) == value

    check()


def test_classes_with_a_secret_field_are_found_by_their_declaration() -> None:
    assert {cls.__name__ for cls in SECRET_CLASSES} == {"ClientState", "PrekeySecret", "Secrets"}


def _by_hand(value: Any) -> Any:
    """Return the JSON form that the object would have without its secret."""
    return bytes(value).hex() if isinstance(value, bytes) else [] if isinstance(value, tuple) else value


@pytest.mark.parametrize("cls", SECRET_CLASSES, ids=lambda cls: cls.__name__)
def test_an_object_with_a_secret_has_no_json_form(cls: type[Wire]) -> None:
    """Neither writing nor reading JSON is possible."""
    names = [f.name for f in cls.codec.fields]

    @steady(5)
    @given(strategy_for(cls))
    def check(value: Any) -> None:
        with pytest.raises(EncodeError, match="is a secret and has no JSON form"):
            value.to_json()
        held = {name: getattr(value, name) for name in names}
        item = {name: _by_hand(v) for name, v in held.items() if v is not None and not isinstance(v, Wire)}
        with pytest.raises(DecodeError, match="is a secret and has no JSON form"):
            cls.codec.read_json(item)

    check()


@every_class
def test_encoding_agrees_with_an_independent_encoder(cls: type[Wire]) -> None:
    @steady(10)
    @given(strategy_for(cls))
    def check(value: Wire) -> None:
        assert value.encode() == spell(cls.codec.write(value))

    check()


# --- canonical means unique


@every_class
def test_values_are_equal_exactly_when_their_bytes_are(cls: type[Wire]) -> None:
    """Two values that differ in one field are the closest two values can be."""

    @steady(15)
    @given(strategy_for(cls), strategy_for(cls))
    def check(one: Any, other: Any) -> None:
        assert (one == other) == (one.encode() == other.encode())
        for field in dataclasses.fields(one):
            if cls.__name__ == "Limits":  # its fields bound each other
                break
            near = dataclasses.replace(one, **{field.name: getattr(other, field.name)})
            assert (one == near) == (one.encode() == near.encode())

    check()


@every_class
def test_accepted_bytes_are_the_encoding_of_the_decoded_value(cls: type[Wire]) -> None:
    """Damage that happens to be accepted is another value's canonical bytes, never a second spelling."""

    @steady(40)
    @given(strategy_for(cls), st.data())
    def check(value: Wire, data: st.DataObject) -> None:
        wire = bytearray(value.encode())
        at = data.draw(st.integers(0, len(wire) - 1), label="at")
        wire[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2), label="instead")
        damaged = bytes(wire)
        try:
            decoded = cls.decode(damaged)
        except DecodeError:
            return
        assert decoded.encode() == damaged
        assert (decoded == value) == (damaged == value.encode())

    check()


@every_class
def test_no_other_spelling_of_a_value_is_accepted(cls: type[Wire]) -> None:
    @steady(4)
    @given(strategy_for(cls))
    def check(value: Wire) -> None:
        for name, wrong in respellings(cls.codec.write(value)):
            try:
                cls.decode(wrong)
            except DecodeError:
                continue
            pytest.fail(f"{name}: {wrong.hex()} was accepted as {value!r}")

    check()


@pytest.mark.parametrize("fault", EQUAL)
def test_a_lax_decoder_would_read_the_other_spelling_as_the_same_value(fault: str) -> None:
    """The faults tried above are real: cbor2 alone accepts them."""
    value = [{1: 300, 2: b"bytes", 3: "text"}, -7, [], None, 2**63]
    faulty = [wrong for name, wrong in respellings(value) if name.startswith(fault)]
    assert faulty
    for wrong in faulty:
        assert wrong != spell(value)
        lax = cbor2.loads(wrong)
        assert value in (lax, cbor2.loads(cbor2.dumps(lax)))  # inside a tag, cbor2 makes tuples of lists


# --- free values


free_maps = st.recursive(
    frees,
    lambda inner: st.dictionaries(st.one_of(ints, texts, st.binary(max_size=4)), inner, max_size=4),
    max_leaves=8,
)


@steady(100)
@given(free_maps)
def test_free_values_survive_a_round_trip(value: Any) -> None:
    wire = cbor.encode(value)
    assert wire == spell(value)
    assert cbor.decode(wire) == value


@steady(40)
@given(free_maps)
def test_no_other_spelling_of_a_free_value_is_accepted(value: Any) -> None:
    """The order of a free map's keys is part of it, and an unknown key is just a key (B3)."""
    for name, wrong in respellings(value):
        try:
            decoded = cbor.decode(wrong)
        except DecodeError:
            continue
        assert name in ("unknown key", "misordered keys", "other string type"), f"{name}: {wrong.hex()}"
        assert cbor.encode(decoded) == wrong


@steady(50)
@given(st.lists(free_maps, max_size=5))
def test_a_sequence_splits_into_the_items_it_was_made_of(values: list[Any]) -> None:
    wires = [cbor.encode(value) for value in values]
    assert list(cbor.split_sequence(b"".join(wires))) == wires


@steady(30)
@given(st.lists(st.one_of(ints, texts), min_size=1, max_size=3), st.data())
def test_a_sequence_with_a_non_canonical_item_is_refused_when_decoded(
    values: list[Any], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    before, after = (b"".join(map(spell, side)) for side in (values[:at], values[at + 1 :]))
    for name, wrong in respellings(values[at]):
        if name in ("trailing item", "the item twice", "other string type", "float"):
            continue  # in a sequence these are other items, for a declaration to refuse
        with pytest.raises(DecodeError):  # splitting looks at heads only: the decoder of an item refuses
            [cbor.decode(item) for item in cbor.split_sequence(before + wrong + after)]


@pytest.mark.parametrize("depth", [1, 31, 32, 33, 200, 990])
def test_nesting_has_the_same_bound_in_encoding_and_decoding(depth: int) -> None:
    """What can be written or read as JSON can be read back as CBOR."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    text = f'{{"signed":0,"free":{"[" * depth}{"]" * depth},"explicit":null,"word":"a"}}'
    if depth <= cbor.MAX_DEPTH:
        assert cbor.decode(cbor.encode(value)) == value
        assert Specimen.from_json(text).free == value
    else:
        with pytest.raises(DecodeError):
            cbor.decode(b"\x81" * (depth - 1) + b"\x80")
        with pytest.raises(DecodeError):
            Specimen.from_json(text)
        with pytest.raises(DecodeError):
            Specimen(signed=0, free=value, explicit=None).encode()


# --- JSON is as strict


@pytest.mark.parametrize(
    "text",
    [
        '{"challenge":"00","nonce":1,"difficulty":1,"nonce":1}',
        '{"challenge":"00","nonce":1,"difficulty":1,"stray":1}',
        '{"challenge":"00","nonce":1}',
        '{"challenge":"0A","nonce":1,"difficulty":1}',
        '{"challenge":"0 0","nonce":1,"difficulty":1}',
        '{"challenge":"0","nonce":1,"difficulty":1}',
        '{"challenge":"00","nonce":1.0,"difficulty":1}',
        '{"challenge":"00","nonce":1e0,"difficulty":1}',
        '{"challenge":"00","nonce":true,"difficulty":1}',
        '{"challenge":"00","nonce":"1","difficulty":1}',
        '{"challenge":"00","nonce":-1,"difficulty":1}',
        '{"challenge":"00","nonce":-0,"difficulty":1}',
        '{"challenge":"00","nonce":18446744073709551616,"difficulty":1}',
        '{"challenge":"00","nonce":NaN,"difficulty":1}',
        '{"challenge":"00","nonce":null,"difficulty":1}',
        '{"challenge":"00","nonce":1,"difficulty":1}1',
        "[]",
    ],
    ids=[
        "duplicate-key",
        "unknown-key",
        "missing-key",
        "uppercase-hex",
        "spaced-hex",
        "odd-hex",
        "float",
        "exponent",
        "bool-for-integer",
        "text-for-integer",
        "negative",
        "negative-zero",
        "beyond-64-bits",
        "not-a-number",
        "null",
        "trailing-item",
        "array-for-map",
    ],
)
def test_json_in_another_spelling_is_refused(text: str) -> None:
    cookie = next(cls for cls in WIRE_CLASSES if cls.__name__ == "PowCookie")
    assert cookie.from_json('{"challenge":"00","nonce":1,"difficulty":1}')
    with pytest.raises(DecodeError):
        cookie.from_json(text)


def test_json_text_that_utf8_cannot_encode_is_refused() -> None:
    detail = next(cls for cls in WIRE_CLASSES if cls.__name__ == "ErrorDetail")
    assert detail.from_json('{"field":"\\ud83d\\ude00"}').encode()
    with pytest.raises(DecodeError):
        detail.from_json('{"field":"\\ud800"}')


@pytest.mark.parametrize("extreme", [cbor.INT_MIN, -(10**19), -1, 2**64 - 1])
def test_signed_integers_reach_both_ends_of_their_range_in_json(extreme: int) -> None:
    value = Specimen(signed=extreme, free=None, explicit=None)
    assert Specimen.from_json(value.to_json()) == value
    assert Specimen.decode(value.encode()) == value


@every_class
def test_values_that_are_equal_only_in_python_are_refused(cls: type[Wire]) -> None:
    """True is not 1 and 1.0 is not 1, as keys or as values."""

    @steady(3)
    @given(strategy_for(cls))
    def check(value: Wire) -> None:
        item = cls.codec.write(value)
        parts = item.items() if isinstance(item, dict) else enumerate(item)
        for key, part in parts:
            if type(part) is int and part in (0, 1):
                for posing in (bool(part), float(part)):
                    posed = item.copy()
                    posed[key] = posing
                    _refused_unless_free(cls, key, posed)
            if type(key) is int and key == 1 and isinstance(item, dict):
                for posing in (True, 1.0):
                    with pytest.raises(DecodeError):
                        cls.decode(cbor2.dumps({posing if k == 1 else k: v for k, v in item.items()}))

    check()


def _refused_unless_free(cls: type[Wire], key: int | str, posed: Any) -> None:
    if (cls, key) == (Specimen, "free") and type(posed["free"]) is bool:
        return
    with pytest.raises(DecodeError):
        cls.decode(cbor2.dumps(posed))
