"""The verifier of an exported range: core's ``LogVerifier``, whose errors name file and offset here.

Every rule of entries and checkpoints is core's. This module adds the rules of the manifest: the receipt
before the range, its times and peaks, the pruned ranges, and the later checkpoint. Memory does not grow with
the export.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from veen_core import checkpoint, consistency, hub_identity, stream
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import PrunedEntry
from veen_core.entry import Entry
from veen_core.errors import CheckpointError, InvariantError, VeenError
from veen_core.export import MANIFEST, Manifest, PrunedRange
from veen_core.hub_identity import HubIdentity
from veen_core.ids import Label, MmrRoot, StreamSeq, UnixTime
from veen_core.log_rules import POSITION, LogTerms
from veen_core.log_verifier import HubSignatures, LogVerifier
from veen_core.mmr import Mmr
from veen_core.signatures import SignatureClaim, invalid_signatures
from veen_core.tlog.tree_head import SignedHead
from veen_storage.copies.export.sequence import damaged, note_pruned
from veen_storage.disk.registry import Registry

MAX_UNVERIFIED: Final = 1_024
"""Signatures that are verified together."""
MAX_WRITERS: Final = 65_536
"""Writers whose client_seq is followed; beyond that, ``VerifiedExport.followed_all`` is False."""


@dataclass(frozen=True, slots=True)
class VerifiedExport:
    """The facts that a verified export proves."""

    manifest: Manifest
    identity: HubIdentity
    entries: int
    pruned: int
    checkpoints: int
    mmr_root: MmrRoot
    """Root at ``to_seq``, signed by the hub in the last RECEIPT."""
    followed_all: bool
    """Whether client_seq of every writer and every token was followed; False beyond ``MAX_WRITERS``."""
    signed: bool = False
    """Whether the hub signed the manifest, and so the registry, the checkpoints and ``later`` too."""
    hub_checkpoint: SignedHead | None = None
    """A hub checkpoint that commits to the whole range; None if none did when the export was made."""


class KnownRoots(Protocol):
    """Roots of the label that are known from elsewhere, such as from the hub log."""

    def check(self, label: Label, seq: StreamSeq, root: MmrRoot, hub_ts: UnixTime) -> None:
        """Raise ``VerificationError`` if the root after this entry contradicts a known one."""


class RangeVerifier:
    """Verifies the entries and checkpoints of an export in order."""

    def __init__(
        self,
        manifest: Manifest,
        identity: HubIdentity,
        registry: Registry,
        roots: KnownRoots | None = None,
    ) -> None:
        self.manifest = manifest
        self._roots = roots
        self.registry = registry
        self._terms = LogTerms(
            label=manifest.label, identity=identity, profile=registry.profile, limits=registry.limits
        )
        self._check_before(identity)
        self._log = LogVerifier(
            self._terms,
            size=manifest.from_seq - 1,
            peaks=manifest.peaks_before,
            hub_ts=manifest.before.hub_ts if manifest.before is not None else None,
            max_writers=MAX_WRITERS,
        )
        self._claims: list[SignatureClaim] = []
        """Signatures of accepted entries that are not verified yet."""
        self._places: list[tuple[str, str, int]] = []
        """Name of the entry, file and offset for each of them."""
        self._signatures = HubSignatures(self._terms, later=self._claims)
        self._pruned: list[PrunedRange] = []
        self._checkpoints = 0

    @property
    def tree(self) -> Mmr:
        """The tree of the label after the last accepted entry."""
        assert self._log.tree is not None
        return self._log.tree

    def _check_before(self, identity: HubIdentity) -> None:
        manifest, before = self.manifest, self.manifest.before
        if (before is None) != (manifest.from_seq == 1):
            raise damaged(MANIFEST, "the field before must be present if and only if from_seq is not 1")
        if before is None:
            return
        try:
            hub_identity.verify_receipt(identity, before)
        except VeenError as exc:
            raise damaged(MANIFEST, f"the field before: {exc}") from exc
        tree = Mmr(manifest.from_seq - 1, manifest.peaks_before)
        if (before.label, before.stream_seq, before.mmr_root) != (manifest.label, tree.stream_seq, tree.root):
            raise damaged(MANIFEST, "the field before is not the RECEIPT at from_seq - 1")

    @contextmanager
    def verifying(self) -> Iterator[None]:
        """Verify the signatures that are left when the block ends.

        If the block raises, an invalid signature of an entry before the fault is raised instead.
        """
        failure: VeenError | OSError | None = None
        try:
            yield
        except (VeenError, OSError) as exc:
            failure = exc
        self._verify_signatures()
        if failure is not None:
            raise failure

    def accept(self, entry: Entry | PrunedEntry, where: str, offset: int) -> None:
        """Verify the next entry, whole or pruned; its signatures later, within ``verifying``."""
        if isinstance(entry, PrunedEntry):
            seq, name = entry.receipt.stream_seq, f"pruned entry {entry.receipt.stream_seq}"
        else:
            seq, name = entry.stream_seq, f"entry {entry.stream_seq}"
        try:
            if isinstance(entry, PrunedEntry):
                step = self._log.accept_pruned(entry, self._signatures)
            else:
                step = self._log.accept(entry, self._signatures)
            if seq == self.manifest.from_seq and step.hub_ts != self.manifest.from_ts:
                raise InvariantError("from_ts", f"hub_ts {step.hub_ts} is not the manifest's from_ts")
            if self._roots is not None:
                self._roots.check(self.manifest.label, seq, step.mmr_root, step.hub_ts)
        except VeenError as exc:
            raise damaged(where, f"{name}: {exc}", offset) from exc
        finally:
            self._places += [(name, where, offset)] * (len(self._claims) - len(self._places))
        if isinstance(entry, PrunedEntry):
            note_pruned(self._pruned, seq)
        if len(self._claims) >= MAX_UNVERIFIED:
            self._verify_signatures()

    def _verify_signatures(self) -> None:
        """Verify the signatures of the entries accepted so far."""
        claims, places = self._claims.copy(), self._places.copy()
        self._claims.clear()
        self._places.clear()
        if invalid := invalid_signatures(claims):
            name, where, offset = places[invalid[0]]
            refusal = claims[invalid[0]].refusal()
            raise damaged(where, f"{name}: {refusal}", offset) from refusal

    def checkpoint(self, made: Checkpoint, where: str, offset: int) -> None:
        """Verify a checkpoint of the log up to the last accepted entry."""
        self._verify_signatures()
        try:
            self._log.accept_checkpoint(made)
        except VeenError as exc:
            raise damaged(where, f"checkpoint at {made.upto_seq}: {exc}", offset) from exc
        self._checkpoints += 1

    def conclude(self) -> VerifiedExport:
        """Check the manifest's fields about the end of the range, and return the result."""
        self._verify_signatures()  # ``verifying`` has left none, unless the caller did not use it
        manifest, tree = self.manifest, self.tree
        if tree.stream_seq != manifest.to_seq:
            raise damaged(MANIFEST, f"to_seq is {manifest.to_seq}, but the last entry is {tree.size}")
        if tree.peaks != manifest.peaks_after or self._log.hub_ts != manifest.to_ts:
            raise damaged(MANIFEST, "peaks_after or to_ts does not match the last entry")
        if tuple(self._pruned) != manifest.pruned:
            raise damaged(MANIFEST, "the field pruned does not list exactly the pruned entries")
        self._check_later()
        return VerifiedExport(
            manifest,
            self._terms.identity,
            entries=manifest.to_seq - manifest.from_seq + 1,
            pruned=sum(gone.end_seq - gone.start_seq + 1 for gone in self._pruned),
            checkpoints=self._checkpoints,
            mmr_root=tree.root,
            followed_all=self._log.followed_all,
        )

    def _check_later(self) -> None:
        """Check the later checkpoint: its position, its consistency with the range, its epoch, its signature.

        The entries before it are not in the export, so its epoch is only checked to be no earlier than that
        of the last entry.
        """
        if (later := self.manifest.later) is None:
            return
        made, proof, epoch_sec = later.checkpoint, later.consistency, self.registry.profile.epoch_sec
        try:
            if (proof.from_seq, proof.to_seq) != (self.tree.size, made.upto_seq):
                what = "the consistency proof does not lead from to_seq to the checkpoint"
                raise POSITION.broken(what, made.upto_seq)
            if made.label_curr != self.manifest.label:
                raise CheckpointError("label_curr is not the label of the export")
            consistency.verify_consistency(proof, self.tree.root, made.mmr_root)
            if made.epoch < stream.epoch_at(self.manifest.to_ts, epoch_sec):
                raise CheckpointError(
                    f"epoch {made.epoch} is before the epoch of entry to_seq (RESOLUTIONS H9)"
                )
            if not epoch_sec:
                checkpoint.check_epoch(made, epoch_sec, self.manifest.to_ts)
            if made.rotates and (self._log.checkpointed or not epoch_sec):
                raise CheckpointError(
                    "label_prev differs from label_curr after the label's first checkpoint (H9)"
                )
            HubSignatures(self._terms).check_checkpoint(made)
        except VeenError as exc:
            raise damaged(MANIFEST, f"the field later: {exc}") from exc


IndexedItem = tuple[int, bytes, StreamSeq]
"""Offset of an item, its bytes, and the entry it is about."""


class CheckpointQueue:
    """The checkpoints of an export in order, each verified when the tree has grown to it."""

    def __init__(
        self,
        made: Iterator[IndexedItem],
        verifier: RangeVerifier,
        name: Callable[[StreamSeq], str],
    ) -> None:
        """``name`` says which file holds the checkpoint at an entry."""
        self._made = made
        self._verifier = verifier
        self._name = name
        self._next = next(made, None)

    def verify_due(self) -> None:
        """Verify the checkpoints at the last accepted entry."""
        while self._next is not None and self._next[2] == self._verifier.tree.size:
            offset, content, upto = self._next
            where = self._name(upto)
            try:
                made = Checkpoint.decode(content)
            except VeenError as exc:
                raise damaged(where, str(exc), offset) from exc
            self._verifier.checkpoint(made, where, offset)
            self._next = next(self._made, None)

    def check_empty(self) -> None:
        """Raise if a checkpoint is left that belongs to no entry of the range."""
        if self._next is not None:
            offset, _content, upto = self._next
            raise damaged(self._name(upto), f"the checkpoint at {upto} is outside the range", offset)
