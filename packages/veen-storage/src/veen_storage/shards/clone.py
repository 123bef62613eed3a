"""Clone a sharded hub, running or not, into a directory with one shard and without keys.

The copy can be checked, exported, forked and read like a clone of any hub. The order makes it complete:

1. the joined hub log is read, up to its newest hub checkpoint;
2. the ends of all labels are taken, part by part, so that every label reaches its head in that hub log;
3. labels, hub log and attachments are copied, and the index is built, which verifies roots and heads;
4. VERSION is written: **the commit point**.

Keys are not copied: two directories that sign with one key would contradict each other. To move a hub, use
``reshard``.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from veen_core.tlog.tiles import encode_bundle
from veen_core.tlog.tree_head import parse_signed_head
from veen_storage.copies.clone import PrunedMeanwhileError, ReportProgress
from veen_storage.copies.consistent_prefix import LabelCut
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import DATA, FORMAT_VERSION, version_text
from veen_storage.errors import StorageError
from veen_storage.fsck.repair import rebuild_index
from veen_storage.opening.observer import Source, open_source
from veen_storage.shards.joined_hub_log import read_entries
from veen_storage.shards.parts_copier import PartsCopier, copy_attachments
from veen_storage.shards.sharded_layout import CONTROL, ShardedLayout, part_numbers, read_shard_map


def clone_sharded(
    source: Path,
    target: Path,
    *,
    keys_directory: Path | None = None,
    progress: ReportProgress = lambda _done, _all: None,
    files: Files | None = None,
) -> list[LabelCut]:
    """Copy a sharded hub; return the ends of its labels."""
    if target.exists() and any(target.iterdir()):
        raise StorageError(f"{target} is not empty; name a folder that does not exist yet")
    files, layout, copy = files or Files(), ShardedLayout(source), Layout(target)
    count = read_shard_map(layout).count
    hub_log = _read_hub_log(layout.joined)
    keys = keys_directory or layout.keys
    with ExitStack() as opened:
        parts: dict[int, Source] = {
            number: opened.enter_context(open_source(layout.part(number).root, keys, part=True))
            for number in part_numbers(count)
        }
        copier = PartsCopier(parts, progress, files)
        try:
            copier.build(copy, lambda _label: True)
        except PrunedMeanwhileError:
            raise StorageError(f"{source}: chunks were pruned during the copy; try again") from None
        for name, content in hub_log.items():
            files.replace(copy.hub_log / name, content)
        copy_attachments(parts[CONTROL], copy, files)
        rebuild_index(copy, files)
        files.sync_directory(copy.root)
        registry = copy.registry.read_bytes()
        files.replace(copy.version, version_text(DATA, FORMAT_VERSION, registry))  # the commit point
        return copier.labels


def _read_hub_log(joined: Layout) -> dict[str, bytes]:
    """Return the files of the joined hub log up to its newest hub checkpoint; none if there is none yet.

    The entries of a hub checkpoint are in their file before it is, and neither changes afterwards.
    """
    if not joined.hub_log_checkpoint.exists():
        return {}
    published = joined.hub_log_published.read_bytes() if joined.hub_log_published.exists() else None
    checkpoint = joined.hub_log_checkpoint.read_bytes()
    size = parse_signed_head(checkpoint).head.size
    entries = [data for data, _head in islice(read_entries(joined), size)]
    found = {joined.hub_log_entries.name: encode_bundle(entries), joined.hub_log_checkpoint.name: checkpoint}
    if published is not None:
        found[joined.hub_log_published.name] = published
    return found
