"""A new data directory: identity, keys, an empty log and its index; VERSION comes last (§8.4, §14.1)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from veen_core import hub_identity
from veen_core.hub_identity import HubIdentity
from veen_core.ids import UnixTime, VerifyKey
from veen_core.keys import SigningKey
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.profile import DEFAULT_PROFILE, Profile
from veen_storage.commit.journal_floor import Floor, write_floor
from veen_storage.disk import hub_keys
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import Registry, write_registry
from veen_storage.errors import StorageError
from veen_storage.index.lmdb_index import Index
from veen_storage.index.tables import mark_index


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
    """A new, empty data directory with a new hub identity. VERSION comes last: without it, it is none.

    ``inherited`` names what may lie there already: a fork's ancestry.
    """
    files, layout = files or Files(), Layout(root)
    if root.exists() and any(path.name not in inherited for path in root.iterdir()):
        raise StorageError(f"{root} is not empty: a new data directory needs a folder of its own")
    files.make_directories(root)
    for directory in layout.directories():
        files.make_directory(directory)
    identity = hub_identity.new_identity(key, now)
    hub_keys.write_key(files, keys_directory or layout.keys, key)
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
