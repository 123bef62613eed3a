"""How a label's log is cut into chunks, and what they are called (§4.8.2, §4.8.3)."""

import dataclasses

import pytest

from veen_core import DEFAULT_LIMITS, DecodeError, Label, Mmr, cbor
from veen_core.chunk import (
    CheckpointIndexEntry,
    ChunkName,
    ChunkSummary,
    PrunedEntry,
    checkpoint_index_name,
    checkpoint_name,
    chunk_name,
    decode_peaks,
    encode_peaks,
    entry_hashes_root,
    parse_chunk_name,
    peaks_name,
    prune,
    pruned_name,
    rolls,
    summary_name,
)
from veen_core.ids import StreamSeq

from .simulator import Hub

LABEL = Label(b"\xab" * 32)
HEX = "ab" * 32
ONE, TEN = StreamSeq(1), StreamSeq(10)
START, END = "00000000000000000001", "00000000000000000010"


def test_names_are_those_of_the_spec() -> None:
    assert chunk_name(LABEL, ONE, TEN) == f"chunk-{HEX}-{START}-{END}.log"
    assert summary_name(LABEL, ONE, TEN) == f"chunk-{HEX}-{START}-{END}.summary"
    assert peaks_name(LABEL, TEN) == f"peaks-{HEX}-{END}.cbor"
    assert checkpoint_name(LABEL, TEN) == f"checkpoint-{HEX}-{END}.cbor"
    assert checkpoint_index_name(LABEL) == f"checkpoint-index-{HEX}.cbor"


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        pytest.param(chunk_name(LABEL, ONE, TEN), ChunkName(LABEL, ONE, TEN, "log"), id="closed"),
        pytest.param(chunk_name(LABEL, ONE, None), ChunkName(LABEL, ONE, None, "open"), id="growing"),
        pytest.param(summary_name(LABEL, ONE, TEN), ChunkName(LABEL, ONE, TEN, "summary"), id="summary"),
        pytest.param(pruned_name(LABEL, ONE, TEN), ChunkName(LABEL, ONE, TEN, "pruned"), id="pruned"),
    ],
)
def test_names_are_read_back(name: str, parsed: ChunkName) -> None:
    assert parse_chunk_name(name) == parsed


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="nothing"),
        pytest.param(f"chunk-{HEX}-{START}.log", id="closed without an end"),
        pytest.param(f"chunk-{HEX}-{START}-{END}.open", id="growing with an end"),
        pytest.param(f"chunk-{HEX.upper()}-{START}-{END}.log", id="uppercase"),
        pytest.param(f"chunk-{HEX}-1-10.log", id="not padded"),
        pytest.param(f"chunk-{HEX}-{START}-{END}.log.tmp", id="a leftover"),
        pytest.param(peaks_name(LABEL, TEN), id="peaks"),
    ],
)
def test_other_names_are_not_chunks(name: str) -> None:
    assert parse_chunk_name(name) is None


@pytest.mark.parametrize(
    ("size", "entries", "entry", "roll"),
    [
        pytest.param(0, 0, 10**9, False, id="the first entry always fits"),
        pytest.param(100, 1, 1, False, id="room left"),
        pytest.param(DEFAULT_LIMITS.max_chunk_bytes - 10, 1, 10, False, id="exactly full"),
        pytest.param(DEFAULT_LIMITS.max_chunk_bytes - 10, 1, 11, True, id="a byte too many"),
        pytest.param(
            100, DEFAULT_LIMITS.max_checkpoint_interval - 1, 1, False, id="the last of the interval"
        ),
        pytest.param(100, DEFAULT_LIMITS.max_checkpoint_interval, 1, True, id="the interval is full"),
    ],
)
def test_a_chunk_rolls_by_bytes_or_by_interval(size: int, entries: int, entry: int, roll: bool) -> None:
    assert rolls(size, entries, entry, DEFAULT_LIMITS) is roll


def test_peaks_come_back_from_their_snapshot(hub: Hub) -> None:
    hub.write("bob", b"1", b"2", b"3")
    assert decode_peaks(encode_peaks(hub.log.peaks)) == hub.log.peaks
    assert Mmr(3, decode_peaks(encode_peaks(hub.log.peaks))).root == hub.log.root


@pytest.mark.parametrize(
    "item", [{}, [1], [b"short"], None], ids=["a map", "a number", "a short peak", "null"]
)
def test_a_snapshot_of_another_shape_is_refused(item: object) -> None:
    with pytest.raises(DecodeError):
        decode_peaks(cbor.encode(item))


def test_a_summary_and_an_index_line_come_back(hub: Hub) -> None:
    hub.write("bob", b"1", b"2")
    root = entry_hashes_root(e.entry_hash for e in hub.entries)
    tree = Mmr()
    for entry in hub.entries:
        tree.append(entry.entry_hash)
    assert root == tree.root
    summary = ChunkSummary(
        label=hub.label,
        start_seq=ONE,
        end_seq=StreamSeq(2),
        mmr_root_end=hub.log.root,
        entry_count=2,
        total_bytes=9,
        entry_hashes_root=root,
    )
    assert ChunkSummary.decode(summary.encode()) == summary
    line = CheckpointIndexEntry(
        upto_seq=StreamSeq(2), mmr_root=hub.log.root, chunk_start=ONE, chunk_end=StreamSeq(2), peaks_ref="p"
    )
    assert CheckpointIndexEntry.decode(line.encode()) == line


def test_a_pruned_entry_still_proves_its_leaf(hub: Hub) -> None:
    hub.write("bob")
    (entry,) = hub.entries
    pruned = prune(entry)
    assert PrunedEntry.decode(pruned.encode()) == pruned
    assert pruned.leaf_hash == pruned.receipt.leaf_hash == entry.msg.leaf_hash
    assert entry.msg.ciphertext not in pruned.encode()
    assert dataclasses.replace(pruned, client_seq=2).leaf_hash != pruned.receipt.leaf_hash
