"""Reshard: move a stopped hub into a new directory with another number of shards.

No entry is decoded into another form, and no signature is made: the files of every label are copied, and
the files of the hub log. What can be derived is derived again. The order leaves one directory that can be
started, or none, and never two:

1. every part of the source is opened, which applies its journal;
2. labels, hub log, attachments and state are copied, the indices are built;
3. the digest of every file of the log is compared between source and target (``log_digests``);
4. the target gets ``VERSION.next``: it is complete and cannot be started;
5. the source's VERSION becomes ``VERSION.moved``: it cannot be started any more;
6. the target's ``VERSION.next`` becomes VERSION: **the commit point**.

A crash before step 5 leaves the source as it was. After step 5, the same command does step 6.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_core.hashing import H
from veen_core.ids import Label
from veen_storage.commit.journal_floor import Floor, write_floor
from veen_storage.copies.clone import ReportProgress, read_parts
from veen_storage.disk import hub_keys
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import (
    DATA,
    FORMAT_VERSION,
    MOVED,
    MOVED_NOTE,
    PART,
    SHARDED_VERSION,
    not_a_data_directory,
    read_registry,
    version_text,
)
from veen_storage.errors import DamageError, StorageError, read_file
from veen_storage.fsck.repair import rebuild_index
from veen_storage.shards.joined_hub_log import create_joined
from veen_storage.shards.merged_order import NUMBERS_PER_SEC_BITS
from veen_storage.shards.parts_copier import PartsCopier, copy_attachments
from veen_storage.shards.sharded_layout import (
    CONTROL,
    GENERATION_BYTES,
    MAX_SHARDS,
    ShardedLayout,
    ShardMap,
    control_label_of,
    is_sharded,
    owner_of,
    part_numbers,
    read_shard_map,
)
from veen_storage.store import Store

NEXT: Final = "VERSION.next"
HUB_LOG_FILES: Final = ("entries", "checkpoint", "published")
STATE_FOLDERS: Final = ("views/hub", "evidence")
"""Folders that are not derived from the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resharded:
    """The result of a resharding."""

    shards_before: int
    shards: int
    labels: int
    entries: int
    files: int
    """Files of the log that were compared, attachments included."""
    digest_before: str
    """Hash over the names and hashes of these files in the source."""
    digest_after: str
    """Hash over the names and hashes of the target's files, which were read again."""


def reshard(
    source: Path,
    target: Path,
    shards: int,
    *,
    keys_directory: Path | None = None,
    progress: ReportProgress = lambda _done, _all: None,
    files: Files | None = None,
) -> Resharded | None:
    """Move a stopped hub; return None if only the last step of an earlier run was missing.

    ``keys_directory`` is where the hub keeps its keys, if not in its data directory; they stay there.
    """
    if not 1 <= shards <= MAX_SHARDS:
        raise StorageError(f"{shards} shards: a hub has between 1 and {MAX_SHARDS}")
    files = files or Files()
    if _finish(source, target, files):
        return None
    if not (source / "VERSION").exists():
        raise not_a_data_directory(source)
    if target.exists() and any(target.iterdir()):
        raise StorageError(f"{target} is not empty; name a folder that does not exist yet")
    if target.absolute().is_relative_to(source.absolute()):
        raise StorageError(f"{target} is inside of {source}; name a folder outside of it")
    moved = _Reshard(source, target, shards, keys_directory=keys_directory, progress=progress, files=files)
    return moved.run()


def moved_error(root: Path) -> StorageError | None:
    """Return the error for a directory whose hub was moved into another one; None for any other folder."""
    return not_a_data_directory(root) if (root / MOVED).exists() else None


def _finish(source: Path, target: Path, files: Files) -> bool:
    """Do step 6 if a crash prevented it; return whether it did."""
    if (source / "VERSION").exists() or not (source / MOVED).exists() or not (target / NEXT).exists():
        return False
    if read_file(source / MOVED_NOTE) != _note(target):
        return False  # the target of an older attempt: the hub was moved into another directory
    files.rename(target / NEXT, target / "VERSION")
    files.sync_directory(target)
    return True


