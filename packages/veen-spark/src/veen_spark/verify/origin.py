"""What lies beside a log and says how to judge it: the hub's identity, the registry, peaks, the manifest.

None of it is believed: an identity chains to its hub_id (§8.4), which the verifier pins or is shown; peaks
are claims that the next receipt's signed root must confirm (§5.1). The registry tells the limits and the
profile; of an export, the hub vouches for it only by manifest.sig.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Final, NamedTuple

from veen_core import hub_identity
from veen_core.chunk import decode_peaks, peaks_name
from veen_core.consistency import verify_consistency
from veen_core.errors import IdentityError, InvariantError, VeenError, VerificationError
from veen_core.export import (
    MANIFEST,
    PAYLOADS,
    RECEIPTS,
    SIGNATURE,
    Manifest,
    manifest_digest,
    sequence_name,
)
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Label, NodeHash, ProfileId, Signature, StreamSeq
from veen_core.keys import verify
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.mmr import Mmr
from veen_core.registry import Registry
from veen_spark.errors import DamagedLog
from veen_spark.read.log_files import IDENTITY, VERSION, read_manifest

Peaks = tuple[NodeHash, ...]
Gone = list[tuple[int, int]]
"""Ranges of entries that retention took, first and last of each; none touches the next."""
REGISTRY: Final = "registry.cbor"
_ENTRIES: Final = (".log", ".pruned")
_JUDGED: Final = (
    *("chunk-", "peaks-", "checkpoint-", "hub-identity."),
    *(sequence_name(stem) for stem in (RECEIPTS, PAYLOADS)),
)
"""Files that are judged by what they say, with a reason and a place; the others by their hash. So are those
with what retention left: of a MSG that is gone no signature holds the fields that are not in its leaf."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the entries of one origin are judged by; travels to the executors."""

    identity: HubIdentity
    limits: Limits
    profile_id: ProfileId | None
    """The only one that MSGs may have (I4); None where no registry says."""
    epoch_sec: int = 0
    """Of the profile: which keys may have signed a checkpoint (§8.4)."""


class Extent(NamedTuple):
    """How a label begins and ends, and what retention took of it."""

    from_seq: int
    to_seq: int
    from_ts: int
    to_ts: int
    peaks: Peaks
    """After the last entry."""
    pruned: Gone


@contextmanager
def _of(path: Path) -> Iterator[None]:
    """Whatever does not hold in here is the fault of this file, unless another was named."""
    try:
        yield
    except DamagedLog:
        raise
    except (VeenError, OSError) as exc:
        reason = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
        raise DamagedLog(str(path), 0, reason) from exc


def _is_judged(name: str, manifest: Manifest) -> bool:
    left = name.endswith(".pruned") or (name == sequence_name(PAYLOADS) and manifest.pruned)
    return name.startswith(_JUDGED) and not left


def _check_file(path: Path, expected: bytes) -> None:
    with path.open("rb") as content:
        digest = file_digest(content, "sha256").digest()
    if digest != expected:
        raise VerificationError(f"is not the file that {MANIFEST} names")


