"""A snapshot: a hub up to one journal batch, sent as a stream of parts to a new replica (RESOLUTIONS P9).

A snapshot has what a clone without keys has, except attachments, which a replica fetches by their content
ids. It is sent in the order in which a clone is written (``copies.clone``), as a CBOR sequence:

    ["snapshot", batch, hub_id]     the last journal batch that the files below contain
    ["file", name, bytes]           append these bytes to the file
    ["forget"]                      remove log/ and hublog/: a chunk was pruned, and a new cut follows
    ["snapshot", batch, hub_id]     the new cut
    ["end"]

The receiver writes into a folder without VERSION, verifies every signature while it builds the index,
records the batch in ``journal/applied``, and writes VERSION last. So a folder is a complete copy, or it is no
data directory.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from veen_core import cbor
from veen_core.ids import HubId, Label
from veen_storage.commit.journal_floor import Floor, write_floor
from veen_storage.copies.clone import MAX_CUTS, LogCopier, PrunedMeanwhileError, read_parts
from veen_storage.copies.consistent_prefix import SealedPart, take_cut
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import StorageError
from veen_storage.fsck.repair import RefusedError, rebuild_index
from veen_storage.opening.observer import Source

Emit = Callable[[bytes], None]
"""Sends one encoded item; may block, and may raise to end the snapshot."""
MAX_OPEN_FILES: Final = 128
MAX_VERSION_BYTES: Final = 4_096
"""VERSION is held in memory until the copy is verified."""
UNFINISHED: Final = "snapshot-unfinished"
"""File that marks a folder of an interrupted snapshot: only such a folder may be emptied."""
_NAME: Final = re.compile(
    r"(log|hublog)/[A-Za-z0-9][A-Za-z0-9._-]*"
    r"|VERSION|registry\.cbor|hub-identity\.(cbor|sig)|hub-key-map\.cbor|checkpoint-binding\.cbor"
    r"|fork\.cbor|fork-cuts\.cborseq|attachments/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{64}"
)
_ANCESTRY: Final = re.compile(r"ancestry/[0-9a-f]{64}/")
_NOT_SENT: Final = frozenset({"index", "lock", "journal", "keys", "views", "journal-kept", "evidence"})
"""Names of an ancestor's directory that are rebuilt, empty or private."""


def send_snapshot(store: Source, emit: Emit) -> None:
    """Send everything that was applied when this was called."""
    sender = SnapshotSender(store, emit)
    for _attempt in range(MAX_CUTS):
        cut = take_cut(store.index)
        sender.begin(cut.batch)
        try:
            sender.copy_log(cut, whole=True)
        except PrunedMeanwhileError:
            sender.forget_log()
            continue
        sender.send_rest()
        return
    raise StorageError(f"chunks were pruned faster than they could be sent, {MAX_CUTS} times")


class SnapshotSender(LogCopier):
    """Sends the files of one hub instead of writing them."""

    def __init__(self, store: Source, emit: Emit) -> None:
        super().__init__(store, Layout(Path()), lambda _done, _all: None, Files())
        self._emit = emit

    def begin(self, batch: int) -> None:
        self._emit(cbor.encode(["snapshot", batch, bytes(self._store.identity.hub_id)]))

    def forget_log(self) -> None:
        self._emit(cbor.encode(["forget"]))

    def send_rest(self) -> None:
        """Send identity and registry, and in a fork the ancestors; VERSION comes last."""
        source = self._source
        self._send_ancestry(source.root, Path())
        for name, content in self._store.artifacts().files(source).items():
            self._write(Path(name), [content])
        for path in (source.registry, source.version):
            self._write(Path(path.name), [path.read_bytes()])
        self._emit(cbor.encode(["end"]))

    def _send_ancestry(self, root: Path, below: Path) -> None:
        here = Layout(root)
        if not here.fork.exists():
            return
        for path in (here.fork_cuts, here.fork):
            self._write(below / path.name, [path.read_bytes()])
        for ancestor in sorted(here.ancestry.iterdir()):
            inside = below / "ancestry" / ancestor.name
            for path in sorted(ancestor.rglob("*")):
                first = path.relative_to(ancestor).parts[0]
                if path.is_file() and first not in _NOT_SENT and first != "ancestry":
                    self._write(inside / path.relative_to(ancestor), read_parts(path))
            self._send_ancestry(ancestor, inside)

    # --- steps of the base class that write files

    def _make_folders(self) -> None:
        """Do nothing: the receiver makes its folders."""

    def _sync_folders(self) -> None:
        """Do nothing: the receiver syncs."""

    def _seal(self, label: Label, part: SealedPart) -> None:  # noqa: ARG002 - the base class's interface
        """Take a new cut: the chunk was sent under a name that it has no longer."""
        raise PrunedMeanwhileError

    def _write(self, path: Path, parts: Iterable[bytes]) -> None:
        sent = False
        for part in parts:
            self._emit(cbor.encode(["file", path.as_posix(), part]))
            sent = True
        if not sent:
            self._emit(cbor.encode(["file", path.as_posix(), b""]))


