"""``veen-hub --init`` and ``--rotate``: create a data directory, or rotate the key of a stopped hub.

For containers and test programs that have ``veen-hub`` but not ``veen``.
"""

from __future__ import annotations

import os
import time

from veen_core.errors import ConfigError, DecodeError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import UnixTime, VerifyKey
from veen_core.keys import SigningKey, SigningSeed
from veen_core.limits import DEFAULT_LIMITS
from veen_core.profile import PROFILES
from veen_hub.ops.config import HubConfig
from veen_storage import Files, create
from veen_storage.disk import rotation


def _new_key() -> SigningKey:
    return SigningKey(SigningSeed(os.urandom(SigningSeed.SIZE)))


def init(config: HubConfig, named: str, admin: str | None) -> HubIdentity:
    """Create a data directory with a new identity, the configured limits and the named profile (H10, H18)."""
    try:
        admin_pk = VerifyKey.from_hex(admin) if admin is not None else None
    except DecodeError as exc:
        raise ConfigError(f"--admin: {exc}") from None
    before = os.umask(0o077)  # new files are for this user only; an existing folder keeps its mode
    try:
        identity = create(
            config.data_dir,
            _new_key(),
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


def rotate(config: HubConfig, window_sec: int) -> HubIdentity:
    """Add a key, valid from the next second; the previous key stays active for the window (§8.4, KEX0.1)."""
    valid_from = UnixTime(int(time.time()) + 1)
    return rotation.rotate(
        config.data_dir, _new_key(), valid_from, window_sec, keys_directory=config.keys_dir
    )
