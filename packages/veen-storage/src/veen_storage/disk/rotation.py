"""Key rotation: a hub gets its next key, endorsed by the one before (§8.4, KEX0.1).

Order, so that a crash at any point leaves a directory that opens:

1. the new key's file: nothing refers to it yet; 2. the identity artifacts, as one (``hub_keys``); from
there on the hub has the new key. It signs from ``valid_from`` on; until ``window_sec`` later the old key
stays active and checkpoints carry both keys' witness signatures. Old keys stay in the record, so that old
receipts verify for ever; their files are needed until the last label was checkpointed under them.

The directory must not be open elsewhere: a running hub learns of its keys when it opens.
"""

from __future__ import annotations

from pathlib import Path

from veen_core import hub_identity
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubPk, UnixTime
from veen_core.keys import SigningKey
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
    """Add a key to a closed data directory; asking again for the same rotation changes nothing."""
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
    """The key that endorses the next one, if it may."""
    newest, last = store.identity.newest, store.batch(UnixTime(0)).hub_ts
    if valid_from <= last:
        raise StorageError(
            f"a key cannot become valid at {valid_from}: the hub has issued receipts up to {last}, and those "
            "of its old key must stay valid (§8.4)"
        )
    current = hub_keys.read_keys(keys_directory, store.identity).get(newest.key_id)
    if current is None:
        raise StorageError(
            f"the hub's key {newest.key_id.hex()} is not in {keys_directory}: it must endorse the next one"
        )
    return current
