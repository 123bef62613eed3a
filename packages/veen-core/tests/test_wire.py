"""Derived codecs: layouts, strictness and error texts (§3.1, B1 to B3, B17)."""

import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NewType

import pytest

from veen_core import DecodeError, Label, cbor
from veen_core.card import IdentityCard
from veen_core.codec import where
from veen_core.errors import DecodeFault, EncodeError
from veen_core.hashing import trunc_24, u32be, u64be
from veen_core.ids import Signature
from veen_core.kinds import SIGNED, WordOf, found, kind_of
from veen_core.strict_json import parse_json
from veen_core.wire import EXPLICIT, TRAILING, Wire, array, int_map, text_map

LABEL = Label(b"\xab" * 32)
Count = NewType("Count", int)


@array("THING", section="9.9")
@dataclass(frozen=True, slots=True, kw_only=True)
class Thing(Wire):
    """Null in the middle, a trailing optional."""

    ver: Literal[1] = 1
    label: Label
    middle: Label | None
    count: Count
    trail: Annotated[tuple[Label, ...] | None, TRAILING] = None


@int_map("box", section="9.8")
@dataclass(frozen=True, slots=True, kw_only=True)
class Box(Wire):
    """An integer map with optional fields, and another object inside."""

    ver: Literal[1] = 1
    name: str
    flag: bool | None = None
    thing: Thing | None = None
    data: bytes | None = None


@text_map("note", section="9.7")
@dataclass(frozen=True, slots=True, kw_only=True)
class Note(Wire):
    """A text map in document order, with an explicit null, a signed number and a free value."""

    zeta: int
    alpha: Annotated[int | None, EXPLICIT]
    shift: Annotated[int, SIGNED]
    mode: Literal["on", "off"] = "on"
    free: Any = None
    more: tuple[int, ...] | None = None


THING = Thing(label=LABEL, middle=None, count=Count(3))
BOX = Box(name="n", flag=True, thing=THING, data=b"\x01")
NOTE = Note(zeta=1, alpha=None, shift=-5, free=[1, {"k": b"\x02"}])


def items(value: Wire) -> Any:
    return value.codec.write(value)


# --- layouts


def test_an_absent_field_in_the_middle_of_an_array_is_null() -> None:
    assert items(THING) == [1, LABEL, None, 3]
    assert items(Thing(label=LABEL, middle=LABEL, count=Count(3))) == [1, LABEL, LABEL, 3]


def test_an_absent_trailing_field_shortens_the_array() -> None:
    assert items(Thing(label=LABEL, middle=None, count=Count(3), trail=(LABEL,))) == [
        1,
        LABEL,
        None,
        3,
        [LABEL],
    ]
    assert Thing.decode(THING.encode()).trail is None


def test_an_absent_field_of_a_map_is_omitted() -> None:
    assert items(Box(name="n")) == {1: 1, 2: "n"}
    assert items(BOX) == {1: 1, 2: "n", 3: True, 4: [1, LABEL, None, 3], 5: b"\x01"}


def test_a_text_map_keeps_the_documents_order_and_its_explicit_null() -> None:
    assert list(items(NOTE).items()) == [
        ("zeta", 1),
        ("alpha", None),
        ("shift", -5),
        ("mode", "on"),
        ("free", [1, {"k": b"\x02"}]),
    ]


@pytest.mark.parametrize("value", [THING, BOX, NOTE], ids=["array", "integer map", "text map"])
def test_every_layout_comes_back_from_its_bytes(value: Wire) -> None:
    again = type(value).decode(value.encode())
    assert again == value
    assert again.encode() == value.encode()


@pytest.mark.parametrize("value", [THING, BOX], ids=["array", "integer map"])
def test_every_layout_comes_back_from_json(value: Wire) -> None:
    assert type(value).from_json(value.to_json()) == value


def test_json_uses_names_and_lowercase_hex() -> None:
    assert BOX.to_json() == (
        '{"ver":1,"name":"n","flag":true,"thing":[1,"' + "ab" * 32 + '",null,3],"data":"01"}'
    )
    assert NOTE.to_json() == '{"zeta":1,"alpha":null,"shift":-5,"mode":"on","free":[1,{"k":"02"}]}'


