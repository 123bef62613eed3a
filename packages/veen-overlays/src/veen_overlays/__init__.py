"""Overlays: fold the opened messages of a stream into a state that is the same for every reader.

Everything but ``veen_overlays.live`` is pure: no IO, no clock, no randomness. This module exports the
framework. The records and functions of an overlay are in its own module: ``crdt``, ``kv``, ``queue``,
``snapshot``, ``wallet``, ``identity`` and ``control``.
"""

from veen_overlays.fold.event import Event, IgnoredMessage, MemorySeenKeys, Message, SeenKeys
from veen_overlays.fold.monoid import Monoid
from veen_overlays.fold.overlay import Overlay, StateHash, Summary
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.schema.record import Record, RecordRule, Undecodable, decode_record, record, schema_id
from veen_overlays.snapshot import StateCheckpoint, StateId, verify_snapshot
from veen_overlays.summary_tree.nodes import SeqRange
from veen_overlays.summary_tree.store import MemoryStore, SummaryStore
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
    "Record",
    "RecordRule",
    "SeenKeys",
    "SeqRange",
    "StateCheckpoint",
    "StateHash",
    "StateId",
    "Summary",
    "SummaryStore",
    "SummaryTree",
    "Undecodable",
    "decode_record",
    "drive",
    "record",
    "schema_id",
    "verify_snapshot",
]
