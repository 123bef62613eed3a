"""The data directory of a VEEN hub: everything that a hub keeps on disk.

Folders:

- ``disk``: files, layout, lock, keys;
- ``opening``: creation, checks on open, reading next to a running hub, key rotation;
- ``commit``: journal, writer, ledger, applier, recovery: the path of a message to disk;
- ``chunks``: chunk files, their compression, retention;
- ``index``: the LMDB tables, rebuildable from the log;
- ``read``: everything a hub answers from a data directory;
- ``copies``: clone, fork and export;
- ``shards``: the directory of a hub with several shards;
- ``fsck``: check and repair.

The names below are the public API for hubs and tools; ``veen_storage.copies`` and ``veen_storage.fsck`` have
their own, and ``veen_storage.formats`` has the objects that files hold. The names are imported on first use,
so that importing an error class does not load LMDB.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veen_storage.chunks.retention import LONG_TERM, PrunePolicy, PruneRule
    from veen_storage.commit.changes import Anchored, Checkpointed
    from veen_storage.commit.kept_segments import JournalKeeping
    from veen_storage.commit.ledger import Draft
    from veen_storage.commit.replicated_batch import RefusedBatchError, split_batches
    from veen_storage.commit.writer import Batch, PendingEntry
    from veen_storage.disk.directory_lock import DirectoryLock, lock_owner
    from veen_storage.disk.files import SECRET_MODE, Files
    from veen_storage.disk.hub_keys import finish_identity, read_all_keys, read_identity
    from veen_storage.disk.layout import Layout
    from veen_storage.disk.registry import Registry, read_registry
    from veen_storage.errors import (
        AbsentError,
        ClosedError,
        DamageError,
        LockedError,
        MismatchError,
        PoisonedError,
        PrunedError,
        StorageError,
    )
    from veen_storage.index.records import CapRecord, ClientCursor
    from veen_storage.index.view_store import ViewStore
    from veen_storage.opening.creation import create
    from veen_storage.opening.observer import Source, open_source
    from veen_storage.opening.rotation import rotate
    from veen_storage.read.attachments import ContentError, LostError, TooLargeError
    from veen_storage.read.hub_log import StoredHubLog
    from veen_storage.read.journal_feed import BatchesGoneError, JournalFeed
    from veen_storage.read.reader import Head, LabelProgress, Reader
    from veen_storage.store import Store

__all__ = [
    "LONG_TERM",
    "SECRET_MODE",
    "AbsentError",
    "Anchored",
    "Batch",
    "BatchesGoneError",
    "CapRecord",
    "Checkpointed",
    "ClientCursor",
    "ClosedError",
    "ContentError",
    "DamageError",
    "DirectoryLock",
    "Draft",
    "Files",
    "Head",
    "JournalFeed",
    "JournalKeeping",
    "LabelProgress",
    "Layout",
    "LockedError",
    "LostError",
    "MismatchError",
    "PendingEntry",
    "PoisonedError",
    "PrunePolicy",
    "PruneRule",
    "PrunedError",
    "Reader",
    "RefusedBatchError",
    "Registry",
    "Source",
    "StorageError",
    "Store",
    "StoredHubLog",
    "TooLargeError",
    "ViewStore",
    "create",
    "finish_identity",
    "lock_owner",
    "open_source",
    "read_all_keys",
    "read_identity",
    "read_registry",
    "rotate",
    "split_batches",
]

_MODULES = {
    "chunks.retention": ("LONG_TERM", "PrunePolicy", "PruneRule"),
    "commit.changes": ("Anchored", "Checkpointed"),
    "commit.kept_segments": ("JournalKeeping",),
    "commit.ledger": ("Draft",),
    "commit.replicated_batch": ("RefusedBatchError", "split_batches"),
    "commit.writer": ("Batch", "PendingEntry"),
    "opening.creation": ("create",),
    "disk.directory_lock": ("DirectoryLock", "lock_owner"),
    "disk.hub_keys": ("finish_identity", "read_all_keys", "read_identity"),
    "disk.files": ("SECRET_MODE", "Files"),
    "disk.layout": ("Layout",),
    "disk.registry": ("Registry", "read_registry"),
    "opening.rotation": ("rotate",),
    "errors": (
        *("AbsentError", "ClosedError", "DamageError", "LockedError"),
        *("MismatchError", "PoisonedError", "PrunedError", "StorageError"),
    ),
    "index.records": ("CapRecord", "ClientCursor"),
    "index.view_store": ("ViewStore",),
    "read.attachments": ("ContentError", "LostError", "TooLargeError"),
    "read.hub_log": ("StoredHubLog",),
    "read.journal_feed": ("BatchesGoneError", "JournalFeed"),
    "opening.observer": ("Source", "open_source"),
    "read.reader": ("Head", "LabelProgress", "Reader"),
    "store": ("Store",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'veen_storage' has no attribute {name!r}")
    value = getattr(import_module(f"veen_storage.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
