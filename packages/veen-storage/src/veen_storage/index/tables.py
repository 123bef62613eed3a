"""The tables of the index, declared once: the name, key codec and row codec of each (spec-1 §3.4.1).

Labels are numbered in the order in which they appear, so that a key spends 4 bytes on a label instead of 32.
Integers in keys are big-endian, so that LMDB's byte order is their numeric order.

    with index.reading() as view:
        if (number := LABELS.get(view, label)) is not None:
            location = ENTRIES.get(view, (number, seq))
            for (_number, upto_seq), checkpoint in CHECKPOINTS.scan_label(view, number):
                ...
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from veen_core.cap import ClaimsRef
from veen_core.checkpoint import Checkpoint
from veen_core.ids import AuthRef, ClientId, Coid, Epoch, HubId, Label, StreamSeq, UnixTime
from veen_core.rate import Bucket
from veen_core.tlog.tree import Tree
from veen_storage.errors import DamageError
from veen_storage.index.records import (
    CAP_LABEL,
    EPOCH_LABEL_SEQ,
    HUB_NODE,
    LABEL_CLIENT,
    LABEL_SEQ,
    MANIFEST_KEY,
    NODE,
    TIME_LABEL,
    U32,
    U64,
    CapRecord,
    ChunkRecord,
    ClientCursor,
    HubLogCursor,
    HubPlace,
    LabelCursor,
    LabelNo,
    Location,
    Segment,
    Tombstone,
    pack_bucket,
    unpack_bucket,
)
from veen_storage.index.transactions import Transaction, View

K = TypeVar("K")
V = TypeVar("V")
REPAIR: Final = "run `veen hub repair`"


@dataclass(frozen=True, slots=True)
class RowCodec(Generic[V]):
    """How a key or a row is packed into bytes, and unpacked."""

    pack: Callable[[V], bytes]
    unpack: Callable[[bytes], V]


@dataclass(frozen=True, slots=True)
class Table(Generic[K, V]):
    """One LMDB table with typed keys and rows; ``View`` and ``Transaction`` move its raw bytes."""

    name: str
    key: RowCodec[K]
    row: RowCodec[V]

    def get(self, view: View, key: K) -> V | None:
        row = view.get(self.name, self.key.pack(key))
        return self.row.unpack(row) if row is not None else None

    def require(self, view: View, key: K) -> V:
        """Return a row that must exist; raise ``DamageError`` if the index lost it."""
        if (row := self.get(view, key)) is None:
            raise DamageError("index/data.mdb", None, f"table {self.name} has no row for key {key}", REPAIR)
        return row

    def scan(self, view: View, start: bytes = b"", prefix: bytes = b"") -> Iterator[tuple[K, V]]:
        """Yield rows in key order from the packed key ``start`` on, while the packed key has ``prefix``."""
        for key, row in view.scan(self.name, start or prefix, prefix):
            yield self.key.unpack(key), self.row.unpack(row)

    def scan_label(self, view: View, number: LabelNo, seq: int = 0) -> Iterator[tuple[K, V]]:
        """Yield the rows of one label from ``seq`` on, in a table whose key begins with both."""
        return self.scan(view, LABEL_SEQ.pack(number, seq), U32.pack(number))

    def keys_of_label(self, view: View, number: LabelNo) -> Iterator[K]:
        """Yield the keys of one label, in a table whose key begins with it; no row is unpacked."""
        for key, _row in view.scan(self.name, U32.pack(number), U32.pack(number)):
            yield self.key.unpack(key)

    def last_of_label(self, view: View, number: LabelNo, seq: int = 2**64 - 1) -> tuple[K, V] | None:
        """Return the last row of one label at or before ``seq``, in a table whose key begins with both."""
        found = view.last_before(self.name, LABEL_SEQ.pack(number, seq), U32.pack(number))
        return (self.key.unpack(found[0]), self.row.unpack(found[1])) if found is not None else None

    def last(self, view: View) -> tuple[K, V] | None:
        """Return the row with the greatest key."""
        found = view.last_before(self.name, b"\xff" * 64, b"")
        return (self.key.unpack(found[0]), self.row.unpack(found[1])) if found is not None else None

    def put(self, txn: Transaction, key: K, row: V) -> None:
        txn.put(self.name, self.key.pack(key), self.row.pack(row))

    def put_if_absent(self, txn: Transaction, key: K, row: V) -> None:
        txn.put_if_absent(self.name, self.key.pack(key), self.row.pack(row))

    def put_many(self, txn: Transaction, rows: list[tuple[K, V]]) -> None:
        txn.put_many(self.name, [(self.key.pack(key), self.row.pack(row)) for key, row in rows])


def _bytes(make: Callable[[bytes], V]) -> RowCodec[V]:
    """Return the codec of bytes that are stored as they are."""
    return RowCodec(bytes, make)  # type: ignore[arg-type]


def _integer(packed: struct.Struct, make: Callable[[int], V]) -> RowCodec[V]:
    return RowCodec(packed.pack, lambda data: make(packed.unpack(data)[0]))


def _fields(packed: struct.Struct) -> RowCodec[Any]:
    """A tuple of fixed-size fields; the table's declaration says which types they have."""
    return RowCodec(lambda key: packed.pack(*key), packed.unpack)


