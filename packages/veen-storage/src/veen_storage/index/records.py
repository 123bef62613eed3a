"""The rows of the index and how they are packed; ``tables`` says which table holds which."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, NewType

from veen_core.cap import CapToken, ClaimsRef
from veen_core.hub_log import LabelHead
from veen_core.ids import ClientSeq, Epoch, Label, MmrRoot, StreamSeq, UnixTime
from veen_core.mmr import Mmr, root_of
from veen_core.rate import Bucket
from veen_core.tlog.tree import Tree

LabelNo = NewType("LabelNo", int)
"""A label's number in this index, in order of appearance; it has no meaning outside the index."""

U32: Final = struct.Struct(">I")
U64: Final = struct.Struct(">Q")
LABEL_SEQ: Final = struct.Struct(">IQ")
NODE: Final = struct.Struct(">IBQ")
LABEL_CLIENT: Final = struct.Struct(">I32s")
TIME_LABEL: Final = struct.Struct(">QI")
MANIFEST_KEY: Final = struct.Struct(">IQQQ")
EPOCH_LABEL_SEQ: Final = struct.Struct(">QIQ")
CAP_LABEL: Final = struct.Struct(">32sI")
HUB_NODE: Final = struct.Struct(">QB")

_LOCATION: Final = struct.Struct(">QII")
_CLIENT: Final = struct.Struct(">QQ")
_BUCKET: Final = struct.Struct(">QQ")
_TOMBSTONE: Final = struct.Struct(">QQ")
_CHUNK: Final = struct.Struct(">QQ?")
_SEGMENT: Final = struct.Struct(">QQQ?32s32s")
_HEAD: Final = struct.Struct(">32sQQQQQQBB")
_HUB_PLACE: Final = struct.Struct(">QQ")
_HUB_LOG: Final = struct.Struct(">QQ")


class Location(NamedTuple):
    """The location of an entry: its chunk, by the chunk's first stream_seq, and its frame in the chunk."""

    chunk_start: StreamSeq
    offset: int
    size: int

    def pack(self) -> bytes:
        return _LOCATION.pack(self.chunk_start, self.offset, self.size)

    @staticmethod
    def unpack(data: bytes) -> Location:
        start, offset, size = _LOCATION.unpack(data)
        return Location(StreamSeq(start), offset, size)


class ClientCursor(NamedTuple):
    """A client in a label: its last client_seq, and the hub_ts of its first message (I8, I9, KEX1+ 4.1)."""

    last_seq: ClientSeq
    first_seen: UnixTime

    def pack(self) -> bytes:
        return _CLIENT.pack(self.last_seq, self.first_seen)

    @staticmethod
    def unpack(data: bytes) -> ClientCursor:
        last_seq, first_seen = _CLIENT.unpack(data)
        return ClientCursor(ClientSeq(last_seq), UnixTime(first_seen))


@dataclass(frozen=True, slots=True)
class CapRecord:
    """A token's admission record: its bytes if the hub was given them, and its issued_at (core §6, H5).

    The claims that several tokens share have a record too, without bytes, under their ``ClaimsRef``.
    """

    issued_at: UnixTime
    control_seq: StreamSeq
    """stream_seq of its authorization on the control label; 0 if only a MSG has named it."""
    token_bytes: bytes

    @property
    def token(self) -> CapToken | None:
        return _decode_token(self.token_bytes) if self.token_bytes else None

    @property
    def claims_ref(self) -> ClaimsRef | None:
        return _claims_ref(self.token_bytes) if self.token_bytes else None

    def pack(self) -> bytes:
        return U64.pack(self.issued_at) + U64.pack(self.control_seq) + self.token_bytes

    @staticmethod
    def unpack(data: bytes) -> CapRecord:
        (issued_at,), (control_seq,) = U64.unpack_from(data), U64.unpack_from(data, 8)
        return CapRecord(UnixTime(issued_at), StreamSeq(control_seq), data[16:])


@lru_cache(maxsize=4_096)
def _decode_token(token_bytes: bytes) -> CapToken:
    """Decode a token; cached, because every message under it needs it and decoding costs 15 µs."""
    return CapToken.decode(token_bytes)


@lru_cache(maxsize=4_096)
def _claims_ref(token_bytes: bytes) -> ClaimsRef:
    """Return the claims_ref of an encoded token; cached, because every message under the token needs it."""
    return _decode_token(token_bytes).claims_ref


def pack_bucket(bucket: Bucket) -> bytes:
    return _BUCKET.pack(bucket.tokens, bucket.refilled_at)


def unpack_bucket(data: bytes) -> Bucket:
    tokens, refilled_at = _BUCKET.unpack(data)
    return Bucket(tokens, UnixTime(refilled_at))


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """A sealed chunk: its last entry, its epoch, and whether its payloads are pruned."""

    end: StreamSeq
    epoch: Epoch
    pruned: bool

    def pack(self) -> bytes:
        return _CHUNK.pack(self.end, self.epoch, self.pruned)

    @staticmethod
    def unpack(data: bytes) -> ChunkRecord:
        end, epoch, pruned = _CHUNK.unpack(data)
        return ChunkRecord(StreamSeq(end), Epoch(epoch), pruned)


