"""``veen-hub --init`` and ``--rotate``: create a data directory, or rotate the key of a stopped hub.

For containers and test programs that have ``veen-hub`` but not ``veen``. In a cluster the keys come from a
Secret that a pod can only read (spec-4 §4.3, §9.3). ``init_if_missing`` and ``rotate_if_new`` use the keys in
that folder and never make one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from veen_core.errors import ConfigError, DecodeError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubPk, UnixTime, VerifyKey
from veen_core.keys import SigningKey, SigningSeed
from veen_core.limits import DEFAULT_LIMITS
from veen_core.profile import PROFILES
from veen_hub.ops.config import HubConfig
from veen_storage import (
    Files,
    Layout,
    StorageError,
    create,
    finish_identity,
    read_all_keys,
    read_identity,
    read_registry,
)
from veen_storage import rotate as add_key


def _new_key() -> SigningKey:
    return SigningKey(SigningSeed(os.urandom(SigningSeed.SIZE)))


def init(config: HubConfig, named: str, admin: str | None, key: SigningKey | None = None) -> HubIdentity:
    """Create a data directory with the configured limits and the named profile (H10, H18).

    Without ``key`` the hub gets a new one.
    """
    try:
        admin_pk = VerifyKey.from_hex(admin) if admin is not None else None
    except DecodeError as exc:
        raise ConfigError(f"--admin: {exc}") from None
    before = os.umask(0o077)  # new files are for this user only; an existing folder keeps its mode
    try:
        identity = create(
            config.data_dir,
            key or _new_key(),
            UnixTime(int(time.time())),
            limits=DEFAULT_LIMITS.lowered(config.limits),
            profile=PROFILES[named],
            admin_pk=admin_pk,
            keys_directory=config.keys_dir,
        )
        heads_file = config.hub_log.memories.heads_file
        if heads_file is not None and not heads_file.exists():  # only now is a hub known to be new (P3)
            Files().replace(heads_file, b"")
        return identity
    finally:
        os.umask(before)


def rotate(config: HubConfig, window_sec: int, key: SigningKey | None = None) -> HubIdentity:
    """Add a key, valid from the next second; the old one stays active for ``window_sec`` (§8.4, KEX0.1)."""
    valid_from = UnixTime(int(time.time()) + 1)
    return add_key(config.data_dir, key or _new_key(), valid_from, window_sec, keys_directory=config.keys_dir)


def init_if_missing(config: HubConfig, named: str, admin: str | None) -> HubIdentity | None:
    """Create the data directory from the key in the keys folder, unless it exists (spec-4 §4.3).

    The key decides the hub_id, so a hub that lost its volume keeps its identity. What it may sign then is for
    its memories to decide (RESOLUTIONS P3).
    """
    if Layout(config.data_dir).version.exists():
        return None
    folder = _given_keys_folder(config)
    keys = read_all_keys(folder)
    if len(keys) != 1:
        raise StorageError(
            f"{folder} has {len(keys)} hub keys; a new data directory needs exactly one: it fixes the hub_id",
            action="restore the data directory, or leave only the hub's first key in the folder",
        )
    return init(config, named, admin, keys[0])


def rotate_if_new(config: HubConfig, window_sec: int) -> HubIdentity | None:
    """Rotate to the key in the keys folder that the hub does not have yet, if there is one (spec-4 §11.4)."""
    folder = _given_keys_folder(config)
    layout = Layout(config.data_dir)
    finish_identity(Files(), layout, read_registry(layout).hub_id)
    known = read_identity(layout, read_registry(layout).hub_id)
    new = [key for key in read_all_keys(folder) if HubPk(key.public) not in known.key_map.values()]
    if len(new) > 1:
        raise StorageError(
            f"{folder} has {len(new)} keys that the hub does not have yet, and they have no order",
            action="add one key at a time",
        )
    return rotate(config, window_sec, new[0]) if new else None


def _given_keys_folder(config: HubConfig) -> Path:
    if config.keys_dir is None:
        raise ConfigError("keys_dir: missing; --init-if-missing and --rotate-if-new never make a key")
    return config.keys_dir
