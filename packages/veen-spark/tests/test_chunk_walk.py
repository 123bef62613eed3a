"""Reading a chunk in windows finds the same entries and damage as trying every byte."""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from veen_core.entry import FRAME_SIZE, Entry, decode_frame, entry_hash
from veen_core.errors import DecodeError
from veen_core.ids import Label, StreamSeq
from veen_spark.read import chunk_walk
from veen_spark.read.chunk_walk import ChunkWalk
from veen_spark.read.segment import ControlEntry, Damage, SparkSegment, single_items

LABEL, OTHER = Label(bytes(range(32))), Label(bytes(32))
FoundLogs = tuple[int, Any]
"""Offset, and the entry or the number of damaged bytes."""


def entry_at(data: bytes, at: int, most: int) -> Entry | None:
    """Return the valid frame that begins at this offset, if any (core §4.8.1)."""
    try:
        head = decode_frame(data, at)
    except DecodeError:
        return None
    body = data[at + FRAME_SIZE : at + head.size]
    entry = Entry(head.label, head.stream_seq, body[: head.msg_len], body[head.msg_len :], head.flags)
    fits = head.size <= most and at + head.size <= len(data) and head.receipt_len > 0
    holds = (
        fits and head.label == LABEL and entry_hash(entry.msg_bytes, entry.receipt_bytes) == head.entry_hash
    )
    return entry if holds else None


def plainly(data: bytes, most: int) -> Iterator[FoundLogs]:
    at = lost = 0
    while at < len(data):
        if (entry := entry_at(data, at, most)) is None:
            at += 1
            continue
        if at > lost:
            yield lost, at - lost
        yield at, entry
        at = lost = at + len(entry.encode())
    if at > lost:
        yield lost, at - lost


def walked(path: Path) -> Iterator[FoundLogs]:
    for item in ChunkWalk(segment(path)).items():
        for one in single_items(item):
            if isinstance(one, Damage):
                yield one.offset, one.length
            elif isinstance(one, ControlEntry):
                yield one.offset, Entry(LABEL, StreamSeq(one.seq), one.token, one.receipt, 1)
            else:
                yield one.offset, Entry(LABEL, StreamSeq(one.seq), one.msg, one.receipt)


def segment(path: Path) -> SparkSegment:
    return SparkSegment(
        form="chunk", origin="", path=str(path), hub_id=None, label=LABEL, start_seq=1, end_seq=None
    )


def frames(rng: random.Random) -> list[bytes]:
    """Generate entries, some with another label, without a RECEIPT, with a token or with a frame inside."""
    made: list[bytes] = []
    for seq in range(1, rng.randrange(2, 14)):
        inside = rng.choice(made)[: rng.randrange(500)] if made and rng.random() < 0.1 else b""
        msg = inside or rng.randbytes(rng.choice((0, 1, 50, 200, 900)))
        receipt = rng.randbytes(rng.choice((1, 30, 172)) if rng.random() < 0.97 else 0)
        label, flags = rng.choices((LABEL, OTHER), (30, 1))[0], rng.choices((0, 1), (6, 1))[0]
        made.append(Entry(label, StreamSeq(seq), msg, receipt, flags).encode())
    return made


def damaged(rng: random.Random, made: list[bytes]) -> bytes:
    if rng.random() < 0.5:
        rng.shuffle(made)
    data = bytearray(b"".join(made))
    for _ in range(rng.randrange(5)):
        at, size = rng.randrange(len(data) + 1), rng.choice((1, 5, 33, 40, 90, 200))
        how = rng.randrange(5)
        if how == 0:
            data[at : at + 1] = bytes(byte ^ 1 << rng.randrange(8) for byte in data[at : at + 1])
        elif how == 1:
            del data[at : at + size]
        elif how == 2:
            data[at:at] = rng.randbytes(size)
        elif how == 3:
            data[at : at + 4] = rng.choice((b"\xff" * 4, bytes(4), b"\0\x10\0\0"))
        else:
            del data[at:]
    return bytes(data)


@pytest.mark.parametrize(
    ("window", "most_entries", "max_frame"),
    [
        (chunk_walk.WINDOW_BYTES, chunk_walk.MAX_SPAN_ENTRIES, chunk_walk.MAX_FRAME_BYTES),
        (97, 3, 2_000),
        (1_000, 2, 700),
    ],
    ids=["as it is", "tiny windows", "small limits"],
)
def test_entries_and_damage_are_found_at_their_offsets(
    window: int, most_entries: int, max_frame: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("WINDOW_BYTES", window),
        ("MAX_SPAN_ENTRIES", most_entries),
        ("MAX_FRAME_BYTES", max_frame),
    ):
        monkeypatch.setattr(chunk_walk, name, value)
    path = tmp_path / "chunk"
    for seed in range(150):
        rng = random.Random(seed)
        path.write_bytes(data := damaged(rng, frames(rng)))
        assert list(walked(path)) == list(plainly(data, max_frame)), seed


class Counting:
    """SHA-256 that counts its input bytes."""

    size = 0

    def __init__(self) -> None:
        self._hash = sha256(b"veen/entry")
        self.digest = self._hash.digest

    def update(self, data: bytes | memoryview) -> None:
        Counting.size += len(data)
        self._hash.update(data)

    copy = classmethod(lambda cls: cls())


@pytest.mark.parametrize("kind", ["control entries", "damage"])
def test_control_entries_between_messages_do_not_cause_repeated_hashing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second entry is a token; each entry is hashed a few times, not once per entry after it."""
    made = []
    for seq in range(1, 401):
        odd = seq % 2
        flags = odd if kind == "control entries" else 0
        frame = bytearray(Entry(LABEL, StreamSeq(seq), bytes(300), bytes(172), flags).encode())
        frame[-1] ^= odd if kind == "damage" else 0
        made.append(bytes(frame))
    path = tmp_path / "chunk"
    path.write_bytes(b"".join(made))
    monkeypatch.setattr(Counting, "size", 0)
    monkeypatch.setattr(chunk_walk, "_ENTRY", Counting())
    assert len(list(walked(path))) == 400
    assert Counting.size < 4 * path.stat().st_size
