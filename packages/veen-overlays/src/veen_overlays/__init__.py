"""Meaning over decrypted logs: records declared once, overlays as summary monoids, the summary tree.

Pure: no IO, no clock, no randomness; ``veen_overlays.live`` alone waits for a log. The names below are the
public face; an overlay's own records and questions are in its module: ``crdt``, ``kv``, ``queue``,
``wallet``, ``identity``, ``control``, ``snapshot``.
"""

from veen_overlays.fold.event import Event, IgnoredMessage, MemorySeenKeys, Message, SeenKeys
from veen_overlays.fold.monoid import Monoid
from veen_overlays.fold.overlay import Overlay, StateHash, Summary
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.schema.record import Record, RecordRule, Undecodable, decode_record, record, schema_id
from veen_overlays.snapshot import StateCheckpoint, StateId, verify_snapshot
from veen_overlays.summary_tree.nodes import Range
from veen_overlays.summary_tree.store import MemoryStore, Store
from veen_overlays.summary_tree.tree import FoldedRange, SummaryTree, drive

__all__ = [
    "OVERLAYS",
    "Event",
    "FoldedRange",
    "IgnoredMessage",
    "MemorySeenKeys",
    "MemoryStore",
    "Message",
    "Monoid",
    "Overlay",
    "Range",
    "Record",
    "RecordRule",
    "SeenKeys",
    "StateCheckpoint",
    "StateHash",
    "StateId",
    "Store",
    "Summary",
    "SummaryTree",
    "Undecodable",
    "decode_record",
    "drive",
    "record",
    "schema_id",
    "verify_snapshot",
]