class Origin:
    """A folder of logs, and the evidence in it; if that does not hold, ``DamagedLog`` names the file."""

    def __init__(self, folder: str, pinned: Collection[HubId], given: HubIdentity | None) -> None:
        self.folder = Path(folder)
        self._home = self.folder.parent if self.folder.name == "log" else self.folder
        self.begins = 1 if (self._home / VERSION).is_file() else None
        """The entry that every label here has to begin with, if that is known: in a data directory."""
        with _of(self._home / IDENTITY):
            identity = self._identity(pinned, given)
        with _of(self._home / REGISTRY):
            self.terms = self._terms(identity)
        with _of(self.folder / MANIFEST):
            self.manifest = self._manifest()
            self.signed = self._check_manifest()
        """Whether the hub vouches for the manifest; None where there is none."""

    def _identity(self, pinned: Collection[HubId], given: HubIdentity | None) -> HubIdentity:
        path = self._home / IDENTITY
        if not path.is_file():
            if given is None:
                raise IdentityError(f"no {IDENTITY} lies beside {self.folder}: give the hub's identity")
            return self._pinned(given, pinned, "the identity that was given")
        identity = HubIdentity.decode(path.read_bytes())
        hub_identity.verify_identity(identity)
        with _of(path.with_suffix(".sig")):
            signature = Signature(path.with_suffix(".sig").read_bytes())
            hub_identity.verify_identity_signature(identity, signature)
        if given is not None and given.hub_id != identity.hub_id:
            raise IdentityError(f"{path} is of another hub than the identity that was given")
        return self._pinned(identity, pinned, str(path))

    @staticmethod
    def _pinned(identity: HubIdentity, pinned: Collection[HubId], what: str) -> HubIdentity:
        if pinned and identity.hub_id not in pinned:
            raise IdentityError(f"{what} is of hub {identity.hub_id.hex()}, which is not pinned")
        return identity

    def _terms(self, identity: HubIdentity) -> Terms:
        try:
            registry = Registry.decode((self._home / REGISTRY).read_bytes())
        except FileNotFoundError:
            if self.begins is not None:
                raise VerificationError("is missing: this is no whole data directory") from None
            return Terms(identity=identity, limits=DEFAULT_LIMITS, profile_id=None)
        if registry.hub_id != identity.hub_id:
            raise VerificationError("is of another hub than the identity beside it")
        profile = registry.profile
        return Terms(
            identity=identity,
            limits=registry.limits,
            profile_id=profile.profile_id,
            epoch_sec=profile.epoch_sec,
        )

    def _manifest(self) -> Manifest | None:
        return read_manifest(self.folder) if (self.folder / MANIFEST).is_file() else None

    def _check_manifest(self) -> bool | None:
        """Whether the hub vouches for the manifest; what it says of the range must hold either way."""
        if (manifest := self.manifest) is None:
            return None
        if manifest.hub_id != self.terms.identity.hub_id:
            raise VerificationError("is of another hub than the identity beside it")
        self._check_files(manifest)
        before = manifest.before
        if (before is None) != (manifest.from_seq == 1):
            raise VerificationError("before is there if and only if the range does not start at 1")
        if before is not None:
            hub_identity.verify_receipt(self.terms.identity, before)
            tree = Mmr(manifest.from_seq - 1, manifest.peaks_before)
            if (before.label, before.stream_seq, before.mmr_root) != (manifest.label, tree.size, tree.root):
                raise VerificationError("before is not the RECEIPT that peaks_before lead to")
        return self._is_signed()

    def _check_files(self, manifest: Manifest) -> None:
        """None is missing and none too many; of missing entries the judge says which they are."""
        there = {entry.name for entry in os.scandir(self.folder)} - {MANIFEST, SIGNATURE}
        listed = {file.name for file in manifest.files}
        for name in sorted(there - listed):
            raise DamagedLog(str(self.folder / name), 0, f"is not in {MANIFEST}")
        for name in sorted(listed - there):
            if not name.endswith(_ENTRIES):
                raise DamagedLog(str(self.folder / name), 0, f"is missing, {MANIFEST} names it")
        for file in manifest.files:
            if file.name in there and not _is_judged(file.name, manifest):
                with _of(self.folder / file.name):
                    _check_file(self.folder / file.name, file.digest)

    def check_extent(self, label: Label, found: Extent) -> None:
        """A label that holds by itself is also all that the folder promises of it; raises."""
        if (manifest := self.manifest) is None:
            return
        if label != manifest.label:
            raise VerificationError(f"is of another label than {MANIFEST}")
        if found[:2] != (manifest.from_seq, manifest.to_seq):
            there, promised = f"{found[0]} to {found[1]}", f"{manifest.from_seq} to {manifest.to_seq}"
            raise VerificationError(f"entries {there} are there, where {MANIFEST} promises {promised}")
        gone = [(range_.start_seq, range_.end_seq) for range_ in manifest.pruned]
        if found[2:] != (manifest.from_ts, manifest.to_ts, manifest.peaks_after, gone):
            what = "from_ts, to_ts, peaks_after or pruned"
            raise VerificationError(f"{MANIFEST}: {what} are not those of the log")
        if manifest.before is not None and found.from_ts < manifest.before.hub_ts:
            raise InvariantError("H3", f"hub_ts {found.from_ts} follows {manifest.before.hub_ts}")
        self._check_later(manifest, found)

    def _check_later(self, manifest: Manifest, found: Extent) -> None:
        """What the export says of the label after its end leads there from it."""
        if (later := manifest.later) is None:
            return
        made, proof = later.checkpoint, later.consistency
        if (proof.from_seq, proof.to_seq, made.label_curr) != (found.to_seq, made.upto_seq, manifest.label):
            raise VerificationError(f"{MANIFEST}: later is not of this label, or not from its end on")
        verify_consistency(proof, Mmr(found.to_seq, found.peaks).root, made.mmr_root)
        hub_identity.verify_checkpoint(self.terms.identity, made, self.terms.epoch_sec)

    def _is_signed(self) -> bool:
        path = self.folder / SIGNATURE
        if not path.is_file():
            return False
        digest = manifest_digest((self.folder / MANIFEST).read_bytes())
        with _of(path):
            signature = Signature(path.read_bytes())
            for key in self.terms.identity.hub_keys:
                try:
                    verify(key.hub_pk, digest, signature, SIGNATURE)
                except VerificationError:
                    continue
                return True
            raise VerificationError(f"no key of the hub made it for this {MANIFEST}")

    def peaks_before(self, label: Label, start_seq: int) -> Peaks | None:
        """The peaks of the tree before an entry, if anything claims to know them."""
        if start_seq == 1:
            return ()
        if self.manifest is not None and (self.manifest.label, self.manifest.from_seq) == (label, start_seq):
            return self.manifest.peaks_before
        try:
            peaks = decode_peaks((self.folder / peaks_name(label, StreamSeq(start_seq - 1))).read_bytes())
        except FileNotFoundError:
            return None
        except VeenError:
            return None  # as good as none: the tree is computed instead
        return peaks if len(peaks) == (start_seq - 1).bit_count() else None
