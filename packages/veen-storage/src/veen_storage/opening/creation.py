"""Creation of a data directory: identity, keys, an empty log and its index (core §8.4, §14.1).

VERSION is written last: a directory without it was never finished, and ``create`` starts over in it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from veen_core import hub_identity
from veen_core.hub_identity import HubIdentity
from veen_core.ids import UnixTime, VerifyKey
from veen_core.keys import SigningKey
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.profile import DEFAULT_PROFILE, Profile
from veen_storage.commit.journal_floor import FLOOR, Floor, write_floor
from veen_storage.disk import hub_keys
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import Registry, write_registry
from veen_storage.errors import StorageError
from veen_storage.index.lmdb_index import Index
from veen_storage.index.tables import mark_index

INDEX_FILES: Final = ("data.mdb", "lock.mdb")


def create(
    root: Path,
    key: SigningKey,
    now: UnixTime,
    *,
    limits: Limits = DEFAULT_LIMITS,
    profile: Profile = DEFAULT_PROFILE,
    zstd_level: int | None = None,
    admin_pk: VerifyKey | None = None,
    keys_directory: Path | None = None,
    files: Files | None = None,
    inherited: Collection[str] = (),
) -> HubIdentity:
    """Create an empty data directory with a new hub identity.

    The folder must be missing, empty, or left by a creation that was interrupted. ``inherited`` names
    the files that it may contain already: the ancestry of a fork.
    """
    files, layout = files or Files(), Layout(root)
    if root.exists():
        _remove_unfinished(files, layout, inherited)
    files.make_directories(root)
    for directory in layout.directories():
        files.make_directory(directory)
    identity = hub_identity.new_identity(key, now)
    keys_directory = keys_directory or layout.keys
    if not hub_keys.has_key(keys_directory, key):
        hub_keys.write_key(files, keys_directory, key)
    hub_keys.write_identity(files, layout, identity, key)
    files.replace(layout.checkpoint_binding, b"")
    write_floor(files, layout.journal, Floor())
    registry = Registry(
        hub_id=identity.hub_id, limits=limits, profile=profile, zstd_level=zstd_level, admin_pk=admin_pk
    )
    index = Index(layout.index)
    index.write(lambda txn: mark_index(txn, identity.hub_id))
    index.close()
    files.sync_directory(layout.index)  # LMDB syncs its file, not the file's name
    files.sync_directory(root)
    write_registry(files, layout, registry)
    return identity


def _remove_unfinished(files: Files, layout: Layout, inherited: Collection[str]) -> None:
    """Remove what an interrupted creation left; raise if the folder holds anything else.

    Key files stay: a key is never deleted, and the next creation adds its own.
    """
    found = {path.name for path in layout.root.iterdir()} - set(inherited)
    folders = {path.name for path in (*layout.directories(), layout.keys)}
    leftovers = [path for path in _files_of_creation(layout) if path.exists()]
    expected = {path.name for path in leftovers if path.parent == layout.root} | folders
    inside = [path for folder in layout.directories() if folder.is_dir() for path in folder.iterdir()]
    if layout.version.exists():
        raise StorageError(f"{layout.root} is a data directory already", action="choose another folder")
    if not found <= expected or not set(inside) <= set(leftovers):
        raise StorageError(
            f"{layout.root} is not empty: a new data directory needs a folder of its own",
            action="choose an empty folder",
        )
    for path in leftovers:
        files.remove(path)


def _files_of_creation(layout: Layout) -> list[Path]:
    """Every file that an interrupted creation may leave, except key files."""
    written = [
        layout.identity,
        layout.identity_signature,
        layout.key_map,
        layout.identity_next,
        layout.checkpoint_binding,
        layout.registry,
        layout.version,
        layout.journal / FLOOR,
    ]
    temporary = [path.with_name(f"{path.name}.tmp") for path in written]
    keys = sorted(layout.keys.glob("*.key.tmp")) if layout.keys.is_dir() else []
    return [*written, *temporary, *keys, layout.lock, *(layout.index / name for name in INDEX_FILES)]