def test_json_arrays_leave_off_a_trailing_field_too() -> None:
    assert THING.to_json() == '[1,"' + "ab" * 32 + '",null,3]'
    full = Thing(label=LABEL, middle=LABEL, count=Count(0), trail=(LABEL,))
    assert Thing.from_json(full.to_json()) == full


def test_an_object_describes_its_fields() -> None:
    described = {
        f.name: f.kind.describe() for codec in (Thing.codec, Box.codec, Note.codec) for f in codec.fields
    }
    assert described == {
        "ver": "1",
        "label": "bstr32",
        "middle": "bstr32 | null",
        "count": "uint",
        "trail": "[bstr32]",
        "name": "tstr",
        "flag": "bool",
        "thing": "THING",
        "data": "bstr",
        "zeta": "uint",
        "alpha": "uint | null",
        "shift": "int",
        "mode": "'on' | 'off'",
        "free": "any",
        "more": "[uint]",
    }


# --- what is refused, and how it is said

ARRAYS: dict[str, tuple[Any, str]] = {
    "a map": ({1: 1}, "THING (core §9.9): want array, found map of 1"),
    "too short": ([1, LABEL, None], "THING (core §9.9): want array of 5, found array of 3"),
    "too long": ([1, LABEL, None, 3, [], 0], "THING (core §9.9): want array of 5, found array of 6"),
    "null where nothing is optional": (
        [1, None, None, 3],
        "THING.label (core §9.9): want bstr32, found null",
    ),
    "null for a trailing field": (
        [1, LABEL, None, 3, None],
        "THING.trail (core §9.9): want array, found null",
    ),
    "an empty trailing field": (  # absent has one form: left off
        [1, LABEL, None, 3, []],
        "THING.trail (core §9.9): want array of at least 1, found array of 0",
    ),
    "text for bytes": (
        [1, "ab", None, 3],
        "THING.label (core §9.9): want bstr32, found tstr of 2 characters",
    ),
    "bytes of another size": (
        [1, b"ab", None, 3],
        "THING.label (core §9.9): want Label of 32 bytes, found 2",
    ),
    "a boolean for a number": ([1, LABEL, None, True], "THING.count (core §9.9): want uint, found bool"),
    "a negative number": ([1, LABEL, None, -1], "THING.count (core §9.9): want uint, found int -1"),
    "a boolean for a version": ([True, LABEL, None, 3], "THING.ver (core §9.9): want 1, found bool"),
    "another version": ([2, LABEL, None, 3], "THING.ver (core §9.9): want 1, found int 2"),
    "a bad element": (
        [1, LABEL, None, 3, [LABEL, 7]],
        "THING.trail (core §9.9): [1]: want bstr32, found int 7",
    ),
}
MAPS: dict[str, tuple[Any, str]] = {
    "an array": ([1], "box (core §9.8): want map, found array of 1"),
    "a missing key": ({1: 1}, "box.name (core §9.8): missing"),
    "an unknown key": ({1: 1, 2: "n", 9: 0}, "box (core §9.8): unknown key (int 9)"),
    "an unknown text key": (
        {1: 1, 2: "n", "secret": 0},
        "box (core §9.8): unknown key (tstr of 6 characters)",
    ),
    "keys out of order": (
        {2: "n", 1: 1},
        "box.ver (core §9.8): keys out of order",
    ),
    "an optional key out of order": ({1: 1, 2: "n", 5: b"", 3: True}, "box (core §9.8): keys out of order"),
    "null for an absent field": ({1: 1, 2: "n", 3: None}, "box.flag (core §9.8): want bool, found null"),
    "a number for a boolean": ({1: 1, 2: "n", 3: 1}, "box.flag (core §9.8): want bool, found int 1"),
    "bytes for text": ({1: 1, 2: b"n"}, "box.name (core §9.8): want tstr, found bstr of 1 bytes"),
    "a fault inside": (
        {1: 1, 2: "n", 4: [1, LABEL, None, "x"]},
        "box.thing (core §9.8): THING.count (core §9.9): want uint, found tstr of 1 characters",
    ),
    "a boolean for a key": (
        {True: 1, 2: "n"},
        "box (core §9.8): not CBOR: a map key that is neither an integer nor a string",
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_another_shape_is_refused_with_object_field_section_and_finding(name: str) -> None:
    given, message = ARRAYS[name]
    with pytest.raises(DecodeError) as caught:
        Thing.decode(cbor.encode_items(given))
    assert str(caught.value) == message


@pytest.mark.parametrize("name", MAPS)
def test_a_map_of_another_shape_is_refused_with_object_field_section_and_finding(name: str) -> None:
    given, message = MAPS[name]
    with pytest.raises(DecodeError) as caught:
        Box.decode(cbor.encode_items(given))
    assert str(caught.value) == message


def test_bytes_that_are_not_cbor_are_refused_in_the_objects_name() -> None:
    with pytest.raises(DecodeError, match=r"^THING .core §9\.9.: not CBOR"):
        Thing.decode(b"\xff")
    with pytest.raises(DecodeError, match=r"^box .core §9\.8.: not canonical CBOR: 1 bytes after the item"):
        Box.decode(BOX.encode() + b"\0")


def test_an_explicit_null_may_not_be_left_out() -> None:
    with pytest.raises(DecodeError, match=r"note\.alpha .core §9\.7.: missing"):
        Note.codec.read({"zeta": 1, "shift": 0, "mode": "on"})


def test_untrusted_content_is_not_repeated() -> None:
    with pytest.raises(DecodeError) as caught:
        Box.decode(cbor.encode({1: 1, 2: b"s3cret"}))
    assert "s3cret" not in str(caught.value)


# --- which fault is reported (§8.2: CBOR before SIZE before VERSION)


@pytest.mark.parametrize(
    ("given", "fault", "field"),
    [
        pytest.param([2, b"short", None, "x"], DecodeFault.CBOR, "count", id="all three"),
        pytest.param([2, b"short", None, 3], DecodeFault.SIZE, "label", id="size and version"),
        pytest.param([2, LABEL, None, 3], DecodeFault.VERSION, "ver", id="version alone"),
        pytest.param([1, LABEL, b"short", 3], DecodeFault.SIZE, "middle", id="size alone"),
        pytest.param(["1", LABEL, None, 3], DecodeFault.CBOR, "ver", id="a version of another type"),
        pytest.param([1, "x", None, "x"], DecodeFault.CBOR, "label", id="two alike: the first field"),
        pytest.param([2, LABEL, None, 3, [0]], DecodeFault.CBOR, "trail", id="inside a list too"),
    ],
)
def test_the_lowest_fault_is_reported_then_the_first_field(
    given: list[Any], fault: DecodeFault, field: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        Thing.decode(cbor.encode(given))
    assert caught.value.fault is fault
    assert caught.value.where.startswith(f"THING.{field} ")


def test_maps_and_json_report_by_the_same_order() -> None:
    nested = [1, b"short", None, 3]
    with pytest.raises(DecodeError) as caught:
        Box.decode(cbor.encode({1: 2, 2: "n", 4: nested}))
    assert caught.value.fault is DecodeFault.SIZE
    with pytest.raises(DecodeError) as caught:
        Box.from_json('{"ver":2,"name":"n","data":7}')
    assert (caught.value.fault, caught.value.where) == (DecodeFault.CBOR, "box.data (core §9.8)")


# --- JSON is as strict (B17)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        pytest.param('{"ver":1,"name":"n","extra":0}', "unknown key 'extra'", id="unknown key"),
        pytest.param('{"ver":1}', "box.name .core §9.8.: missing", id="missing key"),
        pytest.param('{"ver":1,"name":"n","flag":null}', "box.flag", id="null"),
        pytest.param('{"ver":1,"ver":1,"name":"n"}', "duplicate key", id="duplicate key"),
        pytest.param('{"ver":1.0,"name":"n"}', "floats", id="float"),
        pytest.param('{"ver":NaN,"name":"n"}', "floats", id="not a number"),
        pytest.param('{"ver":1,"name":"n","data":"AB"}', "lowercase hex", id="uppercase hex"),
        pytest.param('{"ver":1,"name":"n","data":"zz"}', "lowercase hex", id="not hex"),
        pytest.param('{"ver":1,"name":"n","data":7}', "lowercase hex, found int", id="number for bytes"),
        pytest.param('{"ver":true,"name":"n"}', "box.ver", id="boolean for version"),
        pytest.param("[1]", "want object, found array of 1", id="array"),
        pytest.param("{", "not JSON", id="cut off"),
        pytest.param("[" * 100_000, "not JSON", id="deep"),
        pytest.param('{"ver":' + "1" * 30 + "}", "beyond 64 bits", id="long integer"),
        pytest.param('{"ver":1,"name":"n","thing":7}', "THING .core §9.9.: want array", id="no array inside"),
        pytest.param('{"ver":1,"name":"n","thing":[]}', "found array of 0", id="short array inside"),
        pytest.param('{"ver":1,"name":"n","thing":[1,"ab",null,3]}', "THING.label", id="short bytes inside"),
        pytest.param('{"ver":1,"name":"\\ud800"}', "not JSON", id="lone surrogate"),
    ],
)
def test_json_of_another_shape_is_refused(text: str, match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        Box.from_json(text)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        pytest.param("7", "note.more .core §9.7.: want array, found int 7", id="no list"),
        pytest.param('[1,"x"]', r"note.more .core §9.7.: \[1\]: want uint", id="a bad element"),
    ],
)
def test_lists_in_json_are_checked(more: str, match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        Note.from_json('{"zeta":1,"alpha":null,"shift":0,"mode":"on","free":0,"more":' + more + "}")


def test_a_free_value_passes_json_and_cbor_alike() -> None:
    text = '{"zeta":1,"alpha":2,"shift":-3,"mode":"off","free":{"a":[1,null,true]}}'
    note = Note.from_json(text)
    assert note.free == {"a": [1, None, True]}
    assert Note.decode(note.encode()) == note
    with pytest.raises(DecodeError):
        Note.codec.read({"zeta": 1, "alpha": 2, "shift": 3, "mode": "on", "free": 1.5})


def test_a_map_whose_keys_share_a_json_name_has_no_json_form() -> None:
    note = Note(zeta=1, alpha=2, shift=3, free=[{1: "a", "1": "b"}])
    assert Note.decode(note.encode()) == note
    with pytest.raises(EncodeError, match="two keys of a map have the same name in JSON"):
        note.to_json()


@pytest.mark.parametrize("text", ['{"a":-0}', "[-0]", "-0"])
def test_zero_has_one_spelling_in_json(text: str) -> None:
    assert parse_json("[0,-1]") == [0, -1]
    with pytest.raises(DecodeError, match="not JSON"):
        parse_json(text)


def test_an_error_shows_only_the_start_of_a_long_unknown_key() -> None:
    with pytest.raises(DecodeError, match=r"box .core §9\.8.: unknown key 'x{40}'"):
        Box.from_json('{"ver":1,"name":"n","' + "x" * 1_000 + '":0}')


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\udc00\ud800"])
def test_a_lone_surrogate_has_no_json_form(text: str) -> None:
    box = Box(name=text)
    with pytest.raises(
        EncodeError, match=r"box .core §9\.8.: UTF-8 cannot encode text with a lone surrogate"
    ):
        box.to_json()
    with pytest.raises(EncodeError):
        box.encode()
    assert Box.from_json(Box(name="\U0001f600").to_json()).name == "\U0001f600"


def test_json_bytes_are_utf_8() -> None:
    assert parse_json('{"a":"ø"}'.encode()) == {"a": "ø"}
    with pytest.raises(DecodeError, match="not JSON"):
        parse_json('{"a":1}'.encode("utf-16"))


# --- writing is strict too


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(Thing(label=LABEL, middle=None, count=-1), id="negative"),
        pytest.param(Thing(label=LABEL, middle=None, count=2**64), id="too large"),
        pytest.param(Thing(label=LABEL, middle=None, count=True), id="boolean for number"),
        pytest.param(Thing(ver=2, label=LABEL, middle=None, count=0), id="another version"),
        pytest.param(Thing(label=LABEL, middle=None, count=0, trail=()), id="empty trailing field"),
        pytest.param(Box(name=b"n"), id="bytes for text"),
        pytest.param(Box(name="n", data="text"), id="text for bytes"),
        pytest.param(Box(name="n", data=bytearray(1)), id="a bytearray for bytes"),
        pytest.param(Box(name="n", data=7), id="a number for bytes"),
        pytest.param(Thing(label=bytes(31), middle=None, count=0), id="a label too short"),
        pytest.param(Thing(label=bytes(33), middle=None, count=0), id="a label too long"),
        pytest.param(Thing(label="x" * 32, middle=None, count=0), id="text for a label"),
        pytest.param(Thing(label=None, middle=None, count=0), id="null for a label"),
        pytest.param(Thing(label=LABEL, middle=bytearray(32), count=0), id="a bytearray for a label"),
        pytest.param(Thing(ver=True, label=LABEL, middle=None, count=0), id="true for version 1"),
        pytest.param(Thing(ver=1.0, label=LABEL, middle=None, count=0), id="a float for version 1"),
        pytest.param(Note(zeta=0, alpha=None, shift=2**64), id="signed too large"),
        pytest.param(Note(zeta=0, alpha=None, shift=0, mode="up"), id="another word"),
    ],
)
def test_a_value_that_would_not_decode_does_not_encode(value: Wire) -> None:
    with pytest.raises(EncodeError):
        value.encode()


