"""Key rotation: give a hub its next key, endorsed by the current key (core §8.4, KEX0.1).

Order, so that a crash at any point leaves a directory that opens:

1. Write the new key's file. Nothing refers to it yet.
2. Replace the identity artifacts together (``hub_keys``). From here on the hub has the new key.

The new key signs from ``valid_from`` on. For ``window_sec`` seconds more the old key stays active, and
checkpoints carry witness signatures of both keys. Old keys stay in the identity record, so that old receipts
verify for ever; their files are needed until every label was checkpointed under them.

No hub may have the directory open: a hub reads its keys when it opens the directory.
"""

from __future__ import annotations

from pathlib import Path

from veen_core import hub_identity
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubPk, UnixTime
from veen_core.keys import SigningKey
from veen_core.utc import format_utc
from veen_storage.disk import hub_keys
from veen_storage.disk.files import Files
from veen_storage.errors import StorageError
from veen_storage.store import Store


def rotate(
    root: Path,
    new_key: SigningKey,
    valid_from: UnixTime,
    window_sec: int,
    *,
    keys_directory: Path | None = None,
    files: Files | None = None,
) -> HubIdentity:
    """Add a key to a closed data directory; repeating the same rotation changes nothing."""
    files = files or Files()
    with Store(root, keys_directory=keys_directory, files=files) as store:
        keys_directory = keys_directory or store.layout.keys
        if store.identity.newest.hub_pk == new_key.public and store.identity.newest.valid_from == valid_from:
            return store.identity
        current = _current_key(store, keys_directory, valid_from)
        rotated = hub_identity.rotate(store.identity, current, HubPk(new_key.public), valid_from, window_sec)
        if not hub_keys.has_key(keys_directory, new_key):
            hub_keys.write_key(files, keys_directory, new_key)
        hub_keys.write_identity(files, store.layout, rotated, new_key)
        return rotated


def _current_key(store: Store, keys_directory: Path, valid_from: UnixTime) -> SigningKey:
    """Return the key that endorses the next one; raise if the next one must not begin at ``valid_from``."""
    newest, last = store.identity.newest, store.batch(UnixTime(0)).hub_ts
    if valid_from <= last:
        raise StorageError(
            f"a key cannot become valid at {format_utc(valid_from)}: the current key has signed receipts up "
            f"to {format_utc(last)}, which must stay valid (core §8.4)",
            action=f"choose a time after {format_utc(last)}",
        )
    current = hub_keys.read_keys(keys_directory, store.identity).get(newest.key_id)
    if current is None:
        raise StorageError(
            f"the hub's key {newest.key_id.hex()} is not in {keys_directory}: it must endorse the next one",
            action="put its file back into the keys folder",
        )
    return current
