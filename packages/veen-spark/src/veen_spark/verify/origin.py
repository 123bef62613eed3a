"""The folder of a log and the files in it that verification depends on.

These are the hub's identity, the registry, the manifest and the peaks. None of them is trusted: the identity
must chain to its hub_id (core §8.4), which the auditor pins or is shown; peaks must lead to the next signed
root (core §5.1). The registry states limits and profile; for an export, only manifest.sig vouches for it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import Final, NamedTuple

from veen_core import hub_identity
from veen_core.chunk import decode_peaks, peaks_name
from veen_core.consistency import verify_consistency
from veen_core.errors import IdentityError, VeenError, VerificationError
from veen_core.export import (
    MANIFEST,
    PAYLOADS,
    RECEIPTS,
    SIGNATURE,
    Manifest,
    manifest_digest,
    sequence_name,
)
from veen_core.hub_export import HUB_HEAD, HubHead, verify_hub_head
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Label, NodeHash, Signature, StreamSeq
from veen_core.keys import verify
from veen_core.log_rules import TIME, LogTerms
from veen_core.mmr import Mmr
from veen_core.registry import Registry
from veen_spark.errors import DamagedLog
from veen_spark.read.log_files import IDENTITY, VERSION, home_of, read_manifest

Peaks = tuple[NodeHash, ...]
PrunedRanges = list[tuple[int, int]]
"""Ranges of pruned entries, first and last of each; adjacent ranges are joined."""
REGISTRY: Final = "registry.cbor"
_ENTRY_SUFFIXES: Final = (".log", ".pruned")
_VERIFIED_BY_CONTENT: Final = (
    *("chunk-", "peaks-", "checkpoint-", "hub-identity."),
    *(sequence_name(stem) for stem in (RECEIPTS, PAYLOADS)),
)
"""Prefixes of the files whose content is verified, so that their hash in the manifest need not be checked.
The hash is checked for all other files and for files with pruned entries, because no signature covers
prev_ack and auth_ref of a pruned MSG."""


class LabelExtent(NamedTuple):
    """The entries of a label that were found: first and last entry, their times, peaks and pruned ranges."""

    from_seq: int
    to_seq: int
    from_ts: int
    to_ts: int
    peaks: Peaks
    """The peaks after the last entry."""
    pruned: PrunedRanges


@contextmanager
def blame(path: Path) -> Iterator[None]:
    """Convert errors to a ``DamagedLog`` that names this file, unless they name a file already."""
    try:
        yield
    except DamagedLog:
        raise
    except (VeenError, OSError) as exc:
        reason = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
        raise DamagedLog(str(path), 0, reason) from exc


def _is_verified_by_content(name: str, manifest: Manifest) -> bool:
    pruned = name.endswith(".pruned") or (name == sequence_name(PAYLOADS) and manifest.pruned)
    return name.startswith(_VERIFIED_BY_CONTENT) and not pruned


def _check_file(path: Path, expected: bytes) -> None:
    with path.open("rb") as content:
        digest = file_digest(content, "sha256").digest()
    if digest != expected:
        raise VerificationError(f"the SHA-256 of the file differs from the one in {MANIFEST}")


def read_identity(home: Path, pinned: Collection[HubId], given: HubIdentity | None) -> HubIdentity:
    """Return the verified identity in a folder, or the given one; raise unless it is that of a pinned hub."""
    path = home / IDENTITY
    if not path.is_file():
        if given is None:
            raise IdentityError(f"{home} has no {IDENTITY}", action="give the hub's identity with --identity")
        return _check_pinned(given, pinned, "the given identity")
    identity = HubIdentity.decode(path.read_bytes())
    hub_identity.verify_identity(identity)
    with blame(path.with_suffix(".sig")):
        signature = Signature(path.with_suffix(".sig").read_bytes())
        hub_identity.verify_identity_signature(identity, signature)
    if given is not None and given.hub_id != identity.hub_id:
        raise IdentityError(f"{path} belongs to another hub than the given identity")
    return _check_pinned(identity, pinned, str(path))


def _check_pinned(identity: HubIdentity, pinned: Collection[HubId], what: str) -> HubIdentity:
    if pinned and identity.hub_id not in pinned:
        raise IdentityError(f"{what} belongs to hub {identity.hub_id.hex()}, which is not pinned")
    return identity


class LogOrigin:
    """A folder of logs with its verified identity, registry and manifest.

    The constructor raises ``DamagedLog`` for the file that does not verify.
    """

    def __init__(self, folder: str, pinned: Collection[HubId], given: HubIdentity | None) -> None:
        self.folder = Path(folder)
        self.home = home_of(self.folder)
        """The folder that has the hub's identity and registry."""
        self.first_seq = 1 if (self.home / VERSION).is_file() else None
        """The first entry that every label must have: 1 in a data directory, else None."""
        with blame(self.home / IDENTITY):
            identity = read_identity(self.home, pinned, given)
        with blame(self.home / REGISTRY):
            self._registry = self._read_registry(identity)
        self.identity = identity
        with blame(self.folder / MANIFEST):
            self.manifest = self._manifest()
            self.signed = self._check_manifest()  # None without a manifest

    def _read_registry(self, identity: HubIdentity) -> Registry | None:
        """Return the registry, or None if there is none; a data directory must have one."""
        try:
            registry = Registry.decode((self.home / REGISTRY).read_bytes())
        except FileNotFoundError:
            if self.first_seq is not None:
                raise VerificationError("the file is missing, so the data directory is incomplete") from None
            return None
        if registry.hub_id != identity.hub_id:
            raise VerificationError(f"the hub_id differs from the one in {IDENTITY}")
        return registry

    @property
    def _epoch_sec(self) -> int:
        return self._registry.profile.epoch_sec if self._registry is not None else 0

    def terms(self, label: Label) -> LogTerms:
        """Return the identity and rules by which the entries of a label are verified."""
        if (registry := self._registry) is None:
            return LogTerms(label=label, identity=self.identity)
        return LogTerms(label=label, identity=self.identity, profile=registry.profile, limits=registry.limits)

    def _manifest(self) -> Manifest | None:
        return read_manifest(self.folder) if (self.folder / MANIFEST).is_file() else None

    def _check_manifest(self) -> bool | None:
        """Verify the manifest; return whether the hub signed it, or None if there is no manifest."""
        if (manifest := self.manifest) is None:
            return None
        if manifest.hub_id != self.identity.hub_id:
            raise VerificationError(f"the hub_id differs from the one in {IDENTITY}")
        self._check_files(manifest)
        before = manifest.before
        if (before is None) != (manifest.from_seq == 1):
            raise VerificationError(
                "the field `before` must be present if and only if from_seq is greater than 1"
            )
        if before is not None:
            hub_identity.verify_receipt(self.identity, before)
            tree = Mmr(manifest.from_seq - 1, manifest.peaks_before)
            if (before.label, before.stream_seq, before.mmr_root) != (manifest.label, tree.size, tree.root):
                raise VerificationError("the field `before` is not the RECEIPT that belongs to peaks_before")
        return self._is_signed()

    def _check_files(self, manifest: Manifest) -> None:
        """Raise for missing, unlisted and changed files.

        A missing file of entries is not an error here: ``missing_entries`` reports its entries.
        """
        there = {entry.name for entry in os.scandir(self.folder)} - {MANIFEST, SIGNATURE}
        listed = {file.name for file in manifest.files}
        for name in sorted(there - listed):
            raise DamagedLog(str(self.folder / name), 0, f"{MANIFEST} does not list the file")
        for name in sorted(listed - there):
            if not name.endswith(_ENTRY_SUFFIXES):
                raise DamagedLog(
                    str(self.folder / name), 0, f"the file is missing, although {MANIFEST} lists it"
                )
        for file in manifest.files:
            if file.name in there and not _is_verified_by_content(file.name, manifest):
                with blame(self.folder / file.name):
                    _check_file(self.folder / file.name, file.digest)

    def check_extent(self, label: Label, found: LabelExtent) -> None:
        """Raise unless the label is exactly the range that the manifest states."""
        if (manifest := self.manifest) is None:
            return
        if label != manifest.label:
            raise VerificationError(f"the label differs from the one in {MANIFEST}")
        if found[:2] != (manifest.from_seq, manifest.to_seq):
            found_range, stated = f"{found[0]} to {found[1]}", f"{manifest.from_seq} to {manifest.to_seq}"
            raise VerificationError(f"the log has entries {found_range}, but {MANIFEST} states {stated}")
        pruned = [(range_.start_seq, range_.end_seq) for range_ in manifest.pruned]
        if found[2:] != (manifest.from_ts, manifest.to_ts, manifest.peaks_after, pruned):
            what = "from_ts, to_ts, peaks_after or pruned"
            raise VerificationError(f"{MANIFEST}: {what} differ from the log")
        if manifest.before is not None and found.from_ts < manifest.before.hub_ts:
            found_ts = f"hub_ts goes back from {manifest.before.hub_ts} to {found.from_ts}"
            raise TIME.broken(found_ts, found.from_seq)
        self._check_later(manifest, found)
        self._check_hub_head(manifest, found)

    def _check_later(self, manifest: Manifest, found: LabelExtent) -> None:
        """Raise unless ``later``, a checkpoint after the range, is consistent with the end of the range."""
        if (later := manifest.later) is None:
            return
        made, proof = later.checkpoint, later.consistency
        if (proof.from_seq, proof.to_seq, made.label_curr) != (found.to_seq, made.upto_seq, manifest.label):
            raise VerificationError(
                f"{MANIFEST}: the field `later` names another label or does not begin at the end of the range"
            )
        verify_consistency(proof, Mmr(found.to_seq, found.peaks).root, made.mmr_root)
        hub_identity.verify_checkpoint(self.identity, made, self._epoch_sec)

    def _check_hub_head(self, manifest: Manifest, found: LabelExtent) -> None:
        """Raise unless hub-head.cbor, if there is one, proves that the hub log covers the last entry."""
        path = self.folder / HUB_HEAD
        if all(file.name != HUB_HEAD for file in manifest.files):
            return
        with blame(path):
            head, end = HubHead.decode(path.read_bytes()), Mmr(found.to_seq, found.peaks)
            verify_hub_head(head, self.identity, manifest.label, end.stream_seq, end.root)

    def _is_signed(self) -> bool:
        """Return whether there is a valid manifest.sig; raise for an invalid one."""
        path = self.folder / SIGNATURE
        if not path.is_file():
            return False
        digest = manifest_digest((self.folder / MANIFEST).read_bytes())
        with blame(path):
            signature = Signature(path.read_bytes())
            for key in self.identity.hub_keys:
                try:
                    verify(key.hub_pk, digest, signature, SIGNATURE)
                except VerificationError:
                    continue
                return True
            raise VerificationError(f"no key of the hub signed this {MANIFEST}")

    def peaks_before(self, label: Label, start_seq: int) -> Peaks | None:
        """Return the claimed peaks before an entry, or None if no file has them."""
        if start_seq == 1:
            return ()
        if self.manifest is not None and (self.manifest.label, self.manifest.from_seq) == (label, start_seq):
            return self.manifest.peaks_before
        try:
            peaks = decode_peaks((self.folder / peaks_name(label, StreamSeq(start_seq - 1))).read_bytes())
        except (VeenError, OSError):
            return None  # missing or unreadable: the peaks are computed from the entries instead
        return peaks if len(peaks) == (start_seq - 1).bit_count() else None
