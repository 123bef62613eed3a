"""The judge of an export: a label as it grows, and what must hold of each thing added to it.

Entries are held against the tree so far: §4.8.1, §7 as far as a range allows, §4.3, §5.1; checkpoints
against the tree at their place (§4.4.1). Memory does not grow with the export: of writers' counters and of
tokens, so many are followed as ``FOLLOWED`` says.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from veen_core import cap, checkpoint, consistency, hub_identity, stream
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import PrunedEntry
from veen_core.entry import Entry, verify_authorize
from veen_core.errors import CheckpointError, InvariantError, VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import AuthRef, ClientId, ClientSeq, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.mmr import Mmr
from veen_core.msg import Msg, verify_msg
from veen_core.receipt import Receipt
from veen_storage.copies.export.format import MANIFEST, REMEDY, Manifest, PrunedRange, note_pruned
from veen_storage.disk.registry import Registry
from veen_storage.errors import DamageError

FOLLOWED: Final = 65_536
"""So many writers, and so many tokens, are followed at once; beyond that, those not seen for longest go."""


def damage(name: str, what: str, offset: int | None = None) -> DamageError:
    return DamageError(name, offset, what, REMEDY)


@dataclass(frozen=True, slots=True)
class Verified:
    """What an export that verified establishes."""

    manifest: Manifest
    identity: HubIdentity
    entries: int
    pruned: int
    checkpoints: int
    mmr_root: MmrRoot
    """At ``to_seq``, signed by the hub in the last RECEIPT."""
    signed: bool = False
    """Whether the hub vouches for the manifest, and so for registry, checkpoints and ``later`` too."""


class Judge:
    """The label as it grows, and what must hold of each thing added to it."""

    def __init__(self, manifest: Manifest, identity: HubIdentity, registry: Registry) -> None:
        self.manifest = manifest
        self.registry = registry
        self.tree = Mmr(manifest.from_seq - 1, manifest.peaks_before)
        self._identity = identity
        self._hub_ts = UnixTime(0)
        self._writers: OrderedDict[ClientId, ClientSeq] = OrderedDict()
        self._all_writers = manifest.from_seq == 1
        self._tokens: OrderedDict[AuthRef, None] = OrderedDict()
        self._pruned: list[PrunedRange] = []
        self._checkpoints = 0
        self._checkpointed = 0
        self._check_before()

    def _check_before(self) -> None:
        before = self.manifest.before
        if (before is None) != (self.manifest.from_seq == 1):
            raise damage(MANIFEST, "before is there if and only if the range does not start at 1")
        if before is None:
            return
        try:
            hub_identity.verify_receipt(self._identity, before)
        except VeenError as exc:
            raise damage(MANIFEST, f"before: {exc}") from exc
        at = (before.label, before.stream_seq, before.mmr_root)
        if at != (self.manifest.label, self.tree.stream_seq, self.tree.root):
            raise damage(MANIFEST, "before is not the RECEIPT that the peaks before the range lead to")
        self._hub_ts = before.hub_ts

    def entry(self, entry: Entry, where: str, offset: int) -> None:
        """One whole entry."""
        try:
            if entry.is_authorize:
                token = verify_authorize(entry)
                cap.verify_token(token, self.registry.limits)
                self._follow_token(token.auth_ref)
                leaf = entry.receipt.leaf_hash
            else:
                msg, leaf = verify_msg(entry.msg_bytes, self.registry.limits)
                self._check_msg(msg)
            self._receipt(entry.receipt, leaf)
        except VeenError as exc:
            raise damage(where, f"entry {entry.stream_seq}: {exc}", offset) from exc

    def pruned(self, kept: PrunedEntry, where: str, offset: int) -> None:
        """What is left of one."""
        seq = kept.receipt.stream_seq
        try:
            self._check_ack(kept.prev_ack)
            self._follow_writer(kept.client_id, kept.client_seq)
            self._receipt(kept.receipt, kept.leaf_hash)
        except VeenError as exc:
            raise damage(where, f"pruned entry {seq}: {exc}", offset) from exc
        note_pruned(self._pruned, seq)

    def _check_msg(self, msg: Msg) -> None:
        if msg.label != self.manifest.label:
            raise InvariantError("I2", "MSG.label is of another label")
        if msg.profile_id != self.registry.profile.profile_id:
            raise InvariantError("I4", "MSG.profile_id is not the registry's")
        self._check_ack(msg.prev_ack)
        self._follow_writer(msg.client_id, msg.client_seq)

    def _check_ack(self, prev_ack: StreamSeq) -> None:
        if prev_ack > self.tree.size:
            raise InvariantError("I6", f"prev_ack {prev_ack} is ahead of the stream's {self.tree.size}")

    def _follow_writer(self, client: ClientId, client_seq: ClientSeq) -> None:
        """I8 and I9, as far as the range and ``FOLLOWED`` reach."""
        last = self._writers.pop(client, None)
        expected = last + 1 if last is not None else 1 if self._all_writers else client_seq
        if client_seq != expected or client_seq < 1:
            raise InvariantError("I9", f"client_seq {client_seq} does not follow {expected - 1}")
        self._writers[client] = client_seq
        if len(self._writers) > FOLLOWED:
            self._writers.popitem(last=False)
            self._all_writers = False

    def _follow_token(self, auth_ref: AuthRef) -> None:
        if auth_ref in self._tokens:
            raise InvariantError("H5", "authorizes a token that was authorized before")
        self._tokens[auth_ref] = None
        if len(self._tokens) > FOLLOWED:
            self._tokens.popitem(last=False)

    def _receipt(self, receipt: Receipt, leaf: LeafHash) -> None:
        if receipt.label != self.manifest.label:
            raise InvariantError("I2", "RECEIPT.label is of another label")
        if receipt.stream_seq != self.tree.size + 1:
            raise InvariantError("I3", f"stream_seq {receipt.stream_seq} follows {self.tree.size}")
        if receipt.leaf_hash != leaf:
            raise InvariantError("I2", "RECEIPT.leaf_hash is not that of the MSG")
        if receipt.hub_ts < self._hub_ts:
            raise InvariantError("H3", f"hub_ts {receipt.hub_ts} follows {self._hub_ts}")
        if receipt.stream_seq == self.manifest.from_seq and receipt.hub_ts != self.manifest.from_ts:
            raise InvariantError("I3", "hub_ts is not the manifest's from_ts")
        self.tree.append(leaf)
        if self.tree.root != receipt.mmr_root:
            raise InvariantError("I3", "mmr_root is not that of the log with this leaf")
        hub_identity.verify_receipt(self._identity, receipt)
        self._hub_ts = receipt.hub_ts

    def checkpoint(self, made: Checkpoint, where: str, offset: int) -> None:
        """One at the present end of the tree."""
        try:
            if made.label_curr != self.manifest.label:
                raise InvariantError("I2", "CHECKPOINT.label_curr is of another label")
            checkpoint.check_transition(made, self.tree)
            if self._checkpoints and made.upto_seq == self._checkpointed:
                raise InvariantError("§4.4.1", "there is one at this place already")
            if made.epoch != (epoch := stream.epoch_at(self._hub_ts, self.registry.profile.epoch_sec)):
                raise CheckpointError(f"epoch {made.epoch} is not {epoch}, the epoch of its last entry (H9)")
            self._check_signers(made)
        except VeenError as exc:
            raise damage(where, f"checkpoint at {made.upto_seq}: {exc}", offset) from exc
        self._checkpoints += 1
        self._checkpointed = made.upto_seq

    def _check_signers(self, made: Checkpoint) -> None:
        """Raise unless label_prev, the hub's signature and the witnesses' hold (core §4.4.1, §8.4, H9).

        Only a label's first checkpoint may name another label_prev. Whether the first checkpoint of a range
        is the label's first cannot be told, unless the range starts at 1 and the checkpoint lies in it.
        """
        epoch_sec = self.registry.profile.epoch_sec
        if made.rotates and (self._checkpoints or not epoch_sec):
            raise CheckpointError("label_prev is another label, and this is not the label's first (H9)")
        hub_identity.verify_checkpoint(self._identity, made, epoch_sec)
        checkpoint.verify_witnesses(made, (), [key.hub_pk for key in self._identity.hub_keys])

    def conclude(self) -> Verified:
        """What must hold once everything was seen."""
        manifest = self.manifest
        if self.tree.stream_seq != manifest.to_seq:
            raise damage(MANIFEST, f"promises entry {manifest.to_seq}, the last one is {self.tree.size}")
        if self.tree.peaks != manifest.peaks_after or self._hub_ts != manifest.to_ts:
            raise damage(MANIFEST, "peaks_after or to_ts are not those after the last entry")
        if tuple(self._pruned) != manifest.pruned:
            raise damage(MANIFEST, "pruned does not list what is pruned")
        self._check_later()
        return Verified(
            manifest,
            self._identity,
            entries=manifest.to_seq - manifest.from_seq + 1,
            pruned=sum(gone.end_seq - gone.start_seq + 1 for gone in self._pruned),
            checkpoints=self._checkpoints,
            mmr_root=self.tree.root,
        )

    def _check_later(self) -> None:
        if (later := self.manifest.later) is None:
            return
        made, proof = later.checkpoint, later.consistency
        try:
            if (proof.from_seq, proof.to_seq) != (self.tree.size, made.upto_seq):
                raise InvariantError("I3", "the proof is not from to_seq to the checkpoint")
            if made.label_curr != self.manifest.label:
                raise InvariantError("I2", "CHECKPOINT.label_curr is of another label")
            consistency.verify_consistency(proof, self.tree.root, made.mmr_root)
            if made.epoch < (epoch := stream.epoch_at(self._hub_ts, self.registry.profile.epoch_sec)):
                raise CheckpointError(f"epoch {made.epoch} is before {epoch}, the epoch of entry to_seq (H9)")
            if made.epoch and not self.registry.profile.epoch_sec:
                raise CheckpointError(f"epoch {made.epoch} of a profile without epochs (H9)")
            self._check_signers(made)
        except VeenError as exc:
            raise damage(MANIFEST, f"later: {exc}") from exc
