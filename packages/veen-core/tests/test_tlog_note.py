"""Signed notes, verifier keys, cosignatures and tree heads (C2SP signed-note, tlog-cosignature)."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen_core import keys
from veen_core.errors import DecodeError, EncodeError, SignatureError
from veen_core.ids import UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog import note
from veen_core.tlog.note import (
    COSIGNATURE,
    ED25519,
    MAX_NOTE_BYTES,
    MAX_SIGNATURES,
    MAX_TIME,
    Note,
    NoteKey,
    NoteSignature,
    cosign,
    parse_key,
    parse_note,
    parse_signatures,
    sign_note,
    verified_signatures,
)
from veen_core.tlog.tree import EMPTY_ROOT
from veen_core.tlog.tree_head import (
    MAX_SIZE,
    SignedHead,
    TreeHead,
    parse_head,
    parse_signed_head,
    parse_size,
)

from .strategies import steady

LOG, WITNESS, OTHER = (SigningKey(SigningSeed(bytes([n]) * 32)) for n in range(1, 4))
ORIGIN, NAME = "log.example/one", "witness.example/w"
NOW = UnixTime(1_700_000_000)
TEXT = TreeHead(ORIGIN, 5, bytes(range(32))).text
LOG_KEY = NoteKey(ORIGIN, ED25519, LOG.public)
WITNESS_KEY = NoteKey(NAME, COSIGNATURE, WITNESS.public)
SIGNED = Note(TEXT, (sign_note(LOG, ORIGIN, TEXT), cosign(WITNESS, NAME, TEXT, NOW)))
UNICODE_SPACES = [
    *range(0x09, 0x0E),
    *(0x20, 0x85, 0xA0, 0x1680),
    *range(0x2000, 0x200B),
    *(0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
]
"""The characters with the Unicode property White_Space."""

texts = st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs"]) | st.just("\n"), max_size=60)
names = st.text(st.characters(min_codepoint=0x21, exclude_categories=["Cs", "Zs", "Zl", "Zp"]), min_size=1)
key_names = names.filter(lambda name: "+" not in name and not any(map(str.isspace, name)))


# --- round trips


@steady(80)
@given(texts, st.lists(st.tuples(key_names, st.binary(min_size=5, max_size=80)), min_size=1, max_size=5))
def test_a_note_is_parsed_as_it_was_encoded(text: str, lines: list[tuple[str, bytes]]) -> None:
    signatures = tuple(NoteSignature(name, value[:4], value[4:]) for name, value in lines)
    made = Note(text + "\n", signatures)
    assert parse_note(made.encode()) == made


@steady(60)
@given(texts, key_names)
def test_what_was_signed_verifies_whatever_the_text(text: str, name: str) -> None:
    """The text may contain empty lines, and lines that look like signatures."""
    body = f"{text}\n\n\N{EM DASH} a line\n"
    made = Note(body, (sign_note(LOG, name, body), cosign(WITNESS, name, body, NOW)))
    log, witness = NoteKey(name, ED25519, LOG.public), NoteKey(name, COSIGNATURE, WITNESS.public)
    parsed = parse_note(made.encode())
    assert parsed.text == body
    assert verified_signatures(parsed, [log, witness]).keys() == {log, witness}


def test_the_text_ends_at_the_last_empty_line() -> None:
    for text in ("\n", "\n\n", "one\n\n", "one\n\ntwo\n", "one\n\n\n\ntwo\n"):
        assert parse_note(Note(text, SIGNED.signatures).encode()).text == text


def test_every_flipped_bit_of_a_signed_note_is_refused_or_ignored_as_a_signature_of_another_key() -> None:
    """No change leaves both signatures valid, and none changes the text that a valid signature covers."""
    encoded = SIGNED.encode()
    accepted = 0
    for at in range(len(encoded)):
        for bit in range(8):
            changed = bytearray(encoded)
            changed[at] ^= 1 << bit
            try:
                parsed = parse_note(bytes(changed))
                found = verified_signatures(parsed, [LOG_KEY, WITNESS_KEY])
            except (DecodeError, SignatureError):
                continue
            accepted += 1
            assert len(found) < 2
            assert not found or parsed.text == TEXT
    assert accepted  # a changed name or key id


@pytest.mark.parametrize("key", [LOG_KEY, WITNESS_KEY], ids=["log", "witness"])
def test_a_key_is_parsed_as_it_was_written(key: NoteKey) -> None:
    assert parse_key(key.text) == key


# --- malformed notes

SIGNATURE_LINE = SIGNED.signatures[0].line


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "no empty line"),
        (TEXT.encode(), "no empty line"),
        (f"{TEXT}\n".encode(), "does not end with a newline"),
        (f"{TEXT}{SIGNATURE_LINE}".encode(), "no empty line"),
        (f"{TEXT}\n{SIGNATURE_LINE}\n".encode(), "does not end with a newline"),
        (f"{TEXT}\n{SIGNATURE_LINE}\n\n".encode(), "does not end with a newline"),
        (f"{TEXT}\n{SIGNATURE_LINE}".encode()[:-1], "does not end with a newline"),
        (f"{TEXT}\n {SIGNATURE_LINE}".encode(), "not a signature"),
        (f"{TEXT}\n{SIGNATURE_LINE}".replace("\n", "\r\n").encode(), "control character"),
        (f"\t{TEXT}\n{SIGNATURE_LINE}".encode(), "control character"),
        (f"{TEXT}\n{SIGNATURE_LINE}".replace("\N{EM DASH}", "-").encode(), "not a signature"),
        (f"{TEXT}\n{SIGNATURE_LINE}".replace("\N{EM DASH} ", "\N{EM DASH}  ").encode(), "not a signature"),
        (b"\xff" + SIGNED.encode(), "not UTF-8"),
        (b"\xed\xa0\x80" + SIGNED.encode(), "not UTF-8"),
        (f"{TEXT}\n\N{EM DASH} {ORIGIN} \n".encode(), "signature without content"),
        (f"{TEXT}\n\N{EM DASH} {ORIGIN} AAAAAA==\n".encode(), "signature without content"),
        (f"{TEXT}\n\N{EM DASH}  AAAAAAA=\n".encode(), "not a key name"),
        (f"{TEXT}\n\N{EM DASH} a+b AAAAAAA=\n".encode(), "not a key name"),
    ],
)
def test_bytes_that_are_not_a_note_are_refused(data: bytes, match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        parse_note(data)


@pytest.mark.parametrize(
    "text",
    ["AAAAAAB=", "AAAAAAA", "AAAAAAA==", "AAAAA AA=", "AAAA-AA=", "AAAA_AA=", "=AAAAAA=", "AAAAAA=A", "AÄAA"],
)
def test_base64_that_is_not_the_one_form_of_its_bytes_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match=r"base64|not a signature"):
        parse_note(f"{TEXT}\n\N{EM DASH} {ORIGIN} {text}\n".encode())


@pytest.mark.parametrize("code", UNICODE_SPACES, ids="U+{:04X}".format)
def test_no_unicode_space_is_part_of_a_key_name(code: int) -> None:
    name = f"a{chr(code)}b"
    with pytest.raises(DecodeError, match="is not a key name"):
        note.check_name(name, "here")
    with pytest.raises(DecodeError):
        parse_note(f"{TEXT}\n\N{EM DASH} {name} AAAAAAA=\n".encode())
    with pytest.raises(EncodeError, match="is not a key name"):
        sign_note(LOG, name, TEXT)


def test_the_spaces_that_python_knows_are_those_of_unicode() -> None:
    found = {code for code in range(0x110000) if chr(code).isspace()}
    assert found - set(range(0x1C, 0x20)) == set(UNICODE_SPACES)  # Python adds four control characters


def test_a_key_name_that_is_not_utf8_is_refused() -> None:
    """Python has such text from a command line whose bytes are not UTF-8."""
    with pytest.raises(DecodeError, match="is not a key name"):
        parse_key(LOG_KEY.text.replace(ORIGIN, "a\udcff"))


def test_a_note_with_at_least_16_and_at_most_64_signatures_is_accepted() -> None:
    line = SIGNATURE_LINE
    for count in (1, 16, MAX_SIGNATURES):
        parsed = parse_note(f"{TEXT}\n{line * count}".encode())
        assert len(parsed.signatures) == count
        assert verified_signatures(parsed, [LOG_KEY])
    with pytest.raises(DecodeError, match="has 65 signatures, at most 64"):
        parse_note(f"{TEXT}\n{line * 65}".encode())


def test_a_note_with_16_post_quantum_signatures_is_accepted() -> None:
    large = NoteSignature("witness.example/" + "w" * 100, bytes(4), bytes(5_000))
    assert len(parse_note(Note(TEXT, (large,) * 16).encode()).signatures) == 16


def test_a_note_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(DecodeError, match=f"at most {MAX_NOTE_BYTES} are allowed"):
        parse_note(b"a" * (MAX_NOTE_BYTES + 1))


# --- malformed keys


def vkey(name: str, kind: int, public: bytes) -> str:
    """Return a verifier key with the right key id, whatever its parts."""
    made = NoteKey(name, kind, public)  # type: ignore[arg-type]
    return made.text


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "want <name>"),
        (ORIGIN, "want <name>"),
        (LOG_KEY.text.rpartition("+")[0], "want <name>|not base64"),
        (vkey("", ED25519, LOG.public), "not a key name"),
        (vkey("a b", ED25519, LOG.public), "not a key name"),
        (vkey(ORIGIN, 2, LOG.public), "signature type is not"),
        (vkey(ORIGIN, 5, LOG.public), "signature type is not"),
        (vkey(ORIGIN, 6, bytes(1312)), "signature type is not"),
        (vkey(ORIGIN, ED25519, LOG.public[:-1]), "public key of 32 bytes, found 31"),
        (vkey(ORIGIN, COSIGNATURE, LOG.public + b"\x00"), "public key of 32 bytes, found 33"),
        (LOG_KEY.text.replace(LOG_KEY.key_id.hex(), "00000000"), "its key id is 00000000, name and key give"),
        (LOG_KEY.text.replace(LOG_KEY.key_id.hex(), ""), "its key id is , name and key give"),
        (LOG_KEY.text + "\n", "base64"),
        (" " + LOG_KEY.text, "not a key name"),
        (LOG_KEY.text + "=", "base64"),
        (LOG_KEY.text[:-1], "base64"),
    ],
)
def test_a_text_that_is_not_a_verifier_key_is_refused(text: str, match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        parse_key(text)


def test_a_key_of_another_name_or_type_has_another_key_id() -> None:
    ids = {NoteKey(name, kind, LOG.public).key_id for name in ("a", "b") for kind in (ED25519, COSIGNATURE)}
    assert len(ids) == 4


# --- verification


def test_signatures_of_unknown_keys_are_ignored_even_if_they_share_a_name_or_an_id() -> None:
    stray = (
        NoteSignature(ORIGIN, bytes(4), bytes(64)),
        NoteSignature("other.example", LOG_KEY.key_id, bytes(64)),
        NoteSignature("other.example", bytes(4), b"\x00"),
    )
    found = verified_signatures(Note(TEXT, (*stray, *SIGNED.signatures)), [LOG_KEY])
    assert found == {LOG_KEY: SIGNED.signatures[0]}


def test_a_note_without_a_known_signature_verifies_nothing() -> None:
    assert verified_signatures(SIGNED, [NoteKey(ORIGIN, ED25519, OTHER.public)]) == {}


@pytest.mark.parametrize("at", [0, 1], ids=["log", "witness"])
def test_a_signature_of_a_known_key_that_does_not_verify_spoils_the_note(at: int) -> None:
    line = SIGNED.signatures[at]
    for bad in (bytes(len(line.signature)), line.signature[:-1], line.signature + b"\x00", b"\x00"):
        spoilt = Note(TEXT, (*SIGNED.signatures, dataclasses.replace(line, signature=bad)))
        with pytest.raises(SignatureError, match=f"the signature of {line.name} does not verify"):
            verified_signatures(spoilt, [LOG_KEY, WITNESS_KEY])


def test_a_signature_of_one_type_does_not_verify_as_one_of_the_other() -> None:
    """Even if the same public key is used for both, which no key id would allow by chance."""
    plain, cosigned = sign_note(LOG, ORIGIN, TEXT), cosign(LOG, ORIGIN, TEXT, NOW)
    assert not NoteKey(ORIGIN, COSIGNATURE, LOG.public).is_valid(TEXT, plain.signature)
    assert not NoteKey(ORIGIN, ED25519, LOG.public).is_valid(TEXT, cosigned.signature)
    assert not NoteKey(ORIGIN, ED25519, LOG.public).is_valid(TEXT, cosigned.signature[8:])


def test_a_cosignature_covers_its_time() -> None:
    line = SIGNED.signatures[1]
    moved = (NOW + 1).to_bytes(8, "big") + line.signature[8:]
    assert not WITNESS_KEY.is_valid(TEXT, moved)


def test_a_cosignature_time_beyond_2_63_is_refused() -> None:
    def at(time: int) -> bytes:
        message = f"cosignature/v1\ntime {time}\n{TEXT}".encode()
        return time.to_bytes(8, "big") + WITNESS.sign(message)

    assert WITNESS_KEY.is_valid(TEXT, at(MAX_TIME))
    assert WITNESS_KEY.is_valid(TEXT, at(0))
    assert not WITNESS_KEY.is_valid(TEXT, at(MAX_TIME + 1))
    assert not WITNESS_KEY.is_valid(TEXT, at(2**64 - 1))
    for time in (-1, MAX_TIME + 1):
        with pytest.raises(EncodeError, match="a cosignature cannot have the time"):
            cosign(WITNESS, NAME, TEXT, UnixTime(time))


def test_of_several_cosignatures_of_one_witness_the_newest_counts_in_any_order() -> None:
    lines = [cosign(WITNESS, NAME, TEXT, UnixTime(NOW + at)) for at in (5, 300, 256)]
    for order in (lines, lines[::-1]):
        found = verified_signatures(Note(TEXT, tuple(order)), [WITNESS_KEY])
        assert note.cosigned_at(found[WITNESS_KEY].signature) == NOW + 300


def test_64_copies_of_a_signature_cost_one_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    real = keys.is_valid
    monkeypatch.setattr(note, "is_valid", lambda *arguments: calls.append(1) or real(*arguments))
    copies = Note(TEXT, SIGNED.signatures[:1] * MAX_SIGNATURES)
    assert verified_signatures(copies, [LOG_KEY])
    assert len(calls) == 1


def test_64_different_signatures_of_a_known_key_cost_one_verification_if_the_first_is_bad(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(note, "is_valid", lambda *_: calls.append(1))
    lines = tuple(NoteSignature(ORIGIN, LOG_KEY.key_id, bytes([n]) * 64) for n in range(MAX_SIGNATURES))
    with pytest.raises(SignatureError):
        verified_signatures(Note(TEXT, lines), [LOG_KEY])
    assert len(calls) == 1


# --- adding signatures


def test_a_new_signature_replaces_that_of_the_same_key() -> None:
    newer = cosign(WITNESS, NAME, TEXT, UnixTime(NOW + 1))
    other = cosign(OTHER, NAME, TEXT, NOW)
    grown = SIGNED.with_signatures([newer, other])
    assert grown.signatures == (SIGNED.signatures[0], newer, other)
    assert SIGNED.with_signatures([]) == SIGNED


def test_the_lines_that_a_witness_returns_are_parsed_as_bytes_or_text() -> None:
    line = SIGNED.signatures[1].line
    assert parse_signatures(line) == parse_signatures(line.encode()) == SIGNED.signatures[1:]
    for bad in (b"", b"\n", line.encode() + b"\n", line.encode()[:-1], b"\xff\n", b"old 5\n"):
        with pytest.raises(DecodeError):
            parse_signatures(bad)


@pytest.mark.parametrize("count", [0, MAX_SIGNATURES + 1])
def test_a_note_that_no_reader_accepts_is_not_encoded(count: int) -> None:
    with pytest.raises(EncodeError, match=f"a note has 1 to 64 signatures, not {count}"):
        Note(TEXT, SIGNED.signatures[:1] * count).encode()


def test_a_note_that_is_too_long_is_not_encoded() -> None:
    large = NoteSignature("w", bytes(4), bytes(MAX_NOTE_BYTES))
    with pytest.raises(EncodeError, match=f"a note has at most {MAX_NOTE_BYTES} bytes"):
        Note(TEXT, (large,)).encode()


@pytest.mark.parametrize("text", ["", "no newline", "a\tb\n", "a\x00\n", "a\r\n", "\udc80\n"])
def test_a_text_that_no_note_can_have_is_not_signed(text: str) -> None:
    with pytest.raises(EncodeError, match="the text must be lines of UTF-8"):
        sign_note(LOG, ORIGIN, text)
    with pytest.raises(EncodeError, match="the text must be lines of UTF-8"):
        cosign(WITNESS, NAME, text, NOW)


# --- tree heads


@steady(60)
@given(
    st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs"]), min_size=1, max_size=40),
    st.integers(0, MAX_SIZE),
    st.binary(min_size=32, max_size=32),
    st.lists(st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs"]), min_size=1), max_size=2),
)
def test_a_tree_head_is_parsed_as_it_was_written(
    origin: str, size: int, root: bytes, extensions: list[str]
) -> None:
    head = TreeHead(origin, size, root, tuple(extensions))
    assert parse_head(head.text) == head
    signed = SignedHead(head, Note(head.text, (sign_note(LOG, ORIGIN, head.text),)))
    assert parse_signed_head(signed.encode()) == signed


@pytest.mark.parametrize(
    "text",
    ["00", "01", "-1", "+1", "1 ", " 1", "", "1e3", "0x1", "1_000", "\u0661", str(MAX_SIZE + 1), "9" * 5_000],
)
def test_a_size_is_decimal_without_leading_zeros_and_below_2_63(text: str) -> None:
    with pytest.raises(DecodeError, match="is not a tree size"):
        parse_size(text, "here")
    with pytest.raises(DecodeError):
        parse_head(f"{ORIGIN}\n{text}\n{note.encode_hash(EMPTY_ROOT)}\n")


def test_the_largest_size_is_accepted() -> None:
    assert parse_size(str(MAX_SIZE), "here") == 2**63 - 1
    assert parse_size("0", "here") == 0


ROOT_LINE = note.encode_hash(EMPTY_ROOT)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "at least three lines"),
        (f"{ORIGIN}\n5\n", "at least three lines"),
        (f"\n5\n{ROOT_LINE}\n", "none of them empty"),
        (f"{ORIGIN}\n5\n{ROOT_LINE}", "at least three lines"),
        (f"{ORIGIN}\n5\n{ROOT_LINE}\n\n", "none of them empty"),
        (f"{ORIGIN}\n5\n{ROOT_LINE}\n\nextension\n", "none of them empty"),
        (f"{ORIGIN}\n\n5\n{ROOT_LINE}\n", "none of them empty"),
        (f"{ORIGIN}\n5\n{ROOT_LINE[:-1]}\n", "base64"),
        (f"{ORIGIN}\n5\n{base64.b64encode(bytes(31)).decode()}\n", "a hash of 32 bytes, found 31"),
        (f"{ORIGIN}\n5\n{base64.b64encode(bytes(33)).decode()}\n", "a hash of 32 bytes, found 33"),
        (f"a\x01b\n5\n{ROOT_LINE}\n", "control character"),
    ],
)
def test_a_text_that_is_not_a_checkpoint_is_refused(text: str, match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        parse_head(text)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"origin": ""}, "not empty"),
        ({"origin": "a\nb"}, "control characters"),
        ({"origin": "a\udcff"}, "lines of UTF-8"),
        ({"extensions": ("",)}, "not empty"),
        ({"extensions": ("a\n5",)}, "control characters"),
        ({"size": -1}, "a size of 0"),
        ({"size": 2**63}, "a size of 0"),
        ({"root": bytes(31)}, "a root of 32 bytes"),
    ],
)
def test_a_tree_head_that_no_reader_accepts_cannot_be_made(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(EncodeError, match=match):
        dataclasses.replace(TreeHead(ORIGIN, 5, EMPTY_ROOT), **changes)


def test_a_signed_head_is_not_made_with_the_note_of_another_head() -> None:
    with pytest.raises(EncodeError, match="not that of the tree head"):
        SignedHead(TreeHead(ORIGIN, 6, EMPTY_ROOT), SIGNED)


def test_an_extension_line_is_kept_and_signed() -> None:
    head = TreeHead(ORIGIN, 5, EMPTY_ROOT, ("an extension", "another"))
    signed = Note(head.text, (sign_note(LOG, ORIGIN, head.text),))
    without = Note(TreeHead(ORIGIN, 5, EMPTY_ROOT).text, signed.signatures)
    assert parse_signed_head(signed.encode()).head == head
    with pytest.raises(SignatureError):
        verified_signatures(without, [LOG_KEY])
