"""The identity of a replica: the primary's public artifacts, never its keys (RESOLUTIONS P9, core §8.4)."""

from __future__ import annotations

from pathlib import Path

from veen_core import hub_identity
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Signature
from veen_storage.disk import hub_keys
from veen_storage.disk.files import Files
from veen_storage.disk.hub_keys import NextIdentity, finish_identity
from veen_storage.disk.identity_artifacts import read_artifacts
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import read_registry
from veen_storage.errors import StorageError


def check_without_keys(layout: Layout, keys_directory: Path | None) -> None:
    """Raise if the directory has a secret key of the hub: two hubs could then sign two histories."""
    if not layout.version.exists():
        return
    artifacts = read_artifacts(layout, read_registry(layout).hub_id)
    if found := hub_keys.read_keys(keys_directory or layout.keys, artifacts.identity):
        key_id = next(iter(found)).hex()
        raise StorageError(
            f"{layout.root} has the hub's key {key_id}: a replica must not be able to sign",
            action="start it without --replica-of if it is the primary, or remove the key from this copy",
        )


def adopt_identity(
    layout: Layout, hub: HubId, identity: HubIdentity, signature: Signature, files: Files | None = None
) -> bool:
    """Replace the identity record of a closed directory by a newer one of the same hub.

    The caller has verified the new record. Return whether it is new.
    """
    held = read_artifacts(layout, hub)
    if identity == held.identity:
        return False
    hub_identity.verify_successor(held.identity, identity, signature)
    files = files or Files()
    files.replace(layout.identity_next, NextIdentity(identity=identity, signature=signature).encode())
    finish_identity(files, layout, hub)
    return True
