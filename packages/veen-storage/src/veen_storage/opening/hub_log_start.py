"""Open the hub log of a directory: create it if there is none, check it otherwise (P1).

Opening reads neither the entries nor the tree of the hub log. It checks that the file of entries is as long
as the index says, that the hub signed the checkpoint, and that the index has the checkpoint's root.
Everything else is the task of fsck.
"""

from __future__ import annotations

from veen_core import hub_log
from veen_core.errors import VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.tlog.tree_head import parse_signed_head
from veen_storage.disk.files import Files
from veen_storage.disk.layout import HUB_LOG_CHECKPOINT, HUB_LOG_ENTRIES, HUB_LOG_PUBLISHED, Layout
from veen_storage.errors import REPAIR, RESTORE, DamageError, MismatchError, read_file
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index, Transaction
from veen_storage.index.records import HubLogCursor
from veen_storage.read.hub_log import StoredHubLog


def start_hub_log(files: Files, layout: Layout, index: Index) -> None:
    """Give a directory of an older veen an empty hub log; all its labels count as moved.

    The index gets its new format in the same transaction. From then on an older veen refuses the directory,
    because it would not note which labels move.
    """
    if layout.hub_log.exists() and any(layout.hub_log.iterdir()):
        raise MismatchError(
            "index/data.mdb was written by an older veen and lacks the hub log", action=REPAIR
        )
    files.make_directory(layout.hub_log)
    files.sync_directory(layout.root)

    def write(txn: Transaction) -> None:
        labels = [(label, b"") for label, _number in tables.LABELS.scan(txn)]
        tables.HUB_MOVED.put_many(txn, labels)
        tables.META.put(txn, tables.FORMAT, tables.INDEX_FORMAT)

    index.write(write)


def check_entries_file(layout: Layout, index: Index) -> None:
    """Raise if ``hublog/entries`` is shorter than the index says; the journal continues it."""
    if not layout.hub_log.is_dir():
        raise DamageError(layout.hub_log.name, None, "is missing", RESTORE)
    with index.reading() as view:
        expected = tables.read_hub_log(view).entries_bytes
    path = layout.hub_log_entries
    length = path.stat().st_size if path.exists() else 0
    if length < expected:
        what = f"ends here, but the index includes its bytes up to {expected}"
        raise DamageError(HUB_LOG_ENTRIES, length, what, RESTORE)


def check_checkpoints(layout: Layout, identity: HubIdentity, index: Index, reader: StoredHubLog) -> None:
    """Raise unless the files of the hub log have the tree of the index, which includes the whole journal."""
    with index.reading() as view:
        cursor, note = tables.read_hub_log(view), tables.META.get(view, tables.HUB_CHECKPOINT)
    if cursor.size or layout.hub_log_checkpoint.exists():
        _check_newest(layout, identity, cursor, note)
    if layout.hub_log_entries.exists() and layout.hub_log_entries.stat().st_size > cursor.entries_bytes:
        what = "contains bytes that are in neither index nor journal"
        raise DamageError(HUB_LOG_ENTRIES, cursor.entries_bytes, what, RESTORE)
    if (published := reader.published) is None:
        return
    if (size := published.head.size) > cursor.size:
        what = f"has size {size}, but the hub log ends at {cursor.size}: its newest entries are lost"
        raise DamageError(HUB_LOG_PUBLISHED, None, what, RESTORE)
    if reader.root_at(size) != published.head.root:
        what = f"has another root than the hub log at size {size}"
        raise DamageError(HUB_LOG_PUBLISHED, None, what, RESTORE)


def _check_newest(layout: Layout, identity: HubIdentity, cursor: HubLogCursor, note: bytes | None) -> None:
    """Raise unless ``hublog/checkpoint`` is the hub checkpoint of the index, and this hub signed it."""
    content = read_file(layout.hub_log_checkpoint, name=HUB_LOG_CHECKPOINT)
    try:
        signed = parse_signed_head(content)
        hub_log.verify_hub_checkpoint(identity, signed, origin=signed.head.origin)
    except VeenError as exc:
        raise DamageError(HUB_LOG_CHECKPOINT, None, str(exc), RESTORE) from exc
    if content != note or (signed.head.size, signed.head.root) != (cursor.size, cursor.tree.root):
        what = f"has size {signed.head.size}, which is not the hub checkpoint of the index at {cursor.size}"
        raise DamageError(HUB_LOG_CHECKPOINT, None, what, REPAIR)
