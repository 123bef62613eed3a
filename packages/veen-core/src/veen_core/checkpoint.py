"""CHECKPOINT: a signed snapshot of a label's log, and the rules it must obey (§4.4, §4.4.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from veen_core import cbor, stream
from veen_core.errors import CheckpointError, SignatureError
from veen_core.hashing import U64_MAX, Ht
from veen_core.ids import (
    NO_ENTRIES,
    Epoch,
    HubPk,
    Label,
    MmrRoot,
    RoutingKey,
    Signature,
    StreamId,
    StreamSeq,
    UnixTime,
    VerifyKey,
)
from veen_core.keys import SigningKey, verify
from veen_core.mmr import Mmr
from veen_core.wire import TRAILING, Wire, array

_UNSIGNED: Final = Signature(bytes(Signature.SIZE))
SIGNED_FIELDS: Final = 6


@array("CHECKPOINT", section="4.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Wire):
    """A CHECKPOINT, fields in wire order; without witnesses the array has seven items."""

    ver: Literal[1] = 1
    label_prev: Label
    label_curr: Label
    upto_seq: StreamSeq
    mmr_root: MmrRoot
    epoch: Epoch
    hub_sig: Signature = _UNSIGNED
    witness_sigs: Annotated[tuple[Signature, ...] | None, TRAILING] = None

    @property
    def rotates(self) -> bool:
        """Whether this checkpoint marks a label rotation (§4.4.1)."""
        return self.label_prev != self.label_curr


def signing_digest(checkpoint: Checkpoint) -> bytes:
    """Return the digest of the first six fields, which the hub and each witness sign (B7)."""
    return Ht("veen/sig", cbor.encode_items(checkpoint.codec.write(checkpoint)[:SIGNED_FIELDS]))


def sign_checkpoint(
    key: SigningKey, unsigned: Checkpoint, witnesses: Sequence[SigningKey] = ()
) -> Checkpoint:
    """Return the checkpoint with the signature of the hub, and of each witness in the order given."""
    digest = signing_digest(unsigned)
    sigs = tuple(witness.sign(digest) for witness in witnesses)
    return dataclasses.replace(unsigned, hub_sig=key.sign(digest), witness_sigs=sigs or None)


def verify_signature(checkpoint: Checkpoint, hub_pk: HubPk) -> None:
    """Verify ``hub_sig`` under one key; ``hub_identity`` selects the key by epoch (§8.4)."""
    verify(
        hub_pk,
        signing_digest(checkpoint),
        checkpoint.hub_sig,
        f"CHECKPOINT.hub_sig at upto_seq {checkpoint.upto_seq} (core §4.4)",
    )


def verify_witnesses(
    checkpoint: Checkpoint, required: Iterable[VerifyKey], known: Iterable[VerifyKey] = ()
) -> None:
    """Verify every witness signature, each under another key, and that each required key signed (B7)."""
    digest = signing_digest(checkpoint)
    missing = list(dict.fromkeys(required))
    candidates = [*missing, *(key for key in dict.fromkeys(known) if key not in missing)]
    for position, sig in enumerate(checkpoint.witness_sigs or ()):
        signer = _signer(digest, sig, candidates)
        if signer is None:
            raise SignatureError(
                f"CHECKPOINT.witness_sigs[{position}] (core §4.4): verifies under no known witness key"
            )
        candidates.remove(signer)  # a key signs once
        missing = [key for key in missing if key != signer]
    if missing:
        raise SignatureError(
            f"CHECKPOINT.witness_sigs (core §4.4): the signature of witness {missing[0].hex()} is missing"
        )


def _signer(digest: bytes, sig: Signature, candidates: Iterable[VerifyKey]) -> VerifyKey | None:
    for key in candidates:
        try:
            verify(key, digest, sig, "CHECKPOINT.witness_sigs (core §4.4)")
        except SignatureError:
            continue
        return key
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOrigin:
    """How a label was derived, for a verifier that knows the stream (§2, H4)."""

    routing_key: RoutingKey
    stream_id: StreamId
    epoch_sec: int
    max_skew_sec: int

    def epochs_around(self, epoch: Epoch) -> range:
        """Return the epochs whose label may receive a message that is admitted in ``epoch`` (§12)."""
        return stream.epoch_window(UnixTime(epoch * self.epoch_sec), self.epoch_sec, self.max_skew_sec)

    def label_at(self, epoch: int) -> Label:
        """Return the stream's label in an epoch."""
        return stream.label(self.routing_key, self.stream_id, Epoch(epoch))