NUMBER: Final[RowCodec[LabelNo]] = _integer(U32, LabelNo)
SEQ: Final[RowCodec[StreamSeq]] = _integer(U64, StreamSeq)
NUMBER_SEQ: Final[RowCodec[tuple[LabelNo, StreamSeq]]] = _fields(LABEL_SEQ)

LABELS: Final[Table[Label, LabelNo]] = Table("labels", _bytes(Label), NUMBER)
HEADS: Final[Table[LabelNo, bytes]] = Table("heads", NUMBER, _bytes(bytes))
"""Packed ``LabelCursor``: read it with ``read_cursor``, which adds the number."""
CLIENTS: Final[Table[tuple[LabelNo, ClientId], ClientCursor]] = Table(
    "clients", _fields(LABEL_CLIENT), RowCodec(ClientCursor.pack, ClientCursor.unpack)
)
ENTRIES: Final[Table[tuple[LabelNo, StreamSeq], Location]] = Table(
    "entries", NUMBER_SEQ, RowCodec(Location.pack, Location.unpack)
)
NODES: Final[Table[tuple[LabelNo, int, int], bytes]] = Table("nodes", _fields(NODE), _bytes(bytes))
"""Inner nodes of the labels' MMRs by height (from 1) and index; leaves are read from receipts."""
CHUNKS: Final[Table[tuple[LabelNo, StreamSeq], ChunkRecord]] = Table(
    "chunks", NUMBER_SEQ, RowCodec(ChunkRecord.pack, ChunkRecord.unpack)
)
MANIFEST: Final[Table[tuple[LabelNo, Epoch, StreamSeq, StreamSeq], Segment]] = Table(
    "manifest", _fields(MANIFEST_KEY), RowCodec(Segment.pack, Segment.unpack)
)
TOMBSTONES: Final[Table[tuple[LabelNo, StreamSeq], Tombstone]] = Table(
    "tombstones", NUMBER_SEQ, RowCodec(Tombstone.pack, Tombstone.unpack)
)
TIMES: Final[Table[tuple[LabelNo, UnixTime], StreamSeq]] = Table("times", _fields(LABEL_SEQ), SEQ)
"""The first entry of a label at each second of hub_ts."""
ALL_TIMES: Final[Table[tuple[UnixTime, LabelNo], StreamSeq]] = Table("all_times", _fields(TIME_LABEL), SEQ)
"""The rows of ``TIMES``, ordered by time across labels."""
CAPS: Final[Table[AuthRef | ClaimsRef, CapRecord]] = Table(
    "caps", _bytes(AuthRef), RowCodec(CapRecord.pack, CapRecord.unpack)
)
"""Tokens by auth_ref, and the claims that several tokens share by claims_ref."""
BUCKETS: Final[Table[tuple[ClaimsRef, LabelNo], Bucket]] = Table(
    "buckets", _fields(CAP_LABEL), RowCodec(pack_bucket, unpack_bucket)
)
CHECKPOINTS: Final[Table[tuple[LabelNo, StreamSeq], Checkpoint]] = Table(
    "checkpoints", NUMBER_SEQ, RowCodec(Checkpoint.encode, Checkpoint.decode)
)
EPOCHS: Final[Table[tuple[Epoch, LabelNo, StreamSeq], bytes]] = Table(
    "epochs", _fields(EPOCH_LABEL_SEQ), _bytes(bytes)
)
"""Checkpoints ordered by epoch; the rows are empty."""
ANCHORS: Final[Table[tuple[LabelNo, StreamSeq], bytes]] = Table("anchors", NUMBER_SEQ, _bytes(bytes))
ATTACHMENTS: Final[Table[Coid, int]] = Table("attachments", _bytes(Coid), _integer(U64, int))
HUB_NODES: Final[Table[tuple[int, int], bytes]] = Table("hub_nodes", _fields(HUB_NODE), _bytes(bytes))
"""Inner nodes of the hub log's tree by the entry that completed them (``last_leaf``) and height (from 1).

In this order rows are only appended, so that LMDB fills its pages. Leaves are read from ``hublog/entries``.
"""
HUB_BUNDLES: Final[Table[int, int]] = Table("hub_bundles", _integer(U64, int), _integer(U64, int))
"""The offset in ``hublog/entries`` of each entry bundle: of every 256th entry."""
HUB_HEADS: Final[Table[tuple[LabelNo, StreamSeq], HubPlace]] = Table(
    "hub_heads", NUMBER_SEQ, RowCodec(HubPlace.pack, HubPlace.unpack)
)
"""The heads in the hub log, by label and ``upto_seq``."""
HUB_MOVED: Final[Table[Label, bytes]] = Table("hub_moved", _bytes(Label), _bytes(bytes))
"""Labels with entries since the last hub checkpoint; the rows are empty."""
META: Final[Table[bytes, bytes]] = Table("meta", _bytes(bytes), _bytes(bytes))
"""Values about the whole directory, by the names below."""

