"""Declared records: codec, rules, decoding, schema ids (core §4.7; RESOLUTIONS B2, B3, B14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import nested, records

from veen_core import cbor
from veen_core.errors import DecodeError, EncodeError
from veen_core.ids import UnixTime
from veen_overlays.crdt import CounterAdd, ShardId
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.schema.record import (
    MAX_NESTING,
    Record,
    Undecodable,
    at_least_one_of,
    decode_record,
    is_map,
    record,
    schema_id,
)
from veen_overlays.schema.reference import record_reference

SHAPES = {
    f"{shape.NAME}/{shape.__name__}": shape for overlay in OVERLAYS.values() for shape in overlay.schemas
}
every_record = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
few = settings(max_examples=12)  # of each of three dozen records


@record("test.both.v1", section="none", rules=(at_least_one_of("a", "b"), is_map("free")))
@dataclass(frozen=True, slots=True, kw_only=True)
class Both(Record):
    """A record with rules."""

    a: int | None = None
    b: bytes | None = None
    free: Any | None = None


def without_pattern(shape: type[Record], body: bytes) -> Record | None:
    """The result of the general decoder."""
    try:
        found = shape.codec.read(cbor.decode_items(body))
    except DecodeError:
        return None
    return found if found.broken_rule() is None else None


@every_record
@few
@given(data=st.data())
def test_a_record_survives_the_trip_through_its_bytes(shape: type[Record], data: st.DataObject) -> None:
    made = data.draw(records(shape))
    assert decode_record((shape,), made.encode()) == made


@every_record
@few
@given(data=st.data())
def test_decoding_never_raises_and_agrees_with_the_general_decoder(
    shape: type[Record], data: st.DataObject
) -> None:
    """A flipped bit, a cut or an appended byte: no exception, and the same result as the general decoder."""
    body = bytearray(data.draw(records(shape)).encode())
    at = data.draw(st.integers(0, len(body) - 1))
    match data.draw(st.sampled_from(("flip", "cut", "append", "keep"))):
        case "flip":
            body[at] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del body[at:]
        case "append":
            body += data.draw(st.binary(min_size=1, max_size=3))
    decoded = decode_record((shape,), bytes(body))
    general = without_pattern(shape, bytes(body))
    assert decoded == general if general is not None else isinstance(decoded, Undecodable)
    if general is not None:
        assert general.encode() == bytes(body)


@every_record
@few
@given(data=st.data())
def test_any_bytes_at_all_decode_to_a_record_or_a_reason(shape: type[Record], data: st.DataObject) -> None:
    body = data.draw(st.binary(max_size=200))
    decoded = decode_record((shape,), body)
    assert isinstance(decoded, Undecodable) or decoded.encode() == body


@every_record
@few
@given(data=st.data())
def test_unknown_missing_misordered_and_null_keys_are_refused(
    shape: type[Record], data: st.DataObject
) -> None:
    item: dict[str, Any] = cbor.decode(data.draw(records(shape)).encode())  # type: ignore[assignment]
    required = [f.key for f in shape.codec.fields if not f.optional]
    wrong = [item | {"unknown": 1}, item | {next(f.key for f in shape.codec.fields): None}]
    wrong += [{k: v for k, v in item.items() if k != required[0]}] if required else []
    wrong += [dict(reversed(item.items()))] if len(item) > 1 else []
    for other in wrong:
        decoded = decode_record((shape,), cbor.encode(other))
        assert isinstance(decoded, Undecodable)
        assert shape.NAME in decoded.why


LONG_FORMS = [b"\x18\x05", b"\x19\x00\x05", b"\x1a\x00\x00\x00\x05", b"\x1b" + bytes(7) + b"\x05"]


@pytest.mark.parametrize(
    "long_form", [*LONG_FORMS, b"\x19\x00\xff", b"\x1a\x00\x00\xff\xff", b"\x1b" + bytes(4) + b"\xff" * 4]
)
def test_integers_in_a_longer_form_are_refused(long_form: bytes) -> None:
    """RESOLUTIONS B3, in a record that has a pattern."""
    assert CounterAdd.PATTERN is not None
    good = CounterAdd(shard=ShardId(b"\x00" * 32), delta=5).encode()
    assert good[-1:] == b"\x05"
    assert isinstance(decode_record((CounterAdd,), good[:-1] + long_form), Undecodable)


@every_record
def test_no_value_is_coerced(shape: type[Record]) -> None:
    for item in ({f.key: 1.5 for f in shape.codec.fields}, {f.key: True for f in shape.codec.fields}):
        if any(f.kind.describe() != "bool" for f in shape.codec.fields):
            assert isinstance(decode_record((shape,), cbor.encode_items(item)), Undecodable)


@every_record
def test_the_reference_names_every_field_and_rule(shape: type[Record]) -> None:
    text = record_reference(shape)
    assert shape.SCHEMA.hex() in text
    assert all(f"`{f.key}`" in text for f in shape.codec.fields)
    assert all(rule.text in text for rule in shape.RULES)


def test_a_record_that_breaks_a_rule_is_neither_encoded_nor_decoded() -> None:
    with pytest.raises(EncodeError, match="at least one of a, b"):
        Both(free={}).encode()
    with pytest.raises(DecodeError, match="at least one of a, b"):
        Both.decode(cbor.encode({}))
    with pytest.raises(DecodeError, match="free is a map"):
        Both.decode(cbor.encode({"a": 1, "free": [1]}))
    assert Both.decode(cbor.encode({"b": b"x"})) == Both(b=b"x")


def test_two_shapes_of_one_schema_give_both_reasons() -> None:
    @record("test.both.v1", section="none")
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Other(Record):
        c: UnixTime

    decoded = decode_record((Both, Other), cbor.encode({"d": 1}))
    assert isinstance(decoded, Undecodable)
    assert decoded.why.count("test.both.v1") == 2


@every_record
def test_a_record_has_the_schema_id_that_the_client_reads(shape: type[Record]) -> None:
    assert shape.schema_id.__get__(object.__new__(shape)) == shape.SCHEMA  # type: ignore[attr-defined]


def test_operations_have_prefixed_schema_ids() -> None:
    assert schema_id("state.checkpoint.v1", operation=True).hex().startswith("38d54b9a599a8b6f")
    assert schema_id("wallet.close.v1").hex().startswith("5d1356a5493844fe")


def test_a_free_value_nests_no_deeper_than_a_state_can_encode() -> None:
    """Core §3.1 allows 32 levels, and a state contains its records: a deeper value would prevent its hash."""
    assert decode_record((Both,), Both(a=1, free=nested(MAX_NESTING)).encode()) is not None
    with pytest.raises(EncodeError, match="nests at most 16 deep"):
        Both(a=1, free=nested(MAX_NESTING + 1)).encode()
    deep = cbor.encode({"a": 1, "free": nested(MAX_NESTING + 1)})
    found = decode_record((Both,), deep)
    assert isinstance(found, Undecodable)
    assert "nests at most 16 deep" in found.why