class Tombstone(NamedTuple):
    """A chunk whose payloads were pruned: its last entry, and when it was pruned."""

    end: StreamSeq
    pruned_at: UnixTime

    def pack(self) -> bytes:
        return _TOMBSTONE.pack(self.end, self.pruned_at)

    @staticmethod
    def unpack(data: bytes) -> Tombstone:
        end, pruned_at = _TOMBSTONE.unpack(data)
        return Tombstone(StreamSeq(end), UnixTime(pruned_at))


@dataclass(frozen=True, slots=True)
class Segment:
    """A sealed chunk in the manifest: enough to check completeness without reading it (core §3.4.1)."""

    entry_count: int
    total_bytes: int
    last_ts: UnixTime
    pruned: bool
    mmr_root_end: MmrRoot
    entry_hashes_root: MmrRoot

    def pack(self) -> bytes:
        return _SEGMENT.pack(
            self.entry_count,
            self.total_bytes,
            self.last_ts,
            self.pruned,
            self.mmr_root_end,
            self.entry_hashes_root,
        )

    @staticmethod
    def unpack(data: bytes) -> Segment:
        count, total, last_ts, pruned, root, hashes = _SEGMENT.unpack(data)
        return Segment(count, total, UnixTime(last_ts), pruned, MmrRoot(root), MmrRoot(hashes))


@dataclass(slots=True)
class LabelCursor:
    """The state of a label that appending needs (core §3.4.1)."""

    label: Label
    number: LabelNo
    log: Mmr
    """MMR over the leaf hashes of all entries."""
    hashes: Mmr
    """MMR over the entry hashes of the growing chunk (core §4.8.3)."""
    chunk_start: StreamSeq
    chunk_bytes: int
    hub_ts: UnixTime
    """``hub_ts`` of the last entry."""
    checkpointed: StreamSeq
    """``upto_seq`` of the last checkpoint."""
    index_bytes: int
    """Length of the label's checkpoint index file."""
    batch: int = 0
    """The last journal batch that changed it; not packed."""

    @staticmethod
    def fresh(label: Label, number: LabelNo) -> LabelCursor:
        return LabelCursor(label, number, Mmr(), Mmr(), StreamSeq(1), 0, UnixTime(0), StreamSeq(0), 0)

    @property
    def head(self) -> LabelHead:
        """The label's head as the hub log has it, with root and time of the newest RECEIPT (P1)."""
        return LabelHead(
            label=self.label, upto_seq=self.log.stream_seq, mmr_root=self.log.root, hub_ts=self.hub_ts
        )

    def copy(self) -> LabelCursor:
        return LabelCursor(
            self.label,
            self.number,
            self.log.copy(),
            self.hashes.copy(),
            self.chunk_start,
            self.chunk_bytes,
            self.hub_ts,
            self.checkpointed,
            self.index_bytes,
            self.batch,
        )

    def pack(self) -> bytes:
        log, hashes = self.log.peaks, self.hashes.peaks
        fixed = _HEAD.pack(
            self.label,
            self.log.size,
            self.chunk_start,
            self.chunk_bytes,
            self.hub_ts,
            self.checkpointed,
            self.index_bytes,
            len(log),
            len(hashes),
        )
        return fixed + b"".join(log) + b"".join(hashes)

    @staticmethod
    def unpack(number: LabelNo, data: bytes) -> LabelCursor:
        label, size, start, in_chunk, hub_ts, checkpointed, index_bytes, n_log, _n_hashes = _HEAD.unpack_from(
            data
        )
        rest = data[_HEAD.size :]
        peaks = [rest[at : at + 32] for at in range(0, len(rest), 32)]
        return LabelCursor(
            Label(label),
            number,
            Mmr(size, peaks[:n_log]),
            Mmr(size - start + 1, peaks[n_log:]),
            StreamSeq(start),
            in_chunk,
            UnixTime(hub_ts),
            StreamSeq(checkpointed),
            index_bytes,
        )


def packed_head(data: bytes) -> LabelHead:
    """Return the head of a label from its packed cursor, without making the cursor."""
    label, size, _start, _bytes, hub_ts, _checkpointed, _index_bytes, n_log, _ = _HEAD.unpack_from(data)
    peaks = [data[at : at + 32] for at in range(_HEAD.size, _HEAD.size + 32 * n_log, 32)]
    return LabelHead(
        label=Label(label), upto_seq=StreamSeq(size), mmr_root=root_of(peaks), hub_ts=UnixTime(hub_ts)
    )


@dataclass(frozen=True, slots=True)
class HubPlace:
    """The place of an entry in the hub log: its index, and its offset in ``hublog/entries``."""

    index: int
    offset: int

    def pack(self) -> bytes:
        return _HUB_PLACE.pack(self.index, self.offset)

    @staticmethod
    def unpack(data: bytes) -> HubPlace:
        return HubPlace(*_HUB_PLACE.unpack(data))


@dataclass(frozen=True, slots=True)
class HubLogCursor:
    """The state of the hub log that extending it needs (RESOLUTIONS P1)."""

    tree: Tree
    """The tree over all entries; copy it before you append to it."""
    entries_bytes: int
    """Length of ``hublog/entries``."""

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.tree.size

    def pack(self) -> bytes:
        return _HUB_LOG.pack(self.tree.size, self.entries_bytes) + b"".join(self.tree.subtrees)

    @staticmethod
    def unpack(data: bytes) -> HubLogCursor:
        size, entries_bytes = _HUB_LOG.unpack_from(data)
        rest = data[_HUB_LOG.size :]
        return HubLogCursor(Tree(size, (rest[at : at + 32] for at in range(0, len(rest), 32))), entries_bytes)
