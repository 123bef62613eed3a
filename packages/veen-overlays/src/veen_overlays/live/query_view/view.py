"""The query view: opened recorder events in columns, bound to the prefixes of the logs they come from (P13).

    FOLDER/lock                                  one process uses the view
    FOLDER/manifest                              sources with their roots, files with their hashes
    FOLDER/data/STREAM/DAY/NAME.parquet          rows, sorted by subject
    FOLDER/data/STREAM/DAY/NAME.subjects         Bloom filter of the subjects of these rows
    FOLDER/nodes/STREAM/HUB-LABEL                MMR nodes of a source
    FOLDER/waiting/NAME.parquet                  imported events that wait for an event before them

The order of a commit, each step durable before the next:

1. new data files and their subject filters, and waiting events, under names that were never used;
2. the MMR nodes of the new entries, after those of the last commit;
3. the manifest: the commit point. A crash before it leaves the old view and files that it does not name;
   opening the view removes them. A crash after it leaves the new view.
4. Files that a merge replaced are deleted when no snapshot uses them, and older waiting events at once.

Opening checks every file against the manifest, and a query checks the files that it reads (``kept_files``).
The view contains no keys. It can be rebuilt from the log at any time, except for entries that the hub has
pruned meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from veen_core.errors import StateError
from veen_core.ids import HubId, Label
from veen_core.mmr import Mmr
from veen_overlays.live.private_files import (
    FOLDER_MODE,
    TEMPORARY,
    exclusive,
    make_folder,
    sync_folder,
)
from veen_overlays.live.query_view.feed.growing import GrowingSource, resumed
from veen_overlays.live.query_view.feed.waiting_events import (
    WAITING,
    read_waiting,
    waiting_path,
    write_waiting,
)
from veen_overlays.live.query_view.files.compaction import next_merge
from veen_overlays.live.query_view.files.data_files import (
    DATA,
    Partition,
    ViewRow,
    path_of,
    subjects_path,
    table_of,
    write_file,
)
from veen_overlays.live.query_view.files.kept_files import KeptFiles
from veen_overlays.live.query_view.files.manifest import (
    MANIFEST,
    DamagedViewError,
    DataFile,
    FeedPosition,
    Home,
    OriginLog,
    ViewManifest,
    WaitingFile,
    load_manifest,
    save_manifest,
)
from veen_overlays.live.query_view.files.manifest_index import ManifestIndex, SourceKey
from veen_overlays.live.query_view.files.merging import merged
from veen_overlays.live.query_view.files.node_file import NodeFile
from veen_overlays.live.query_view.snapshot import NODES, Snapshot, nodes_path

FLUSH_ROWS: Final = 16_384
"""Rows in memory after which a writer should commit."""
FLUSH_BYTES: Final = 32 << 20
"""Bytes of payloads in memory after which a writer should commit."""


class QueryView:
    """A view in a folder. One writer adds rows and commits; any number of threads take snapshots."""

    def __init__(self, folder: Path) -> None:
        """Use ``open``: it takes the lock and checks the files."""
        self.folder = folder
        self._manifest = ViewManifest()
        self._sources: dict[SourceKey, GrowingSource] = {}
        self._rows: dict[Partition, list[ViewRow]] = defaultdict(list)
        self._row_count = self._row_bytes = 0
        self._feeds: dict[str, int] = {}
        self._origin_logs: dict[str, OriginLog] = {}
        self._homes: dict[str, HubId] = {}
        self._files = KeptFiles(folder)
        self._version = 0
        self._index = ManifestIndex(self._manifest)
        self._guard = threading.Lock()
        self._noted = False
        self._failed = False
        self._held = ExitStack()

    # --- opening and closing

    @classmethod
    def open(cls, folder: Path, *, rebuild: bool = False) -> Self:
        """Open a view, or create it; every file is checked against the manifest.

        Raise ``DamagedViewError`` if a file is missing, torn or altered. ``rebuild`` discards such a view, or
        an unharmed one; the follower then reads the log from its start.
        """
        make_folder(folder)
        folder.chmod(FOLDER_MODE)
        view = cls(folder)
        view._held.enter_context(exclusive(folder / "lock"))
        try:
            view._load(rebuild=rebuild)
        except BaseException:
            view.close()
            raise
        return view

    def close(self) -> None:
        """Release the lock. Rows that were not committed are read from the log again."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _load(self, *, rebuild: bool) -> None:
        if rebuild:
            save_manifest(self.folder, ViewManifest())
        self._manifest = load_manifest(self.folder) or ViewManifest()
        self._remove_unnamed()
        for file in self._manifest.files:
            self._files.check(file)
        for source in self._manifest.sources:
            path = nodes_path(self.folder, *source.key)
            NodeFile(path).check(source.size, source.mmr_root)
        self._feeds = {feed.name: feed.next_epoch for feed in self._manifest.feeds}
        self._origin_logs = {log.name: log for log in self._manifest.origin_logs}
        self._homes = {home.stream: home.hub_id for home in self._manifest.homes}
        self._index = ManifestIndex(self._manifest)
        self._sources = {source.key: resumed(source) for source in self._manifest.sources}
        self._load_waiting()

    def _remove_unnamed(self) -> None:
        """Remove what a crash left: files that the manifest does not name, and incomplete ones."""
        (self.folder / (MANIFEST + TEMPORARY)).unlink(missing_ok=True)
        named = {
            path(self.folder, file) for file in self._manifest.files for path in (path_of, subjects_path)
        }
        named |= {nodes_path(self.folder, *source.key) for source in self._manifest.sources}
        if self._manifest.waiting is not None:
            named.add(waiting_path(self.folder, self._manifest.waiting))
        for top in (DATA, NODES, WAITING):
            for parent, folders, files in os.walk(self.folder / top, topdown=False):
                for name in files:
                    if (path := Path(parent, name)) not in named:
                        path.unlink()
                for name in folders:
                    if not any((path := Path(parent, name)).iterdir()):
                        path.rmdir()

    def _load_waiting(self) -> None:
        """Load the imported events that wait for an event before them."""
        for file in self._manifest.files:
            for span in file.spans:
                known = self._sources.get((file.stream, bytes(span.hub_id), bytes(span.label)))
                if known is None or span.to_seq > known.size:
                    raise DamagedViewError(f"{path_of(self.folder, file)}: it has rows beyond its sources")
        if self._manifest.waiting is not None:
            for stream, event in read_waiting(self.folder, self._manifest.waiting):
                row = event.row
                self.source(stream, HubId(row.hub_id), Label(row.label), row.epoch).wait(event)
        for source in self._sources.values():
            source.waiting_changed = False

    # --- writing

    @property
    def has_changes(self) -> bool:
        """Whether a commit would change the view."""
        return bool(self._row_count) or self._noted

    @property
    def wants_commit(self) -> bool:
        """Whether enough rows are in memory for the writer to commit them."""
        return self._row_count >= FLUSH_ROWS or self._row_bytes >= FLUSH_BYTES

    def source(self, stream: str, hub_id: HubId, label: Label, epoch: int) -> GrowingSource:
        """Return a source to add entries to, its committed entries included."""
        key = stream, bytes(hub_id), bytes(label)
        if (found := self._sources.get(key)) is None:
            found = GrowingSource(stream=stream, hub_id=hub_id, label=label, epoch=epoch)
            self._sources[key] = found
        return found

    def sources(self) -> Sequence[GrowingSource]:
        """Return all sources with their uncommitted entries."""
        return list(self._sources.values())

    def leaf(self, source: GrowingSource, seq: int) -> bytes:
        """Return the leaf hash of an entry that was added earlier."""
        if seq in source.waiting:
            return source.waiting[seq].row.leaf_hash
        if seq > source.committed_tree_size:
            return source.leaves[seq - source.committed_tree_size - 1]
        return NodeFile(nodes_path(self.folder, source.stream, source.hub_id, source.label)).leaf(seq)

    def add(self, stream: str, row: ViewRow) -> None:
        """Add the row of an entry that was added to its source."""
        self._rows[Partition(stream, row.day)].append(row)
        self._row_count += 1
        self._row_bytes += len(row.payload_json or "")

    def next_epoch(self, feed: str, since: int) -> int:
        """Return the first epoch of a feed that is not read to its end."""
        return self._feeds.get(feed, since)

    def close_epochs(self, feed: str, before: int) -> None:
        """Note that the labels of all epochs before this one are read to their ends."""
        self._noted |= self._feeds.get(feed) != before
        self._feeds[feed] = before

    def origin_log(self, name: str) -> OriginLog | None:
        """Return how far a bridge's audit log is consumed."""
        return self._origin_logs.get(name)

    def note_origin_log(self, log: OriginLog) -> None:
        """Note how far a bridge's audit log is consumed."""
        self._noted |= self._origin_logs.get(log.name) != log
        self._origin_logs[log.name] = log

    @property
    def homes(self) -> Mapping[str, HubId]:
        """The streams that were read to the end once, each with the hub to name while it is empty."""
        return self._homes

    def note_homes(self, homes: Mapping[str, HubId]) -> None:
        """Note which streams are read to their ends, each with the hub to name while it is empty."""
        self._noted |= self._homes != homes
        self._homes = dict(homes)

    def commit(self) -> None:
        """Make all added rows durable and visible. After a failure the view must be opened again."""
        if self._failed:
            raise StateError(
                f"{self.folder}: an earlier commit failed", action="restart the process that uses this view"
            )
        self._failed = True  # until the commit is complete
        written = [
            file
            for partition, rows in self._rows.items()
            for file in self._write(partition, [table_of(rows)])
        ]
        for source in self._sources.values():
            if source.leaves:
                self._write_nodes(source)
        waiting = self._manifest.waiting
        if any(source.waiting_changed for source in self._sources.values()):
            waiting = self._write_waiting()
        self._publish([*self._manifest.files, *written], waiting)
        self._rows.clear()
        self._row_count = self._row_bytes = 0
        for source in self._sources.values():
            source.leaves.clear()
            source.waiting_changed = False
        self._failed = self._noted = False

    def compact(self, *, settle: bool = False) -> int:
        """Merge small runs until there are few enough; return how many files were replaced.

        ``settle`` merges more: a writer that has read its logs to their ends asks for it.
        """
        replaced = 0
        while (group := next_merge(self._manifest.files, settle=settle)) is not None:
            files = [file for run in group for file in run.files]
            for file in files:
                self._files.verify(file)
            written = self._write(group[0].partition, merged(self.folder, group))
            old = {file.name for file in files}
            kept = [file for file in self._manifest.files if file.name not in old]
            self._publish(kept + written, self._manifest.waiting)
            self._files.retire(self._version, files)
            replaced += len(files)
        return replaced

    def _write(self, partition: Partition, tables: Iterable[Any]) -> list[DataFile]:
        """Write a run."""
        written: list[DataFile] = []
        run = self._manifest.next_name
        for table in tables:
            name = self._manifest.next_name
            self._manifest = replace(self._manifest, next_name=name + 1)
            file = write_file(self.folder, partition, name, run, table)
            self._files.check(file)
            written.append(file)
        return written

    def _write_waiting(self) -> WaitingFile | None:
        """Write the waiting events of all sources to a new file; None if there are none."""
        events = [
            (source.stream, event) for source in self._sources.values() for event in source.waiting.values()
        ]
        if not events:
            return None
        name = self._manifest.next_name
        self._manifest = replace(self._manifest, next_name=name + 1)
        return write_waiting(self.folder, name, events)

    def _write_nodes(self, source: GrowingSource) -> None:
        path = nodes_path(self.folder, source.stream, source.hub_id, source.label)
        make_folder(path.parent)
        committed = self._index.sources.get((source.stream, source.hub_id, source.label))
        before = Mmr() if committed is None else Mmr(committed.size, committed.peaks)
        grown = NodeFile(path).append(before, source.leaves)
        if (grown.size, grown.root) != (source.size, source.mmr.root):
            raise DamagedViewError(f"{path}: the tree does not have the root of its source")
        if committed is None:
            sync_folder(path.parent)

    def _publish(self, files: Sequence[DataFile], waiting: WaitingFile | None) -> None:
        before = self._manifest.waiting
        manifest = replace(
            self._manifest,
            sources=tuple(each.as_source() for each in self._sources.values() if each.size),
            files=tuple(files),
            feeds=tuple(
                FeedPosition(name=name, next_epoch=epoch) for name, epoch in sorted(self._feeds.items())
            ),
            origin_logs=tuple(self._origin_logs[name] for name in sorted(self._origin_logs)),
            homes=tuple(Home(stream=name, hub_id=hub) for name, hub in sorted(self._homes.items())),
            waiting=waiting,
        )
        save_manifest(self.folder, manifest)  # commit point; memory changes after it
        index = ManifestIndex(manifest)
        with self._guard:
            self._manifest, self._index = manifest, index
            self._version += 1
        if before is not None and before != waiting:
            waiting_path(self.folder, before).unlink(missing_ok=True)

    # --- reading

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Hold the committed state: its files stay until the snapshot is released."""
        with self._guard:
            index, version = self._index, self._version
            self._files.use(version)
        try:
            yield Snapshot(folder=self.folder, index=index, files_of=self._files)
        finally:
            self._files.release(version)
