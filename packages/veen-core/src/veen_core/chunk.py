"""Chunks: how a label's log is cut into files, what they are called and what sums them up (§4.8.2, §4.8.3).

Names and summaries follow from log contents and the limit registry alone, so that two hubs with
the same log have the same files. A chunk that is still growing has no end yet: it is called
``chunk-<label>-<start>.open`` until the entry that does not fit rolls it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from veen_core import cbor
from veen_core.ciphertext import leaf_hash
from veen_core.entry import Entry
from veen_core.errors import DecodeError
from veen_core.ids import (
    AuthRef,
    ClientId,
    ClientSeq,
    CtHash,
    EntryHash,
    Label,
    LeafHash,
    MmrRoot,
    NodeHash,
    ProfileId,
    StreamSeq,
    UnixTime,
)
from veen_core.limits import Limits
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_core.wire import Wire, array, int_map

SEQ_WIDTH: Final = 20
"""Zero-padded decimal, for stable ordering (§4.8.3)."""


def chunk_name(label: Label, start: StreamSeq, end: StreamSeq | None) -> str:
    """Of the chunk's entries; without an ``end``, of one that still grows."""
    stem = f"chunk-{label.hex()}-{start:0{SEQ_WIDTH}d}"
    return f"{stem}.open" if end is None else f"{stem}-{end:0{SEQ_WIDTH}d}.log"


def summary_name(label: Label, start: StreamSeq, end: StreamSeq) -> str:
    return f"chunk-{label.hex()}-{start:0{SEQ_WIDTH}d}-{end:0{SEQ_WIDTH}d}.summary"


def pruned_name(label: Label, start: StreamSeq, end: StreamSeq) -> str:
    """What stays of a chunk whose payloads were pruned."""
    return f"chunk-{label.hex()}-{start:0{SEQ_WIDTH}d}-{end:0{SEQ_WIDTH}d}.pruned"


def peaks_name(label: Label, upto: StreamSeq) -> str:
    return f"peaks-{label.hex()}-{upto:0{SEQ_WIDTH}d}.cbor"


def checkpoint_name(label: Label, upto: StreamSeq) -> str:
    return f"checkpoint-{label.hex()}-{upto:0{SEQ_WIDTH}d}.cbor"


def checkpoint_index_name(label: Label) -> str:
    return f"checkpoint-index-{label.hex()}.cbor"


_NAME: Final = re.compile(
    r"chunk-(?P<label>[0-9a-f]{64})-(?P<start>\d{20})(?:-(?P<end>\d{20}))?\.(?P<kind>log|open|summary|pruned)"
)


@dataclass(frozen=True, slots=True)
class ChunkName:
    """A chunk's name, parsed."""

    label: Label
    start: StreamSeq
    end: StreamSeq | None
    kind: Literal["log", "open", "summary", "pruned"]


def parse_chunk_name(name: str) -> ChunkName | None:
    """The name's parts, or None if it is not a chunk's."""
    if (match := _NAME.fullmatch(name)) is None or (match["kind"] == "open") != (match["end"] is None):
        return None
    end = None if match["end"] is None else StreamSeq(int(match["end"]))
    return ChunkName(Label.from_hex(match["label"]), StreamSeq(int(match["start"])), end, match["kind"])  # type: ignore[arg-type]  # one of the four, by the pattern


def rolls(chunk_bytes: int, chunk_entries: int, entry_size: int, limits: Limits) -> bool:
    """Whether the next entry starts a new chunk (§4.8.2).

    "Since the last checkpoint" counts from the chunk's start: every roll makes a checkpoint, and
    one made by hand in between must not move boundaries, or they would depend on more than the log.
    """
    if chunk_entries == 0:
        return False
    return (
        chunk_bytes + entry_size > limits.max_chunk_bytes or chunk_entries >= limits.max_checkpoint_interval
    )


@array("chunk summary", section="4.8.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSummary(Wire):
    """Fields as §4.8.3 lists them."""

    label: Label
    start_seq: StreamSeq
    end_seq: StreamSeq
    mmr_root_end: MmrRoot
    entry_count: int
    total_bytes: int
    entry_hashes_root: MmrRoot


def entry_hashes_root(hashes: Iterable[EntryHash]) -> MmrRoot:
    """The MMR root over entry hashes, in entry order (§4.8.3)."""
    tree = Mmr()
    for entry_hash in hashes:
        tree.add(entry_hash)
    return tree.root


def encode_peaks(peaks: Iterable[NodeHash]) -> bytes:
    """A peak snapshot: the peak array, nothing else (§4.8.3)."""
    return cbor.encode([bytes(peak) for peak in peaks])


def decode_peaks(data: bytes) -> tuple[NodeHash, ...]:
    item = cbor.decode(data)
    if not isinstance(item, list) or not all(isinstance(peak, bytes) for peak in item):
        raise DecodeError("want an array of peaks", where="peaks §4.8.3")
    return tuple(NodeHash(peak) for peak in item if isinstance(peak, bytes))


@array("checkpoint index entry", section="4.8.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointIndexEntry(Wire):
    """One line of a label's checkpoint index, a CBOR sequence: upto_seq to root, chunk range, peaks."""

    upto_seq: StreamSeq
    mmr_root: MmrRoot
    chunk_start: StreamSeq
    chunk_end: StreamSeq
    peaks_ref: str


@int_map("pruned entry", section="retention")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedEntry(Wire):
    """What stays of an entry when its payload goes.

    The receipt, the entry hash, and every MSG field that leaf hash and indices are made from.
    """

    receipt: Receipt
    entry_hash: EntryHash
    profile_id: ProfileId
    client_id: ClientId
    client_seq: ClientSeq
    prev_ack: StreamSeq
    ct_hash: CtHash
    auth_ref: AuthRef | None = None

    @property
    def leaf_hash(self) -> LeafHash:
        """Recomputed, to be held against the receipt's."""
        return leaf_hash(self.receipt.label, self.profile_id, self.ct_hash, self.client_id, self.client_seq)


@int_map("pruned chunk", section="retention")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedHead(Wire):
    """The first item of a pruned chunk's file: what the entries after it do not say themselves."""

    label: Label
    start_seq: StreamSeq
    end_seq: StreamSeq
    pruned_at: UnixTime
    sizes: tuple[int, ...]
    """Of each entry's frame, in order: where it lay."""


def prune(entry: Entry) -> PrunedEntry:
    """Drop the ciphertext and the signature over it."""
    msg = entry.msg
    return PrunedEntry(
        receipt=entry.receipt,
        entry_hash=entry.entry_hash,
        profile_id=msg.profile_id,
        client_id=msg.client_id,
        client_seq=msg.client_seq,
        prev_ack=msg.prev_ack,
        ct_hash=msg.ct_hash,
        auth_ref=msg.auth_ref,
    )
