"""The add-checkpoint request of a log to a witness (C2SP tlog-witness)."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen_core.errors import DecodeError, EncodeError
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog.add_checkpoint import MAX_REQUEST_BYTES, AddCheckpoint, parse_add_checkpoint
from veen_core.tlog.note import MAX_NOTE_BYTES, Note, NoteSignature, sign_note
from veen_core.tlog.tree_head import MAX_SIZE, SignedHead, TreeHead

from .strategies import steady

ORIGIN = "log.example/one"
HEAD = TreeHead(ORIGIN, 8, bytes(range(32)))
CHECKPOINT = SignedHead(
    HEAD, Note(HEAD.text, (sign_note(SigningKey(SigningSeed(bytes(32))), ORIGIN, HEAD.text),))
)
NOTE = CHECKPOINT.encode()
HASH = base64.b64encode(bytes(32)).decode()

hashes = st.lists(st.binary(min_size=32, max_size=32), max_size=63).map(tuple)


@steady(40)
@given(st.integers(0, MAX_SIZE), hashes)
def test_a_request_is_parsed_as_it_was_encoded(old_size: int, proof: tuple[bytes, ...]) -> None:
    request = AddCheckpoint(old_size, proof, CHECKPOINT)
    assert parse_add_checkpoint(request.encode()) == request


def test_a_request_without_a_proof_has_an_empty_line_after_the_old_size() -> None:
    assert AddCheckpoint(0, (), CHECKPOINT).encode() == b"old 0\n\n" + NOTE


@pytest.mark.parametrize(
    ("head", "match"),
    [
        ("", "does not start with the old size"),
        ("old 0\n", "base64"),
        ("\n\n", "does not start with the old size"),
        ("0\n\n", "does not start with the old size"),
        ("Old 0\n\n", "does not start with the old size"),
        ("old\n\n", "does not start with the old size"),
        ("old \n\n", "is not a tree size"),
        ("old  0\n\n", "is not a tree size"),
        ("old 0 \n\n", "is not a tree size"),
        ("old 00\n\n", "is not a tree size"),
        ("old 07\n\n", "is not a tree size"),
        ("old -1\n\n", "is not a tree size"),
        (f"old {2**63}\n\n", "is not a tree size"),
        ("old \u0661\n\n", "not ASCII"),
        ("old 0\r\n\r\n\r\n\n", "is not a tree size"),
        (f"old 1\n{HASH[:-1]}\n\n", "base64"),
        (f"old 1\n {HASH}\n\n", "base64"),
        (f"old 1\n{base64.b64encode(bytes(31)).decode()}\n\n", "a hash of 32 bytes, found 31"),
        ("old 1\n" + f"{HASH}\n" * 64 + "\n", "a proof of 64 hashes, at most 63 are allowed"),
    ],
)
def test_a_request_with_another_first_part_is_refused(head: str, match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        parse_add_checkpoint(head.encode() + NOTE)


def test_63_hashes_are_accepted() -> None:
    body = b"old 1\n" + f"{HASH}\n".encode() * 63 + b"\n" + NOTE
    assert len(parse_add_checkpoint(body).proof) == 63


@pytest.mark.parametrize("note", [b"", HEAD.text.encode(), NOTE[:-1], NOTE + b"\n", b"\n" + NOTE])
def test_a_request_whose_checkpoint_is_not_one_is_refused(note: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_add_checkpoint(b"old 0\n\n" + note)


def test_a_request_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(DecodeError, match=f"at most {MAX_REQUEST_BYTES} are allowed"):
        parse_add_checkpoint(b"old 0\n" * MAX_REQUEST_BYTES)


def test_the_longest_note_and_the_longest_proof_fit_into_a_request() -> None:
    line = NoteSignature("w", bytes(4), bytes((MAX_NOTE_BYTES - len(NOTE) - 20) // 4 * 3 - 8))
    long = SignedHead(HEAD, CHECKPOINT.note.with_signatures([line]))
    assert MAX_NOTE_BYTES - 40 < len(long.encode()) <= MAX_NOTE_BYTES
    request = AddCheckpoint(MAX_SIZE, (bytes(32),) * 63, long)
    assert parse_add_checkpoint(request.encode()) == request


def test_a_log_does_not_send_more_than_63_hashes() -> None:
    with pytest.raises(EncodeError, match="the proof has 64 hashes, at most 63"):
        AddCheckpoint(1, (bytes(32),) * 64, CHECKPOINT).encode()