def check_transition(
    checkpoint: Checkpoint,
    prefix: Mmr,
    *,
    last_upto_seq: StreamSeq = NO_ENTRIES,
    origin: LabelOrigin | None = None,
    hub_ts: UnixTime | None = None,
) -> None:
    """Check the rules of §4.4.1 in its order, without signatures (see ``hub_identity.verify_checkpoint``).

    ``prefix`` is the tree that the verifier rebuilt for ``label_curr``. ``last_upto_seq`` is the
    ``upto_seq`` of the last checkpoint that the verifier accepted. ``hub_ts`` is that of the receipt at
    ``upto_seq``, if the verifier has the receipt (H9).
    """
    if origin is not None:
        _check_labels(checkpoint, origin, hub_ts)
    if checkpoint.upto_seq < last_upto_seq:
        raise CheckpointError(
            f"upto_seq {checkpoint.upto_seq} is before the last checkpoint at {last_upto_seq} (core §4.4.1)"
        )
    if checkpoint.upto_seq < 1:
        raise CheckpointError("upto_seq is 0, so the checkpoint covers no entry (core §4.4)")
    if checkpoint.upto_seq != prefix.size:
        raise CheckpointError(
            f"upto_seq {checkpoint.upto_seq} is not the end of the log of {prefix.size} entries (core §4.4.1)"
        )
    if checkpoint.mmr_root != prefix.root:
        raise CheckpointError(
            f"mmr_root at upto_seq {checkpoint.upto_seq} is not the root of the log (core §4.4.1)"
        )


def check_epoch(checkpoint: Checkpoint, epoch_sec: int, hub_ts: UnixTime | None) -> None:
    """Raise unless ``epoch`` is that of the receipt at ``upto_seq``, if its ``hub_ts`` is known (H9)."""
    if hub_ts is not None and checkpoint.epoch != stream.epoch_at(hub_ts, epoch_sec):
        raise CheckpointError(
            f"epoch {checkpoint.epoch} is not the epoch of hub_ts {hub_ts} (RESOLUTIONS H9)"
        )


def _check_labels(checkpoint: Checkpoint, origin: LabelOrigin, hub_ts: UnixTime | None) -> None:
    """Check that epoch and labels agree (§4.4.1).

    The epoch is that of the last receipt's hub_ts (H9). A label accepts messages within the skew window
    (§12), so the epoch that the label was derived from may differ by that much.
    """
    check_epoch(checkpoint, origin.epoch_sec, hub_ts)
    if checkpoint.epoch > U64_MAX // max(1, origin.epoch_sec) - 1 - origin.max_skew_sec:
        raise CheckpointError(f"epoch {checkpoint.epoch} is out of range")
    if origin.epoch_sec == 0 and checkpoint.epoch != 0:
        raise CheckpointError(f"epoch is {checkpoint.epoch}, but the profile has no epochs (core §3.2)")
    own = next(
        (e for e in origin.epochs_around(checkpoint.epoch) if origin.label_at(e) == checkpoint.label_curr),
        None,
    )
    if own is None:
        raise CheckpointError(
            f"label_curr is not the stream's label in epoch {checkpoint.epoch} (core §4.4.1)"
        )
    if checkpoint.rotates and (own == 0 or checkpoint.label_prev != origin.label_at(own - 1)):
        raise CheckpointError("label_prev is not the stream's label in the previous epoch (core §4.4.1)")