class _Reshard:
    def __init__(
        self,
        source: Path,
        target: Path,
        shards: int,
        *,
        keys_directory: Path | None,
        progress: ReportProgress,
        files: Files,
    ) -> None:
        self._root, self._target, self._shards = source, target, shards
        self._given_keys = keys_directory
        self._keys = keys_directory or source / "keys"
        self._progress = progress
        self._files = files
        self._before = read_shard_map(ShardedLayout(source)).count if is_sharded(source) else 1
        self._stores: dict[int, Store] = {}
        """The source's parts by number; a hub with one shard is the control part and owns every label."""

    def run(self) -> Resharded:
        with ExitStack() as opened:
            if self._before > 1:
                lock = DirectoryLock(Layout(self._root))
                opened.callback(lock.release)
            for number in part_numbers(self._before) if self._before > 1 else (CONTROL,):
                self._stores[number] = opened.enter_context(self._open(number))
            for store in self._stores.values():
                _check_supported(store.layout)
                if not store.settle():
                    raise StorageError(f"{store.layout.root}: its journal could not be applied; try again")
            self._control_label = control_label_of(self._control.registry.hub_id)
            copier = PartsCopier(self._stores, self._progress, self._files)
            version = self._build(copier)
            before, after = self._compare()
            self._files.replace(self._target / NEXT, version)
            self._retire()  # before the locks are released: no hub may start on the source any more
        _finish(self._root, self._target, self._files)
        cuts = copier.labels
        entries = sum(cut.stream_seq for cut in cuts)
        return Resharded(
            shards_before=self._before,
            shards=self._shards,
            labels=len(cuts),
            entries=entries,
            files=len(before),
            digest_before=digest_of(before),
            digest_after=digest_of(after),
        )

    @property
    def _control(self) -> Store:
        return self._stores[CONTROL]

    def _open(self, number: int) -> Store:
        if self._before == 1:
            return Store(self._root, keys_directory=self._keys)
        root = ShardedLayout(self._root).part(number).root
        return Store(root, keys_directory=self._keys, part=True)

    # --- step 2

    def _build(self, copier: PartsCopier) -> bytes:
        """Build the target without its VERSION; return the content of that file."""
        self._files.make_directories(self._target)
        registry = self._control.layout.registry.read_bytes()
        if self._shards == 1:
            layout = Layout(self._target)
            copier.build(layout, lambda _label: True)
            self._copy_hub_log(layout)
            self._copy_state(layout)
            self._copy_keys(layout)
            if self._before > 1:
                # Replicas have no greater number: they ask for a batch that is gone, and copy anew.
                write_floor(self._files, layout.journal, Floor(int(time.time()) << NUMBERS_PER_SEC_BITS))
            rebuild_index(layout, self._files)
            return version_text(DATA, FORMAT_VERSION, registry)
        sharded = ShardedLayout(self._target)
        shard_map = ShardMap(count=self._shards, generation=os.urandom(GENERATION_BYTES)).encode()
        for number in part_numbers(self._shards):
            layout = sharded.part(number)
            copier.build(layout, lambda label, number=number: self._belongs(label, number))  # type: ignore[misc]
            if number == CONTROL:
                self._copy_state(layout)
            rebuild_index(layout, self._files)
            self._files.replace(layout.version, version_text(PART, FORMAT_VERSION, registry))
        self._files.make_directories(sharded.joined.hub_log)
        self._copy_hub_log(sharded.joined)
        create_joined(sharded.joined, self._control.identity, self._files)
        self._files.make_directories(sharded.sockets, 0o700)
        self._files.make_directories(sharded.fences)
        self._copy_keys(Layout(self._target))
        self._files.replace(sharded.shard_map, shard_map)
        return version_text(DATA, SHARDED_VERSION, shard_map)

    def _belongs(self, label: Label, number: int) -> bool:
        """Return whether a part of the target holds a label: its owner, and all parts the control label."""
        return label == self._control_label or (number != CONTROL and owner_of(label, self._shards) == number)

    @property
    def _hub_log_source(self) -> Layout:
        return Layout(self._root) if self._before == 1 else ShardedLayout(self._root).joined

    def _copy_hub_log(self, target: Layout) -> None:
        for name in HUB_LOG_FILES:
            source = self._hub_log_source.hub_log / name
            if source.exists():
                self._copy_file(source, target.hub_log / name)

    def _copy_state(self, target: Layout) -> None:
        """Copy attachments, and the state that does not follow from the log."""
        control = self._control
        copy_attachments(control, target, self._files)
        for name in STATE_FOLDERS:
            source = control.layout.root / name
            for path in sorted(source.rglob("*")) if source.is_dir() else ():
                if path.is_file():
                    place = target.root / path.relative_to(control.layout.root)
                    self._files.make_directories(place.parent, 0o700)
                    self._copy_file(path, place)

    def _copy_file(self, source: Path, target: Path) -> None:
        fd = self._files.open_append(target, source.stat().st_mode & 0o777)
        try:
            offset = 0
            for part in read_parts(source):
                self._files.write(fd, part, offset)
                offset += len(part)
            self._files.sync(fd)
        finally:
            os.close(fd)
        self._files.sync_directory(target.parent)

    def _copy_keys(self, target: Layout) -> None:
        if self._given_keys is None:
            for key in hub_keys.read_keys(self._keys, self._control.identity).values():
                hub_keys.write_key(self._files, target.keys, key)

    # --- step 3

    def _compare(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the digests of the log's files in source and target; raise unless they are the same."""
        before = dict(_digests(self._root, self._before, self._control_label))
        after = dict(_digests(self._target, self._shards, self._control_label))
        differing = sorted(
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        )
        if differing:
            shutil.rmtree(self._target)
            raise DamageError(
                differing[0],
                None,
                f"is not the same after resharding (and {len(differing) - 1} more files): nothing was moved",
            )
        return before, after

    # --- step 5

    def _retire(self) -> None:
        self._files.replace(self._root / MOVED_NOTE, _note(self._target))
        self._files.rename(self._root / "VERSION", self._root / MOVED)
        self._files.sync_directory(self._root)


def _note(target: Path) -> bytes:
    """Return the note in a retired source: it names the only target that may become the hub's directory."""
    return f"moved to {target.absolute()}\n".encode()


def digest_of(digests: dict[str, str]) -> str:
    """Return one hash for all files of a log, by name."""
    return H("\n".join(f"{digest}  {name}" for name, digest in sorted(digests.items())).encode()).hex()


def log_digests(root: Path) -> dict[str, str]:
    """Return the hash of each file of a stopped hub's log by name, however many shards the hub has."""
    count = read_shard_map(ShardedLayout(root)).count if is_sharded(root) else 1
    part = ShardedLayout(root).part(CONTROL) if count > 1 else Layout(root)
    return dict(_digests(root, count, control_label_of(read_registry(part, part=count > 1).hub_id)))


def _digests(root: Path, count: int, control: Label) -> Iterator[tuple[str, str]]:
    """Yield name and hash of the files of every label, of the hub log, and of the attachments.

    A shard's copy of the control label is left out: it is no log of its own.
    """
    if count == 1:
        layout = Layout(root)
        yield from _files_of(layout.log)
        hub_log, attachments = layout.hub_log, layout.attachments
    else:
        sharded = ShardedLayout(root)
        yield from _files_of(sharded.part(CONTROL).log)
        for number in range(count):
            files = _files_of(sharded.part(number).log)
            yield from ((name, digest) for name, digest in files if control.hex() not in name)
        hub_log, attachments = sharded.joined.hub_log, sharded.part(CONTROL).attachments
    yield from ((f"hublog/{name}", digest) for name, digest in _files_of(hub_log))
    yield from ((f"attachments/{name}", digest) for name, digest in _files_of(attachments))


def _files_of(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                yield path.name, hashlib.file_digest(file, "sha256").hexdigest()


def _check_supported(layout: Layout) -> None:
    """Refuse a hub whose directory holds what resharding does not move."""
    for path, what in ((layout.fork, "is a fork"), (layout.handover, "has handed over to a successor")):
        if path.exists():
            raise StorageError(
                f"{layout.root} {what}: such a hub cannot be resharded",
                action="start it with `shards: 1`",
            )
