"""Judges an export from its files alone: no store, no hub, memory that does not grow with it.

In order: the manifest; every file's size and hash, none missing and none too many; the identity, up to
what the verifier pinned, with its key map; the hub's signature of the manifest, if there is one; then the
entries and checkpoints (``judge``), the tree after the last one, and the later checkpoint. Whatever does not
hold raises ``DamageError`` with file, offset and clause; another hub's export raises ``MismatchError``.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Final

from veen_core import hub_identity
from veen_core.errors import VeenError, VerificationError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Signature
from veen_core.keys import verify
from veen_core.mmr import Mmr
from veen_storage.copies.export.chunks import judge_chunks
from veen_storage.copies.export.format import (
    IDENTITY,
    MANIFEST,
    SIGNATURE,
    ExportedFile,
    Manifest,
    manifest_digest,
    read_small,
)
from veen_storage.copies.export.judge import Judge, Verified, damage
from veen_storage.copies.export.portable_set import judge_set
from veen_storage.disk.hub_keys import encode_key_map
from veen_storage.disk.registry import Registry
from veen_storage.errors import MismatchError, StorageError

MAX_MANIFEST: Final = 64 * 1_048_576


def verify_export(path: Path, pinned: HubId) -> Verified:
    """Raise unless the folder is a complete, verifiable export of the pinned hub."""
    manifest = _read_manifest(path)
    if manifest.hub_id != pinned:
        raise MismatchError(f"the export is of hub {manifest.hub_id.hex()}, pinned is {pinned.hex()}")
    _check_files(path, manifest)
    identity, registry = _read_identity(path, pinned)
    signed = _check_signature(path, identity)
    judge = Judge(manifest, identity, registry)
    if manifest.form == "set":
        judge_set(path, judge)
    else:
        judge_chunks(path, judge)
    return replace(judge.conclude(), signed=signed)


# --- manifest, files, identity


def _read_manifest(path: Path) -> Manifest:
    try:
        if not (path / MANIFEST).is_file():
            raise StorageError(f"{path} is not an export: it has no {MANIFEST}")
        if (size := (path / MANIFEST).stat().st_size) > MAX_MANIFEST:
            raise damage(MANIFEST, f"{size} bytes are no manifest: at most {MAX_MANIFEST}")
        content = (path / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise StorageError(f"{path} is not an export: it has no {MANIFEST}") from None
    try:
        manifest = Manifest.decode(content)
        Mmr(manifest.from_seq - 1, manifest.peaks_before)
    except VeenError as exc:
        raise damage(MANIFEST, str(exc)) from exc
    if not 1 <= manifest.from_seq <= manifest.to_seq:
        raise damage(MANIFEST, f"a range of {manifest.from_seq} to {manifest.to_seq}")
    if any(a.name >= b.name for a, b in pairwise(manifest.files)):
        raise damage(MANIFEST, "files are not in ascending order of names")
    return manifest


def _check_files(path: Path, manifest: Manifest) -> None:
    there = {entry.name for entry in path.iterdir()} - {SIGNATURE}
    listed = {file.name for file in manifest.files} | {MANIFEST}
    for name in sorted(listed - there) + [name for name in IDENTITY if name not in listed]:
        raise damage(name, "is missing")
    for name in sorted(there - listed):
        raise damage(name, "is not in the manifest")
    for name in sorted(entry.name for entry in path.iterdir() if not entry.is_file()):
        raise damage(name, "is not a file")  # a pipe would keep whoever reads it waiting
    for file in manifest.files:
        _check_file(path / file.name, file)


def _check_file(path: Path, file: ExportedFile) -> None:
    size, digest = 0, sha256()
    with path.open("rb") as content:
        while part := content.read(1_048_576):
            size += len(part)
            digest.update(part)
    if size != file.size:
        raise damage(file.name, f"has {size} bytes, the manifest says {file.size}", min(size, file.size))
    if digest.digest() != file.digest:
        raise damage(file.name, "does not match its hash in the manifest")


def _read_identity(path: Path, pinned: HubId) -> tuple[HubIdentity, Registry]:
    record, signature, key_map, registry_name = IDENTITY
    try:
        identity = HubIdentity.decode((path / record).read_bytes())
        hub_identity.verify_identity(identity, pinned=pinned)
    except VeenError as exc:
        raise damage(record, str(exc)) from exc
    try:
        signed = Signature((path / signature).read_bytes())
        hub_identity.verify_identity_signature(identity, signed)
    except VeenError as exc:
        raise damage(signature, str(exc)) from exc
    if (path / key_map).read_bytes() != encode_key_map(identity):
        raise damage(key_map, f"does not match {record}")
    try:
        registry = Registry.decode((path / registry_name).read_bytes())
    except VeenError as exc:
        raise damage(registry_name, str(exc)) from exc
    if registry.hub_id != pinned:
        raise damage(registry_name, f"is of hub {registry.hub_id.hex()}")
    return identity, registry


def _check_signature(path: Path, identity: HubIdentity) -> bool:
    """Whether the hub signed the manifest: by any of its keys, each of which the identity endorses (§8.4)."""
    try:
        signature = Signature(read_small(path / SIGNATURE))
    except FileNotFoundError:
        return False
    except VeenError as exc:
        raise damage(SIGNATURE, str(exc)) from exc
    digest = manifest_digest((path / MANIFEST).read_bytes())
    for key in identity.hub_keys:
        try:
            verify(key.hub_pk, digest, signature, "manifest.sig ADR 0008")
        except VerificationError:
            continue
        return True
    raise damage(SIGNATURE, f"no key of the hub made it for this {MANIFEST}")