def test_a_free_value_that_is_not_plain_does_not_encode() -> None:
    with pytest.raises(DecodeError, match="float is not allowed"):
        Note(zeta=0, alpha=None, shift=0, free=1.5).encode()


def test_a_signed_number_has_64_bits_each_way() -> None:
    low = Note(zeta=0, alpha=1, shift=-(2**64))
    assert Note.decode(low.encode()) == low
    with pytest.raises(DecodeError, match="want int, found tstr"):
        Note.codec.read({"zeta": 0, "alpha": 1, "shift": "x", "mode": "on", "free": 0})


def test_an_array_with_a_check_of_its_own_is_refused_when_declared() -> None:
    class Checked(Wire):
        def __post_init__(self) -> None: ...

    with pytest.raises(TypeError, match="__post_init__"):
        array("checked", section="9.6")(dataclass(frozen=True, slots=True)(Checked))


@pytest.mark.parametrize("annotation", [set, dict[str, int], "text", int | str])
def test_an_annotation_without_a_wire_form_is_refused_when_declared(annotation: object) -> None:
    with pytest.raises((TypeError, KeyError)):
        kind_of(annotation)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (None, "null"),
        (True, "bool"),
        (5, "int 5"),
        (2**65, "int beyond 64 bits"),
        (b"ab", "bstr of 2 bytes"),
        ("ab", "tstr of 2 characters"),
        ([1], "array of 1"),
        ({}, "map of 0"),
        (1.5, "float"),
    ],
)
def test_an_error_describes_an_item_without_repeating_its_content(item: object, text: str) -> None:
    assert found(item) == text