TABLES: Final = tuple(
    table.name
    for table in (
        *(LABELS, HEADS, CLIENTS, ENTRIES, NODES, CHUNKS, MANIFEST, TOMBSTONES, TIMES, ALL_TIMES, CAPS),
        *(BUCKETS, CHECKPOINTS, EPOCHS, ANCHORS, ATTACHMENTS, HUB_NODES, HUB_BUNDLES, HUB_HEADS, HUB_MOVED),
        META,
    )
)
HUB_LOG_TABLES: Final = tuple(table.name for table in (HUB_NODES, HUB_BUNDLES, HUB_HEADS, HUB_MOVED))
ADDED_LATER: Final = frozenset({ATTACHMENTS.name, *HUB_LOG_TABLES})
"""Tables that an older directory lacks until a hub opens it for writing; until then they count as empty."""

HUB_ID: Final = b"hub_id"
FORMAT: Final = b"format"
INDEX_FORMAT: Final = b"3"
"""Value of ``FORMAT``. 2: buckets and issued_at are keyed by a token's claims. 3: the hub log."""
FORMAT_WITHOUT_HUB_LOG: Final = b"2"
"""An index of this format gets its hub log when a directory is opened (``opening.hub_log_start``)."""
APPLIED: Final = b"applied"
"""Number of the last journal batch that this index includes."""
HUB_TS: Final = b"hub_ts"
NEXT_LABEL: Final = b"next_label"
BINDING_BYTES: Final = b"binding_bytes"
"""Length of checkpoint-binding.cbor."""
HUB_LOG: Final = b"hub_log"
"""Packed ``HubLogCursor``: read it with ``read_hub_log``."""
HUB_CHECKPOINT: Final = b"hub_checkpoint"
"""The newest hub checkpoint, as in ``hublog/checkpoint``."""
UNFINISHED: Final = b"finishing"
"""Renames and removals that follow the last transaction (``commit.applier``, step 4)."""


def mark_index(txn: Transaction, hub_id: HubId) -> None:
    """Record which hub this index belongs to, and its format."""
    META.put(txn, HUB_ID, hub_id)
    META.put(txn, FORMAT, INDEX_FORMAT)


def read_number(view: View, name: bytes) -> int:
    """Return an integer of ``META``; 0 if it was never written."""
    row = META.get(view, name)
    return int(U64.unpack(row)[0]) if row is not None else 0


def write_number(txn: Transaction, name: bytes, value: int) -> None:
    META.put(txn, name, U64.pack(value))


def read_cursor(view: View, label: Label) -> LabelCursor | None:
    """Return the cursor of a label, or None if the label has no entries."""
    number = LABELS.get(view, label)
    return LabelCursor.unpack(number, HEADS.require(view, number)) if number is not None else None


def read_hub_log(view: View) -> HubLogCursor:
    """Return the state of the hub log; an index without one has an empty hub log."""
    row = META.get(view, HUB_LOG)
    return HubLogCursor.unpack(row) if row is not None else HubLogCursor(Tree(), 0)


def last_leaf(height: int, index: int) -> int:
    """Return the last leaf below a node of a tree: the leaf that completes it."""
    return ((index + 1) << height) - 1


def label_at(view: View, number: LabelNo) -> Label:
    """Return the label with this number: the first bytes of its packed cursor."""
    return Label(HEADS.require(view, number)[: Label.SIZE])


def _control_key(number: LabelNo) -> bytes:
    return b"control" + U32.pack(number)


def mark_control_label(txn: Transaction, number: LabelNo) -> None:
    """Record that a label holds capability tokens, which retention must keep (RESOLUTIONS H5)."""
    META.put(txn, _control_key(number), b"")


def is_control_label(view: View, number: LabelNo) -> bool:
    return META.get(view, _control_key(number)) is not None
