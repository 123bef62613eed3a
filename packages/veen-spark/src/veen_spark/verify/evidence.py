"""What lies beside a log and says how to judge it: the hub's identity, the registry, peaks, the manifest.

None of it is believed: an identity chains to its hub_id (§8.4), which the verifier pins or is shown; peaks
are claims that the next receipt's signed root must confirm (§5.1). The registry tells the limits and the
profile; of an export, the hub vouches for it only by manifest.sig.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from veen_core import hub_identity
from veen_core.chunk import decode_peaks, peaks_name
from veen_core.errors import IdentityError, VeenError, VerificationError
from veen_core.export import MANIFEST, SIGNATURE, Manifest, manifest_digest
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Label, NodeHash, ProfileId, Signature, StreamSeq
from veen_core.keys import verify
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.mmr import Mmr
from veen_core.registry import Registry
from veen_spark.log_files import IDENTITY, read_manifest

Peaks = tuple[NodeHash, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the entries of one origin are judged by; travels to the executors."""

    identity: HubIdentity
    limits: Limits
    profile_id: ProfileId | None
    """The only one that MSGs may have (I4); None where no registry says."""


class Origin:
    """A folder of logs, and the evidence in it. Raises ``VerificationError`` if that does not hold."""

    def __init__(self, folder: str, pinned: Collection[HubId], given: HubIdentity | None) -> None:
        self.folder = Path(folder)
        self._home = self.folder.parent if self.folder.name == "log" else self.folder
        self.terms = Terms(
            identity=self._identity(pinned, given), limits=self._registry()[0], profile_id=self._registry()[1]
        )
        self.manifest = self._manifest()
        self.signed = self._check_manifest()

    def _identity(self, pinned: Collection[HubId], given: HubIdentity | None) -> HubIdentity:
        path = self._home / IDENTITY
        if not path.is_file():
            if given is None:
                raise IdentityError(f"no {IDENTITY} lies beside {self.folder}: give the hub's identity")
            return given
        identity = HubIdentity.decode(path.read_bytes())
        hub_identity.verify_identity(identity)
        signature = Signature(path.with_suffix(".sig").read_bytes())
        hub_identity.verify_identity_signature(identity, signature)
        if pinned and identity.hub_id not in pinned:
            raise IdentityError(f"{path} is of hub {identity.hub_id.hex()}, which is not pinned")
        return identity

    def _registry(self) -> tuple[Limits, ProfileId | None]:
        try:
            registry = Registry.decode((self._home / "registry.cbor").read_bytes())
        except FileNotFoundError:
            return DEFAULT_LIMITS, None
        return registry.limits, registry.profile.profile_id

    def _manifest(self) -> Manifest | None:
        return read_manifest(self.folder) if (self.folder / MANIFEST).is_file() else None

    def _check_manifest(self) -> bool:
        """Whether the hub vouches for the manifest; what it says of the range must hold either way."""
        if (manifest := self.manifest) is None:
            return False
        if manifest.hub_id != self.terms.identity.hub_id:
            raise VerificationError(f"{MANIFEST}: is of another hub than the identity beside it")
        before = manifest.before
        if (before is None) != (manifest.from_seq == 1):
            raise VerificationError(
                f"{MANIFEST}: before is there if and only if the range does not start at 1"
            )
        if before is not None:
            hub_identity.verify_receipt(self.terms.identity, before)
            tree = Mmr(manifest.from_seq - 1, manifest.peaks_before)
            if (before.label, before.stream_seq, before.mmr_root) != (manifest.label, tree.size, tree.root):
                raise VerificationError(f"{MANIFEST}: before is not the RECEIPT that peaks_before lead to")
        return self._is_signed()

    def _is_signed(self) -> bool:
        path = self.folder / SIGNATURE
        if not path.is_file():
            return False
        digest = manifest_digest((self.folder / MANIFEST).read_bytes())
        signature = Signature(path.read_bytes())
        for key in self.terms.identity.hub_keys:
            try:
                verify(key.hub_pk, digest, signature, SIGNATURE)
            except VerificationError:
                continue
            return True
        raise VerificationError(f"{SIGNATURE}: no key of the hub made it for this {MANIFEST}")

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