def test_a_section_of_another_document_is_named_as_it_is() -> None:
    assert where("RECEIPT.label", "4.3") == "RECEIPT.label (core §4.3)"
    assert where("identity_card", "spec-1 §15") == "identity_card (spec-1 §15)"
    with pytest.raises(DecodeError, match=r"^identity_card \(spec-1 §15\): want map, found array of 0$"):
        IdentityCard.decode(b"\x80")


# --- words of an enumeration


class Mood(enum.StrEnum):
    """Two words."""

    GOOD = "good"
    BAD = "bad"


def test_a_word_is_read_as_the_enumerations_member_and_written_as_text() -> None:
    kind = kind_of(Mood)
    assert kind == WordOf(Mood)
    assert kind.read("good") is kind.read_json("good") is Mood.GOOD
    assert type(kind.write(Mood.BAD)) is type(kind.write_json(Mood.BAD)) is str
    assert (kind.write(Mood.BAD), kind.describe()) == ("bad", "one of Mood")


@pytest.mark.parametrize("item", ["GOOD", "", "good ", b"good", 0, None, ["good"]])
def test_any_other_word_is_refused_both_ways(item: object) -> None:
    kind = kind_of(Mood)
    with pytest.raises(DecodeError, match="want one of Mood, found"):
        kind.read(item)
    with pytest.raises(EncodeError, match="want one of Mood, have"):
        kind.write(item)


# --- integers and hashes of §3.3


def test_integers_are_big_endian_and_bounded() -> None:
    assert (u64be(1), u32be(258)) == (bytes(7) + b"\x01", b"\x00\x00\x01\x02")
    for encode, value in ((u64be, -1), (u64be, 2**64), (u32be, -1), (u32be, 2**32)):
        with pytest.raises(EncodeError, match="not an unsigned"):
            encode(value)


def test_a_nonce_is_the_first_24_bytes() -> None:
    assert trunc_24(bytes(range(64))) == bytes(range(24))
    assert Signature.SIZE == 64
