"""Vectors of the files next to a label's log: summary, peaks, checkpoint index, pruned entries (§4.8.3)."""

from __future__ import annotations

from typing import Any

import cbor2

from veen_core import chunk
from veen_core.entry import Entry
from veen_core.errors import DecodeError
from veen_core.ids import StreamSeq, UnixTime

from . import cast
from .case import Bad, Context, Good, Object, decoded, read, readable
from .crooked import Raw, encode, indefinite

LOG = cast.log()
ENTRIES = [LOG.entry(seq) for seq in range(1, 8)]


def _summary(start: int, end: int) -> bytes:
    held = ENTRIES[start - 1 : end]
    return chunk.ChunkSummary(
        label=cast.LABEL,
        start_seq=StreamSeq(start),
        end_seq=StreamSeq(end),
        mmr_root_end=LOG.root(end),
        entry_count=len(held),
        total_bytes=sum(len(entry.encode()) for entry in held),
        entry_hashes_root=chunk.entry_hashes_root(entry.entry_hash for entry in held),
    ).encode()


CHUNK_SUMMARY = Object(
    name="chunk_summary",
    judge=decoded(chunk.ChunkSummary),
    wire=chunk.ChunkSummary,
    good=(
        Good("first_four", _summary(1, 4)),
        Good("next_three", _summary(5, 7)),
        Good("one", _summary(1, 1)),
    ),
)


# --- peaks: an array of hashes and nothing else


def judge_peaks(wire: bytes, _context: Context) -> Any:
    peaks = chunk.decode_peaks(wire)
    if chunk.encode_peaks(peaks) != wire:
        raise AssertionError("peaks decode what they do not encode")
    return [peak.hex() for peak in peaks]


PEAKS = chunk.encode_peaks(LOG.tree(7).peaks)
HASHES = cbor2.loads(PEAKS)
PEAKS_OBJECT = Object(
    name="peaks",
    judge=judge_peaks,
    good=(
        Good("of_seven", PEAKS),
        Good("of_one", chunk.encode_peaks(LOG.tree(1).peaks)),
        Good("of_none", chunk.encode_peaks(())),
    ),
    bad=tuple(
        Bad(name, wire, DecodeError, match)
        for name, wire, match in (
            ("truncated", PEAKS[:-1], "not CBOR"),
            ("trailing_byte", PEAKS + b"\0", "not canonical CBOR: 1 bytes after the item"),
            ("indefinite_length", indefinite(HASHES), "not CBOR"),
            ("peak_short", encode([HASHES[0][:-1]]), "want NodeHash of 32 bytes, found 31"),
            ("peak_null", encode([None]), "want an array of peaks"),
            ("peak_long_form", encode([Raw(b"\x59\x00\x20" + HASHES[0])]), "not canonical CBOR"),
            ("map", encode({}), "want an array of peaks"),
        )
    ),
)


# --- one line of the checkpoint index

CHECKPOINT_INDEX_ENTRY = Object(
    name="checkpoint_index_entry",
    judge=decoded(chunk.CheckpointIndexEntry),
    wire=chunk.CheckpointIndexEntry,
    good=(
        Good(
            "of_seven",
            chunk.CheckpointIndexEntry(
                upto_seq=StreamSeq(7),
                mmr_root=LOG.root(7),
                chunk_start=StreamSeq(5),
                chunk_end=StreamSeq(7),
                peaks_ref=chunk.peaks_name(cast.LABEL, StreamSeq(7)),
            ).encode(),
        ),
    ),
    bad=(
        Bad(
            "peaks_ref_bytes",
            encode([7, LOG.root(7), 5, 7, b"peaks"]),
            DecodeError,
            "checkpoint index entry.peaks_ref (core §4.8.3): want tstr, found bstr",
        ),
    ),
)


# --- pruned entry: what stays must still give the leaf that the receipt is for


def judge_pruned(wire: bytes, _context: Context) -> Any:
    pruned = read(chunk.PrunedEntry, wire)
    return readable(pruned) | {"leaf_hash": pruned.leaf_hash.hex()}


GATED = cast.sealed(cast.binding(auth_ref=cast.token().auth_ref)).msg
GATED_RECEIPT = cast.receipt(1, GATED.leaf_hash, LOG.root(1))
PRUNED_ENTRY = Object(
    name="pruned_entry",
    judge=judge_pruned,
    wire=chunk.PrunedEntry,
    good=(
        Good(
            "gated",
            chunk.prune(Entry(cast.LABEL, StreamSeq(1), GATED.encode(), GATED_RECEIPT.encode())).encode(),
        ),
        Good("sixth", chunk.prune(LOG.entry(6)).encode()),
    ),
)
PRUNED_CHUNK = Object(
    name="pruned_chunk",
    judge=decoded(chunk.PrunedHead),
    wire=chunk.PrunedHead,
    good=(
        Good(
            "first_four",
            chunk.PrunedHead(
                label=cast.LABEL,
                start_seq=StreamSeq(1),
                end_seq=StreamSeq(4),
                pruned_at=UnixTime(1_900_000_000),
                sizes=tuple(len(entry.encode()) for entry in ENTRIES[:4]),
            ).encode(),
        ),
    ),
)
OBJECTS = (CHUNK_SUMMARY, PEAKS_OBJECT, CHECKPOINT_INDEX_ENTRY, PRUNED_ENTRY, PRUNED_CHUNK)
