"""The tree over the entries of a hub log, against the hub checkpoints (RESOLUTIONS P1, RFC 6962).

Tasks reduce the entries to subtrees; the driver joins them. The newest hub checkpoint must have the root
over all entries, and the hub must have signed it. The published one must have the root at its size. So must
the hub checkpoints of other copies of the same hub log, as far as this copy reaches: otherwise the hub has
signed two hub logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from veen_core.errors import VeenError
from veen_core.hub_log import verify_hub_checkpoint
from veen_core.ids import UnixTime
from veen_core.tlog.tree import Tree
from veen_core.tlog.tree_head import SignedHead
from veen_spark.errors import DamagedLog
from veen_spark.read.plan import group_by_size
from veen_spark.verify.hub_log.entries import EntriesVerdict, reduce_entries
from veen_spark.verify.hub_log.folder import HubLogFolder, TreeState, split_entries
from veen_spark.verify.tasks import TaskRunner


def check_trees(run: TaskRunner, folders: Sequence[HubLogFolder], max_bytes: int) -> None:
    """Read the entries of all hub logs and check their hub checkpoints; add faults and ``trees``."""
    for number, folder in enumerate(folders):
        sizes = {signed.head.size for other in _copies(folder, folders) for _, signed in other.notes()}
        try:
            folder.parts = split_entries(folder, number, max_bytes, sizes)
        except DamagedLog as exc:
            folder.faults.append(exc)
    parts = [part for folder in folders for part in folder.parts]
    work = group_by_size(parts, lambda part: part.end - part.begin, max_bytes)
    verdicts = iter(run(reduce_entries, work))
    for folder in folders:
        if folder.parts or not folder.size:
            _grow(folder, [next(verdicts) for _ in folder.parts])
    signed = {id(folder): _check_notes(folder) for folder in folders}
    for folder in folders:
        others = [other for other in _copies(folder, folders) if other is not folder]
        _compare(folder, [note for other in others for note in signed[id(other)]])


def _copies(folder: HubLogFolder, folders: Iterable[HubLogFolder]) -> list[HubLogFolder]:
    """Return all copies of a hub log, itself included."""
    return [other for other in folders if other.identity.hub_id == folder.identity.hub_id]


def _grow(folder: HubLogFolder, verdicts: Iterable[EntriesVerdict]) -> None:
    """Join the subtrees of all parts."""
    tree, newest_ts = Tree(), 0
    folder.trees[0] = TreeState(tree.root, newest_ts)
    for verdict in verdicts:
        if verdict.fault is not None:
            folder.faults.append(verdict.fault)
            folder.parts = []
            return
        for height, node in verdict.subtrees:
            tree.append_subtree(height, node)
        newest_ts = max(newest_ts, verdict.newest_ts)
        folder.trees[tree.size] = TreeState(tree.root, newest_ts)


def _check_notes(folder: HubLogFolder) -> list[tuple[str, SignedHead]]:
    """Check root and signature of the hub checkpoints; return those that the hub has signed."""
    signed = []
    for file, note in folder.notes():
        at = folder.trees.get(note.head.size)
        try:
            since = UnixTime(at.newest_ts) if at is not None else None
            verify_hub_checkpoint(folder.identity, note, origin=note.head.origin, since=since)
        except VeenError as exc:
            folder.faults.append(DamagedLog(file, 0, str(exc)))
            continue
        signed.append((file, note))
        if at is not None and at.root != note.head.root:
            reason = f"P1: its root is not that of hublog/entries at size {note.head.size}"
            folder.faults.append(DamagedLog(file, 0, reason))
    return signed


def _compare(folder: HubLogFolder, notes: Iterable[tuple[str, SignedHead]]) -> None:
    """Check that each hub checkpoint of another copy has this tree's root, if the tree is that large."""
    for file, note in sorted(notes, key=lambda one: (one[1].head.size, one[0])):
        at = folder.trees.get(note.head.size)
        if at is not None and at.root != note.head.root:
            reason = f"P1: the root at size {note.head.size} differs from {file}: the hub has two hub logs"
            folder.faults.append(DamagedLog(folder.entries, 0, reason))
            return  # all later roots differ too
