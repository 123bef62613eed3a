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
    """Fields in wire order; without witnesses the array has seven items."""

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
    """Over the first six fields; hub and witnesses sign the same digest (B7)."""
    return Ht("veen/sig", cbor.encode_items(checkpoint.codec.write(checkpoint)[:SIGNED_FIELDS]))


def sign_checkpoint(
    key: SigningKey, unsigned: Checkpoint, witnesses: Sequence[SigningKey] = ()
) -> Checkpoint:
    """The same checkpoint with the hub's signature, and each witness's in the order given."""
    digest = signing_digest(unsigned)
    sigs = tuple(witness.sign(digest) for witness in witnesses)
    return dataclasses.replace(unsigned, hub_sig=key.sign(digest), witness_sigs=sigs or None)


def verify_signature(checkpoint: Checkpoint, hub_pk: HubPk) -> None:
    """``hub_sig`` under one key; ``hub_identity`` chooses the key by epoch (§8.4)."""
    verify(
        hub_pk,
        signing_digest(checkpoint),
        checkpoint.hub_sig,
        f"CHECKPOINT.hub_sig §4.4 at {checkpoint.upto_seq}",
    )


def verify_witnesses(
    checkpoint: Checkpoint, required: Iterable[VerifyKey], known: Iterable[VerifyKey] = ()
) -> None:
    """Every witness signature is one key's, and every required key has signed (KEX0.1, B7)."""
    digest = signing_digest(checkpoint)
    missing = list(dict.fromkeys(required))
    candidates = [*missing, *(key for key in dict.fromkeys(known) if key not in missing)]
    for position, sig in enumerate(checkpoint.witness_sigs or ()):
        signer = _signer(digest, sig, candidates)
        if signer is None:
            raise SignatureError(
                f"CHECKPOINT.witness_sigs[{position}] §4.4: verifies under no known witness key"
            )
        candidates.remove(signer)  # one signature a key
        missing = [key for key in missing if key != signer]
    if missing:
        raise SignatureError(f"CHECKPOINT.witness_sigs §4.4: no signature of witness {missing[0].hex()}")


def _signer(digest: bytes, sig: Signature, candidates: Iterable[VerifyKey]) -> VerifyKey | None:
    for key in candidates:
        try:
            verify(key, digest, sig, "CHECKPOINT.witness_sigs §4.4")
        except SignatureError:
            continue
        return key
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOrigin:
    """What a verifier that may know the stream knows of a label's derivation (§2, H4)."""

    routing_key: RoutingKey
    stream_id: StreamId
    epoch_sec: int
    max_skew_sec: int

    def epochs_around(self, epoch: Epoch) -> range:
        """Epochs whose label may still receive a message admitted in ``epoch`` (§12)."""
        return stream.epoch_window(UnixTime(epoch * self.epoch_sec), self.epoch_sec, self.max_skew_sec)

    def label_at(self, epoch: int) -> Label:
        return stream.label(self.routing_key, self.stream_id, Epoch(epoch))


def check_transition(
    checkpoint: Checkpoint,
    prefix: Mmr,
    *,
    last_upto_seq: StreamSeq = NO_ENTRIES,
    origin: LabelOrigin | None = None,
    hub_ts: UnixTime | None = None,
) -> None:
    """§4.4.1's rejections, in its order. No signature is looked at: ``hub_identity.verify_checkpoint``.

    ``prefix`` is the MMR that the verifier rebuilt for ``label_curr``; ``last_upto_seq`` that of
    the last checkpoint it accepted; ``hub_ts`` is the receipt's at ``upto_seq`` if it holds it (H9).
    """
    if origin is not None:
        _check_labels(checkpoint, origin, hub_ts)
    if checkpoint.upto_seq < last_upto_seq:
        raise CheckpointError(
            f"upto_seq {checkpoint.upto_seq} is before the accepted checkpoint at {last_upto_seq}"
        )
    if checkpoint.upto_seq < 1:
        raise CheckpointError("upto_seq 0 covers nothing")
    if checkpoint.upto_seq != prefix.size:
        raise CheckpointError(
            f"upto_seq {checkpoint.upto_seq} does not align with the prefix of {prefix.size} entries"
        )
    if checkpoint.mmr_root != prefix.root:
        raise CheckpointError(f"mmr_root at {checkpoint.upto_seq} is not the root of the log")


def check_epoch(checkpoint: Checkpoint, epoch_sec: int, hub_ts: UnixTime | None) -> None:
    """Raise unless ``epoch`` is that of the receipt at ``upto_seq``, if its ``hub_ts`` is known (H9)."""
    if hub_ts is not None and checkpoint.epoch != stream.epoch_at(hub_ts, epoch_sec):
        raise CheckpointError(f"epoch {checkpoint.epoch} is not that of hub_ts {hub_ts} (RESOLUTIONS H9)")


def _check_labels(checkpoint: Checkpoint, origin: LabelOrigin, hub_ts: UnixTime | None) -> None:
    """Epoch and labels agree (§4.4.1).

    The epoch is that of the last receipt's hub_ts (H9); a label still takes messages within the
    skew window (§12), so its own epoch may differ by that much.
    """
    check_epoch(checkpoint, origin.epoch_sec, hub_ts)
    if checkpoint.epoch > U64_MAX // max(1, origin.epoch_sec) - 1 - origin.max_skew_sec:
        raise CheckpointError(f"epoch {checkpoint.epoch} is out of range")
    if origin.epoch_sec == 0 and checkpoint.epoch != 0:
        raise CheckpointError(f"epoch {checkpoint.epoch} of a profile without epochs (§3.2)")
    own = next(
        (e for e in origin.epochs_around(checkpoint.epoch) if origin.label_at(e) == checkpoint.label_curr),
        None,
    )
    if own is None:
        raise CheckpointError(f"label_curr is not the stream's label at epoch {checkpoint.epoch}")
    if checkpoint.rotates and (own == 0 or checkpoint.label_prev != origin.label_at(own - 1)):
        raise CheckpointError("label_prev is not the stream's label of the epoch before")
