"""Chunks: the files of a label's log, their names and summaries (§4.8.2, §4.8.3).

Names and summaries depend only on the log and the limit registry, so that two hubs with the same log have
the same files. The chunk that still grows has the name ``chunk-<label>-<start>.open``; the entry that no
longer fits closes it and starts the next chunk.
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
"""Digits of a stream_seq in a file name, zero-padded so that names sort by number (§4.8.3)."""


def chunk_name(label: Label, start: StreamSeq, end: StreamSeq | None) -> str:
    """Return the name of the file with entries ``start`` to ``end``; None: the chunk still grows."""
    stem = f"chunk-{label.hex()}-{start:0{SEQ_WIDTH}d}"
    return f"{stem}.open" if end is None else f"{stem}-{end:0{SEQ_WIDTH}d}.log"


def summary_name(label: Label, start: StreamSeq, end: StreamSeq) -> str:
    """Return the name of a chunk's summary."""
    return f"chunk-{label.hex()}-{start:0{SEQ_WIDTH}d}-{end:0{SEQ_WIDTH}d}.summary"


def pruned_name(label: Label, start: StreamSeq, end: StreamSeq) -> str:
    """Return the name of the file that replaces a chunk whose payloads were pruned."""
    return f"chunk-{label.hex()}-{start:0{SEQ_WIDTH}d}-{end:0{SEQ_WIDTH}d}.pruned"


def peaks_name(label: Label, upto: StreamSeq) -> str:
    """Return the name of the peak snapshot after entry ``upto``."""
    return f"peaks-{label.hex()}-{upto:0{SEQ_WIDTH}d}.cbor"


def checkpoint_name(label: Label, upto: StreamSeq) -> str:
    """Return the name of the checkpoint at entry ``upto``."""
    return f"checkpoint-{label.hex()}-{upto:0{SEQ_WIDTH}d}.cbor"


def checkpoint_index_name(label: Label) -> str:
    """Return the name of a label's checkpoint index."""
    return f"checkpoint-index-{label.hex()}.cbor"


_NAME: Final = re.compile(
    r"chunk-(?P<label>[0-9a-f]{64})-(?P<start>\d{20})(?:-(?P<end>\d{20}))?\.(?P<kind>log|open|summary|pruned)"
)


@dataclass(frozen=True, slots=True)
class ChunkName:
    """The parts of a chunk's file name."""

    label: Label
    start: StreamSeq
    end: StreamSeq | None
    kind: Literal["log", "open", "summary", "pruned"]


def parse_chunk_name(name: str) -> ChunkName | None:
    """Return the parts of a chunk's file name; None for any other name."""
    if (match := _NAME.fullmatch(name)) is None or (match["kind"] == "open") != (match["end"] is None):
        return None
    end = None if match["end"] is None else StreamSeq(int(match["end"]))
    return ChunkName(Label.from_hex(match["label"]), StreamSeq(int(match["start"])), end, match["kind"])  # type: ignore[arg-type]  # the pattern allows only these four


def rolls(chunk_bytes: int, chunk_entries: int, entry_size: int, limits: Limits) -> bool:
    """Return whether the next entry starts a new chunk (§4.8.2).

    Entries count from the start of the chunk, where every hub makes a checkpoint. A checkpoint that an
    operator makes in between must not count, or chunk boundaries would depend on more than the log.
    """
    if chunk_entries == 0:
        return False
    return (
        chunk_bytes + entry_size > limits.max_chunk_bytes or chunk_entries >= limits.max_checkpoint_interval
    )


@array("chunk summary", section="4.8.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSummary(Wire):
    """The summary of a chunk, fields in the order of §4.8.3."""

    label: Label
    start_seq: StreamSeq
    end_seq: StreamSeq
    mmr_root_end: MmrRoot
    entry_count: int
    total_bytes: int
    entry_hashes_root: MmrRoot


def entry_hashes_root(hashes: Iterable[EntryHash]) -> MmrRoot:
    """Return the MMR root over entry hashes, in the order of entries (§4.8.3)."""
    tree = Mmr()
    for entry_hash in hashes:
        tree.add(entry_hash)
    return tree.root


def encode_peaks(peaks: Iterable[NodeHash]) -> bytes:
    """Encode a peak snapshot: an array of peaks (§4.8.3)."""
    return cbor.encode([bytes(peak) for peak in peaks])


def decode_peaks(data: bytes) -> tuple[NodeHash, ...]:
    """Decode a peak snapshot (§4.8.3)."""
    item = cbor.decode(data)
    if not isinstance(item, list) or not all(isinstance(peak, bytes) for peak in item):
        raise DecodeError("want an array of peaks", where="peaks (core §4.8.3)")
    return tuple(NodeHash(peak) for peak in item if isinstance(peak, bytes))


@array("checkpoint index entry", section="4.8.3")
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointIndexEntry(Wire):
    """One item of a label's checkpoint index, which is a CBOR sequence (§4.8.3)."""

    upto_seq: StreamSeq
    mmr_root: MmrRoot
    chunk_start: StreamSeq
    chunk_end: StreamSeq
    peaks_ref: str


@int_map("pruned entry", section="retention")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedEntry(Wire):
    """The part of an entry that remains when retention prunes the payload.

    It consists of the receipt, the entry hash, and the MSG fields from which the leaf hash and the indices
    are computed.
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
        """The leaf hash, recomputed from the fields, to be compared with the receipt's."""
        return leaf_hash(self.receipt.label, self.profile_id, self.ct_hash, self.client_id, self.client_seq)


@int_map("pruned chunk", section="retention")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedHead(Wire):
    """The first item of a pruned chunk's file; the pruned entries follow."""

    label: Label
    start_seq: StreamSeq
    end_seq: StreamSeq
    pruned_at: UnixTime
    sizes: tuple[int, ...]
    """Bytes of each entry's frame before pruning, in order."""


def prune(entry: Entry) -> PrunedEntry:
    """Return an entry without its ciphertext and its signature."""
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