class SnapshotTarget:
    """Writes a snapshot into a new folder; used by one thread."""

    def __init__(self, root: Path, hub_id: HubId, files: Files | None = None) -> None:
        """Start in a folder that is missing, empty, or left by a snapshot that was interrupted."""
        self.layout = Layout(root)
        if self.layout.version.exists():
            raise StorageError(
                f"{root} is a data directory already", action="name a new or an empty folder for the copy"
            )
        self._files = files or Files()
        self._hub_id = hub_id
        self._batch: int | None = None
        self._versions: dict[Path, bytes] = {}
        """VERSION of the hub and of each ancestor, written once its index is built."""
        self._unfinished = root / UNFINISHED
        self._ended = False
        self._offsets: dict[Path, int] = {}
        self.bytes_received = 0
        self._clear()

    def _clear(self) -> None:
        """Empty the folder if an interrupted snapshot has left it; never remove anything else."""
        root = self.layout.root
        found = sorted(root.iterdir()) if root.exists() else []
        if found and not self._unfinished.exists():
            raise StorageError(
                f"{root} is not empty, and no interrupted copy has left it: it has {found[0].name}",
                action="name a new or an empty folder as the replica's data directory",
            )
        for path in found:
            if path.name == self.layout.keys.name:
                raise StorageError(f"{root} holds keys: a replica must not", action="name another folder")
            if path == self._unfinished:
                continue
            if not path.is_dir():
                self._files.remove(path)
            else:
                shutil.rmtree(path)
        self._files.make_directories(root)
        os.close(
            self._files.open_append(self._unfinished)
        )  # before any other file: only a folder with this marker may be emptied
        self._files.sync_directory(root)
        for directory in self.layout.directories():
            self._files.make_directory(directory)

    def take(self, item: bytes) -> None:
        """Take the next item of the stream."""
        match cbor.decode_items(item):
            case ["snapshot", int(batch), bytes(hub_id)] if not self._ended:
                if hub_id != self._hub_id:
                    raise StorageError(f"the snapshot is of hub {hub_id.hex()}, not {self._hub_id.hex()}")
                self._batch = batch
            case ["file", str(name), bytes(data)] if self._batch is not None and not self._ended:
                self._append(name, data)
            case ["forget"]:
                self._forget()
            case ["end"]:
                self._ended = True
            case _:
                raise StorageError("the snapshot has an item of unknown form, or in a wrong place")

    def _append(self, name: str, data: bytes) -> None:
        at = 0
        while (ancestor := _ANCESTRY.match(name, at)) is not None:
            at = ancestor.end()
        if not _NAME.fullmatch(name[at:]):
            raise StorageError(f"the snapshot names a file that does not belong in it: {name[:200]!r}")
        path = self.layout.root / name
        self.bytes_received += len(data)
        if path.name == self.layout.version.name:
            self._versions[path] = self._versions.get(path, b"") + data
            if len(self._versions[path]) > MAX_VERSION_BYTES:
                raise StorageError(f"the snapshot's {name[:200]!r} exceeds {MAX_VERSION_BYTES} bytes")
            return
        if path not in self._offsets:
            self._files.make_directory(path.parent)
        fd = self._files.open_append(path)
        try:
            offset = self._offsets.get(path, 0)
            self._files.write(fd, data, offset)
            self._offsets[path] = offset + len(data)
        finally:
            os.close(fd)

    def _forget(self) -> None:
        for folder in (self.layout.log, self.layout.hub_log):
            for path in folder.iterdir():
                self._files.remove(path)
                self._offsets.pop(path, None)
        self._files.remove(self.layout.checkpoint_binding)
        self._offsets.pop(self.layout.checkpoint_binding, None)
        self._batch = None

    def finish(self) -> int:
        """Verify the copy and make it a data directory; return its last journal batch."""
        if not self._ended or self._batch is None or self.layout.version not in self._versions:
            raise StorageError("the snapshot ended early", action="start the replica again")
        self._sync()
        roots = sorted((path.parent for path in self._versions), key=lambda path: -len(path.parts))
        for root in roots:
            self._finish(Layout(root), batch=self._batch if root == self.layout.root else 0)
        self._files.remove(self._unfinished)
        return self._batch

    def _finish(self, layout: Layout, batch: int) -> None:
        for directory in layout.directories():
            self._files.make_directory(directory)
        write_floor(self._files, layout.journal, Floor(batch))
        try:
            made = rebuild_index(layout, self._files, every_signature=True)
        except RefusedError as exc:
            raise StorageError(f"the snapshot of the primary does not verify: {exc.faults[0]}") from exc
        if made.rewritten:  # repair would replace such a file; in a copy it shows that something was changed
            raise StorageError(
                f"the snapshot of the primary does not verify: {made.rewritten[0]} contradicts the log"
            )
        self._files.sync_directory(layout.root)
        self._files.replace(layout.version, self._versions[layout.version])

    def _sync(self) -> None:
        paths = list(self._offsets)
        for at in range(0, len(paths), MAX_OPEN_FILES):
            opened: list[int] = []
            try:
                for path in paths[at : at + MAX_OPEN_FILES]:
                    opened.append(self._files.open_append(path))
                self._files.sync_many(opened)
            finally:
                for fd in opened:
                    os.close(fd)
        for folder in {path.parent for path in paths} | {self.layout.root}:
            self._files.sync_directory(folder)
