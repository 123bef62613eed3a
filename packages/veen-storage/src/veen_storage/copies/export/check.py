"""Verify an export from its files alone: no store, no hub, bounded memory.

In this order: the manifest; size and hash of every file, and that none is missing or unknown; the identity,
up to the pinned hub_id, with its key map; the hub's signature of the manifest, if there is one; entries and
checkpoints (``range_verifier``), the tree after the last entry, and the later checkpoint; the head in the hub
log, if there is one (``hub_head``). Damage raises ``DamageError`` with file, offset and clause; another hub's
export raises ``MismatchError``.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Final

from veen_core import hub_identity
from veen_core.errors import VeenError, VerificationError
from veen_core.export import IDENTITY, MANIFEST, SIGNATURE, ExportedFile, Manifest, manifest_digest
from veen_core.hub_export import HUB_HEAD, HubHead, verify_hub_head
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Signature
from veen_core.keys import verify
from veen_core.mmr import Mmr
from veen_core.tlog.tree_head import SignedHead
from veen_storage.copies.export.chunk_check import check_chunks
from veen_storage.copies.export.range_verifier import KnownRoots, RangeVerifier, VerifiedExport
from veen_storage.copies.export.sequence import damaged, read_small
from veen_storage.copies.export.set_check import check_set
from veen_storage.disk.hub_keys import encode_key_map
from veen_storage.disk.registry import Registry
from veen_storage.errors import MismatchError, StorageError

MAX_MANIFEST_BYTES: Final = 64 * 1_048_576


def verify_export(path: Path, pinned: HubId, roots: KnownRoots | None = None) -> VerifiedExport:
    """Raise unless the folder is a complete, verifiable export of the pinned hub.

    Each entry's root is compared with ``roots``.
    """
    manifest = _read_manifest(path)
    if manifest.hub_id != pinned:
        raise MismatchError(
            f"the export comes from hub {manifest.hub_id.hex()}, but the pinned hub is {pinned.hex()}"
        )
    _check_files(path, manifest)
    identity, registry = read_exported_identity(path, pinned)
    signed = _check_signature(path, identity)
    verifier = RangeVerifier(manifest, identity, registry, roots)
    with verifier.verifying():
        if manifest.form == "set":
            check_set(path, verifier)
        else:
            check_chunks(path, verifier)
    verified = replace(verifier.conclude(), signed=signed)
    return replace(verified, hub_checkpoint=_check_hub_head(path, verified))


# --- manifest, files, identity


def _read_manifest(path: Path) -> Manifest:
    try:
        if not (path / MANIFEST).is_file():
            raise StorageError(f"{path} is not an export: it has no {MANIFEST}")
        if (size := (path / MANIFEST).stat().st_size) > MAX_MANIFEST_BYTES:
            raise damaged(MANIFEST, f"has {size} bytes: a manifest has at most {MAX_MANIFEST_BYTES}")
        content = (path / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise StorageError(f"{path} is not an export: it has no {MANIFEST}") from None
    try:
        manifest = Manifest.decode(content)
        Mmr(manifest.from_seq - 1, manifest.peaks_before)
    except VeenError as exc:
        raise damaged(MANIFEST, str(exc)) from exc
    if not 1 <= manifest.from_seq <= manifest.to_seq:
        raise damaged(MANIFEST, f"{manifest.from_seq} to {manifest.to_seq} is not a range")
    if any(a.name >= b.name for a, b in pairwise(manifest.files)):
        raise damaged(MANIFEST, "files are not in ascending order of names")
    return manifest


def _check_files(path: Path, manifest: Manifest) -> None:
    there = {entry.name for entry in path.iterdir()} - {SIGNATURE}
    listed = {file.name for file in manifest.files} | {MANIFEST}
    for name in sorted(listed - there) + [name for name in IDENTITY if name not in listed]:
        raise damaged(name, "is missing")
    for name in sorted(there - listed):
        raise damaged(name, "is not in the manifest")
    for name in sorted(entry.name for entry in path.iterdir() if not entry.is_file()):
        raise damaged(name, "is not a file")  # reading a pipe would block
    for file in manifest.files:
        _check_file(path / file.name, file)


def _check_file(path: Path, file: ExportedFile) -> None:
    size, digest = 0, sha256()
    with path.open("rb") as content:
        while part := content.read(1_048_576):
            size += len(part)
            digest.update(part)
    if size != file.size:
        raise damaged(file.name, f"has {size} bytes, but the manifest says {file.size}", min(size, file.size))
    if digest.digest() != file.digest:
        raise damaged(file.name, "does not match its hash in the manifest")


def read_exported_identity(path: Path, pinned: HubId) -> tuple[HubIdentity, Registry]:
    """Read identity and registry of an export; verify that both belong to the pinned hub."""
    record, signature, key_map, registry_name = IDENTITY
    try:
        identity = HubIdentity.decode((path / record).read_bytes())
        hub_identity.verify_identity(identity, pinned=pinned)
    except VeenError as exc:
        raise damaged(record, str(exc)) from exc
    try:
        signed = Signature((path / signature).read_bytes())
        hub_identity.verify_identity_signature(identity, signed)
    except VeenError as exc:
        raise damaged(signature, str(exc)) from exc
    if (path / key_map).read_bytes() != encode_key_map(identity):
        raise damaged(key_map, f"does not match {record}")
    try:
        registry = Registry.decode((path / registry_name).read_bytes())
    except VeenError as exc:
        raise damaged(registry_name, str(exc)) from exc
    if registry.hub_id != pinned:
        raise damaged(registry_name, f"belongs to hub {registry.hub_id.hex()}")
    return identity, registry


def _check_hub_head(path: Path, verified: VerifiedExport) -> SignedHead | None:
    """Return the hub checkpoint that commits to the range; None if the export has none."""
    manifest = verified.manifest
    if all(file.name != HUB_HEAD for file in manifest.files):
        return None
    try:
        found = HubHead.decode(read_small(path / HUB_HEAD))
        return verify_hub_head(found, verified.identity, manifest.label, manifest.to_seq, verified.mmr_root)
    except VeenError as exc:
        raise damaged(HUB_HEAD, str(exc)) from exc


def _check_signature(path: Path, identity: HubIdentity) -> bool:
    """Return whether the hub signed the manifest, with any of its keys (core §8.4); raise if it is forged."""
    try:
        signature = Signature(read_small(path / SIGNATURE))
    except FileNotFoundError:
        return False
    except VeenError as exc:
        raise damaged(SIGNATURE, str(exc)) from exc
    digest = manifest_digest((path / MANIFEST).read_bytes())
    for key in identity.hub_keys:
        try:
            verify(key.hub_pk, digest, signature, "manifest.sig ADR 0008")
        except VerificationError:
            continue
        return True
    raise damaged(SIGNATURE, f"does not verify for {MANIFEST} under any key of the hub")
