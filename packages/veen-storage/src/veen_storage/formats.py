"""The objects in the files of a data directory, for programs that recognize, show and verify such files."""

from veen_storage.chunks.compression import raw_size, read_range
from veen_storage.chunks.pruned_chunk import decode_pruned_chunk
from veen_storage.commit.changes import Anchor, HubExtension, Prune
from veen_storage.commit.journal import list_segments
from veen_storage.commit.journal_floor import Floor
from veen_storage.commit.journal_format import (
    ANCHOR,
    CHECKPOINT,
    ENTRY,
    HUB_CHECKPOINT,
    MAGIC,
    PRUNE,
    Item,
    split_segment,
)
from veen_storage.copies.fork_record import Fork, ForkCut
from veen_storage.disk.hub_keys import KeyFile, NextIdentity, key_file_name

__all__ = [
    "ANCHOR",
    "CHECKPOINT",
    "ENTRY",
    "HUB_CHECKPOINT",
    "MAGIC",
    "PRUNE",
    "Anchor",
    "Floor",
    "Fork",
    "ForkCut",
    "HubExtension",
    "Item",
    "KeyFile",
    "NextIdentity",
    "Prune",
    "decode_pruned_chunk",
    "key_file_name",
    "list_segments",
    "raw_size",
    "read_range",
    "split_segment",
]
