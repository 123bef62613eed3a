"""Clone or fork a sharded hub, running or not: the copy has one shard and no keys.

The copy can be checked, exported, forked and read like a clone of any hub. The order makes it complete:

1. the hub log and the ends of all labels are taken (``sharded_source``);
2. labels, hub log and attachments are copied, and the index is built, which verifies roots and heads;
3. VERSION is written: **the commit point**.

Keys are not copied: two directories that sign with one key would contradict each other. To move a hub, use
``reshard``.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from veen_core.ids import UnixTime, VerifyKey
from veen_core.keys import SigningKey
from veen_storage.copies.clone import LogCopier, PrunedMeanwhileError, ReportProgress
from veen_storage.copies.consistent_prefix import Cut
from veen_storage.copies.fork import Fork, fork, fork_from
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import DATA, FORMAT_VERSION, version_text
from veen_storage.errors import StorageError
from veen_storage.fsck.repair import rebuild_index
from veen_storage.shards.parts_copier import PartsCopier, copy_attachments
from veen_storage.shards.sharded_layout import ShardedLayout, is_sharded
from veen_storage.shards.sharded_source import ShardedSource, open_sharded


def clone_sharded(
    source: Path,
    target: Path,
    *,
    keys_directory: Path | None = None,
    progress: ReportProgress = lambda _done, _all: None,
    files: Files | None = None,
) -> Cut:
    """Copy a sharded hub; return where its labels ended."""
    with open_sharded(source, keys_directory) as hub:
        return copy_parts(hub, target, progress, files or Files())


def copy_parts(hub: ShardedSource, target: Path, progress: ReportProgress, files: Files) -> Cut:
    """Copy an open sharded hub into a directory with one shard."""
    if target.exists() and any(target.iterdir()):
        raise StorageError(f"{target} is not empty; name a folder that does not exist yet")
    copy, cut = Layout(target), hub.cut()
    copier = PartsCopier(hub.parts, progress, files)
    try:
        copier.build(copy, lambda _label: True)
    except PrunedMeanwhileError:
        raise StorageError("chunks were pruned during the copy", action="run the command again") from None
    if cut.hub_log is not None:
        LogCopier(hub.main, copy, progress, files).copy_hub_log(cut.hub_log)
    copy_attachments(hub.main, copy, files)
    rebuild_index(copy, files)
    files.sync_directory(copy.root)
    registry = copy.registry.read_bytes()
    files.replace(copy.version, version_text(DATA, FORMAT_VERSION, registry))  # the commit point
    return dataclasses.replace(cut, labels=tuple(copier.labels))


def fork_hub(
    source: Path,
    target: Path,
    new_key: SigningKey,
    now: UnixTime,
    *,
    admin_pk: VerifyKey | None = None,
    keys_directory: Path | None = None,
    progress: ReportProgress = lambda _done, _all: None,
    files: Files | None = None,
) -> Fork:
    """Create a new hub from a hub with any number of shards (``copies.fork``)."""
    files = files or Files()
    if not is_sharded(source):
        return fork(
            source,
            target,
            new_key,
            now,
            admin_pk=admin_pk,
            keys_directory=keys_directory,
            progress=progress,
            files=files,
        )
    with open_sharded(source, keys_directory) as hub:
        return fork_from(
            hub.main,
            target,
            new_key,
            now,
            lambda ancestor: copy_parts(hub, ancestor, progress, files),
            admin_pk=admin_pk,
            keys_directory=keys_directory or ShardedLayout(source).keys,
            files=files,
        )
