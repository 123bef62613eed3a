"""The identity of a hub: its keys over time, chained to one anchor (§8.4, RESOLUTIONS B13).

``hub_id`` is the hash of the first key and never changes. Each key is endorsed by the previous one, so that
a client that pinned ``hub_id`` (or the first ``hub_pk``) can follow the chain to any key without trusting
anything else. Retired keys stay in the list, so that old receipts remain verifiable.

Which key counts: keys are ordered by ``valid_from``, then by ``hub_pk``. At any time, the last active key
in this order signs. A signature is valid if it verifies under any key that was active at its time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from veen_core import checkpoint as checkpoints
from veen_core import receipt as receipts
from veen_core import stream
from veen_core.checkpoint import Checkpoint
from veen_core.errors import IdentityError, SignatureError
from veen_core.hashing import U64_MAX, Ht, u64be
from veen_core.ids import (
    Epoch,
    HubId,
    HubPk,
    KeyId,
    Label,
    MmrRoot,
    Signature,
    StreamSeq,
    UnixTime,
    VerifyKey,
)
from veen_core.keys import SigningKey, is_valid, verify
from veen_core.receipt import Receipt
from veen_core.signatures import SignatureClaim
from veen_core.utc import format_utc
from veen_core.validity import active_at
from veen_core.wire import Wire, int_map


def key_id(hub_pk: HubPk) -> KeyId:
    """Return the id under which identity artifacts name a key (§8.4)."""
    return KeyId(Ht("veen/key-id", hub_pk))


@int_map("hub_key", section="8.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubKey(Wire):
    """One key of a hub. ``endorsement`` is the signature of the previous key; the first key has none."""

    key_id: KeyId
    hub_pk: HubPk
    valid_from: UnixTime
    valid_until: UnixTime | None = None
    endorsement: Signature | None = None

    def active_at(self, now: UnixTime) -> bool:
        return active_at(now, self.valid_from, self.valid_until)


@int_map("hub-identity", section="8.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubIdentity(Wire):
    """The identity record of a hub, with its keys in the order in which they were added."""

    ver: Literal[1] = 1
    hub_id: HubId
    hub_keys: tuple[HubKey, ...]
    anchoring: Literal["data-directory", "fingerprint", "certificate"] = "data-directory"

    def in_order(self) -> list[HubKey]:
        """Return all keys, ordered by ``valid_from``, then by ``hub_pk``."""
        return sorted(self.hub_keys, key=lambda key: (key.valid_from, key.hub_pk))

    def active_at(self, now: UnixTime) -> list[HubKey]:
        """Return the keys that are active at a time, ordered by ``valid_from``, then by ``hub_pk``."""
        return [key for key in self.in_order() if key.active_at(now)]

    def signing_key_at(self, now: UnixTime) -> HubKey:
        """Return the key that signs at a time: the last active one."""
        if not (active := self.active_at(now)):
            raise IdentityError(f"hub-identity (core §8.4): no key is active at {format_utc(now)}")
        return active[-1]

    @property
    def newest(self) -> HubKey:
        """The key added last: it endorses the next key and signs the record."""
        if not self.hub_keys:
            raise IdentityError("hub-identity.hub_keys (core §8.4): empty")
        return self.hub_keys[-1]

    @property
    def key_map(self) -> dict[KeyId, HubPk]:
        """The content of the hub-key-map artifact (§8.4)."""
        return {key.key_id: key.hub_pk for key in self.hub_keys}


def new_identity(first: SigningKey, valid_from: UnixTime) -> HubIdentity:
    """Return the identity of a new hub, whose first key fixes its hub_id (B13)."""
    hub_pk = HubPk(first.public)
    key = HubKey(key_id=key_id(hub_pk), hub_pk=hub_pk, valid_from=valid_from)
    return HubIdentity(hub_id=stream.hub_id(hub_pk), hub_keys=(key,))


def endorsement_digest(hub: HubId, hub_pk: HubPk, valid_from: UnixTime) -> bytes:
    """Return the digest that a key signs to endorse the next one."""
    return Ht("veen/hub-key", hub + hub_pk + u64be(valid_from))


def rotate(
    identity: HubIdentity, current: SigningKey, next_pk: HubPk, valid_from: UnixTime, window_sec: int
) -> HubIdentity:
    """Add a key; the previous key stays active until ``window_sec`` after ``valid_from`` (KEX0.1)."""
    last = identity.newest
    if current.public != last.hub_pk:
        raise IdentityError("hub-identity (core §8.4): only the newest key can endorse the next one")
    if valid_from <= last.valid_from:
        raise IdentityError(
            f"hub-identity (core §8.4): valid_from must be after {last.valid_from}, "
            "the valid_from of the previous key"
        )
    if last.valid_until is not None or window_sec < 0:
        raise IdentityError(
            "hub-identity (core §8.4): the newest key must have no valid_until, and the window must be >= 0"
        )
    if window_sec > U64_MAX - valid_from:
        raise IdentityError(f"hub-identity (core §8.4): a window of {window_sec} s ends beyond 2^64 - 1")
    endorsement = current.sign(endorsement_digest(identity.hub_id, next_pk, valid_from))
    added = HubKey(key_id=key_id(next_pk), hub_pk=next_pk, valid_from=valid_from, endorsement=endorsement)
    retiring = dataclasses.replace(last, valid_until=UnixTime(valid_from + window_sec))
    rotated = dataclasses.replace(identity, hub_keys=(*identity.hub_keys[:-1], retiring, added))
    verify_identity(rotated)
    return rotated


def identity_digest(identity: HubIdentity) -> bytes:
    """Return the digest that the newest key, or a root key, signs for the record."""
    return Ht("veen/hub-identity", identity.encode())


def sign_identity(key: SigningKey, identity: HubIdentity) -> Signature:
    """Return the content of the hub-identity.sig artifact (§8.4)."""
    return key.sign(identity_digest(identity))


def verify_identity(identity: HubIdentity, *, pinned: HubId | None = None) -> None:
    """Verify that every key chains to ``hub_id``, and that this is the ``pinned`` hub_id, if given (§8.4)."""
    if pinned is not None and identity.hub_id != pinned:
        raise IdentityError(
            f"hub-identity (core §8.4): the record is for hub {identity.hub_id.hex()}, "
            f"but the pinned hub is {pinned.hex()}"
        )
    if not identity.hub_keys:
        raise IdentityError("hub-identity.hub_keys (core §8.4): empty")
    first, *later = identity.hub_keys
    if stream.hub_id(first.hub_pk) != identity.hub_id or first.endorsement is not None:
        raise IdentityError("hub-identity (core §8.4): hub_id is not the hash of the first key (B13)")
    if len(identity.key_map) != len(identity.hub_keys):
        raise IdentityError("hub-identity.hub_keys (core §8.4): a key is listed twice")
    for key in identity.hub_keys:
        _check_key(key)
    for before, key in zip(identity.hub_keys, later, strict=False):
        _check_link(identity.hub_id, before, key)


def _check_key(key: HubKey) -> None:
    if key.key_id != key_id(key.hub_pk):
        raise IdentityError("hub_key.key_id (core §8.4): is not the id of hub_pk")
    if key.valid_until is not None and key.valid_until <= key.valid_from:
        raise IdentityError("hub_key.valid_until (core §8.4): is not after valid_from")


def _check_link(hub: HubId, before: HubKey, key: HubKey) -> None:
    if key.valid_from <= before.valid_from:
        raise IdentityError("hub-identity.hub_keys (core §8.4): the keys are not in the order of valid_from")
    if key.endorsement is None:
        raise IdentityError("hub_key.endorsement (core §8.4): missing")
    digest = endorsement_digest(hub, key.hub_pk, key.valid_from)
    try:
        verify(before.hub_pk, digest, key.endorsement, "hub_key.endorsement (core §8.4)")
    except SignatureError as exc:
        raise IdentityError(str(exc)) from None


def verify_identity_signature(
    identity: HubIdentity, signature: Signature, *, root_key: VerifyKey | None = None
) -> None:
    """Verify hub-identity.sig under the newest key, or under the configured offline root key (§8.4)."""
    signer = root_key if root_key is not None else identity.newest.hub_pk
    verify(signer, identity_digest(identity), signature, "hub-identity.sig (core §8.4)")


def verify_successor(
    held: HubIdentity,
    shown: HubIdentity,
    signature: Signature,
    *,
    root_key: VerifyKey | None = None,
    seen: UnixTime | None = None,
) -> None:
    """Verify that the record ``shown`` continues the record ``held``.

    ``shown`` may add keys, and may set the ``valid_until`` of a key that has a successor. Nothing else
    may differ. ``signature`` is the hub-identity.sig of ``shown``: endorsements cover keys, but not
    their ends. ``seen`` is the ``hub_ts`` of the newest receipt verified under ``held``; without it, a
    record that ends a key before that time is not detected.
    """
    verify_identity(shown, pinned=held.hub_id)
    verify_identity_signature(shown, signature, root_key=root_key)
    if len(shown.hub_keys) < len(held.hub_keys):
        raise IdentityError("hub-identity (core §8.4): a key of the earlier record is missing")
    for old, new in zip(held.hub_keys, shown.hub_keys, strict=False):
        if dataclasses.replace(new, valid_until=None) != dataclasses.replace(old, valid_until=None):
            raise IdentityError("hub-identity (core §8.4): a key was replaced")
        if old.valid_until is not None and new.valid_until != old.valid_until:
            raise IdentityError("hub-identity (core §8.4): the valid_until of a key was changed")
    for position, old in enumerate(held.hub_keys):
        if old.valid_until is None:
            _check_end(shown, position, seen)


def _check_end(shown: HubIdentity, position: int, seen: UnixTime | None) -> None:
    """Check a ``valid_until`` that ``held`` did not have: old receipts must remain verifiable (§8.4)."""
    until = shown.hub_keys[position].valid_until
    if until is None:
        return
    later = shown.hub_keys[position + 1 :]
    if not later or until < later[0].valid_from:
        raise IdentityError("hub-identity (core §8.4): a key ends before its successor becomes valid")
    if seen is not None and until <= seen:
        raise IdentityError(
            f"hub-identity (core §8.4): a key ends at {until}, but it signed a receipt at {seen}"
        )


def verify_receipt(identity: HubIdentity, receipt: Receipt) -> HubKey:
    """Verify hub_sig under any key active at ``hub_ts``; return the key that verified (core §8.4)."""
    return verify_receipt_under(identity.active_at(receipt.hub_ts), receipt, receipt.encode())


def verify_receipt_under(active: Sequence[HubKey], receipt: Receipt, wire: bytes) -> HubKey:
    """Verify hub_sig of an encoded RECEIPT under the keys that were active at its hub_ts."""
    digest = receipts.signing_digest(wire)
    for key in active:
        if is_valid(key.hub_pk, digest, receipt.hub_sig):
            return key
    raise _receipt_refused(receipt.stream_seq, receipt.hub_ts)


def receipt_claim(active: Sequence[HubPk], receipt: Receipt, wire: bytes) -> SignatureClaim:
    """Return hub_sig of an encoded RECEIPT, to be verified together with other signatures.

    It is valid if ``verify_receipt_under`` passes for the keys that were ``active`` at its hub_ts.
    """
    refusal = partial(_receipt_refused, receipt.stream_seq, receipt.hub_ts)
    return SignatureClaim(active, receipts.signing_digest(wire), receipt.hub_sig, refusal)


def _receipt_refused(stream_seq: StreamSeq, hub_ts: UnixTime) -> SignatureError:
    found = (
        f"RECEIPT.hub_sig at stream_seq {stream_seq}: no key of the hub that was active at hub_ts "
        f"{hub_ts} verifies it"
    )
    clause = "core §4.3, §8.4"
    return SignatureError(f"{found} ({clause})", found=found, clause=clause)


def verify_checkpoint(identity: HubIdentity, checkpoint: Checkpoint, epoch_sec: int) -> HubKey:
    """Verify hub_sig under any key active in the epoch; without epochs, under any key of the hub (§8.4)."""
    digest = checkpoints.signing_digest(checkpoint)
    for key in _active_in(identity, checkpoint.epoch, epoch_sec):
        if is_valid(key.hub_pk, digest, checkpoint.hub_sig):
            return key
    raise SignatureError(
        f"CHECKPOINT.hub_sig at upto_seq {checkpoint.upto_seq}: no key of the hub that was active in epoch "
        f"{checkpoint.epoch} verifies it (core §4.4, §8.4)"
    )


def verify_checkpoint_signers(
    identity: HubIdentity, checkpoint: Checkpoint, epoch_sec: int, *, since: UnixTime, now: UnixTime
) -> None:
    """Verify that the hub's key signed a checkpoint and, in a rotation window, all active keys (KEX0.1).

    A checkpoint carries no time. It was made between ``since``, the time of its last entry, and ``now`` or
    the end of its epoch (ADR 0005). Its signatures must be valid at one moment in between.
    """
    signer = verify_checkpoint(identity, checkpoint, epoch_sec)
    last = min(now, (checkpoint.epoch + 1) * epoch_sec - 1) if epoch_sec else now
    changes = {time for key in identity.hub_keys for time in (key.valid_from, key.valid_until) if time}
    failure: SignatureError | None = None
    for moment in (since, *sorted(time for time in changes if since < time <= last)):
        active = identity.active_at(moment)
        required = [key.hub_pk for key in active] if len(active) > 1 else []
        try:
            checkpoints.verify_witnesses(checkpoint, required, [key.hub_pk for key in identity.hub_keys])
        except SignatureError as exc:
            failure = failure or exc
        else:
            if signer in active:
                return
    raise failure or SignatureError(
        "CHECKPOINT.hub_sig was made by a key that was not active at the time of the checkpoint (core §4.4)"
    )


def _active_in(identity: HubIdentity, epoch: Epoch, epoch_sec: int) -> Iterator[HubKey]:
    start, end = epoch * epoch_sec, (epoch + 1) * epoch_sec
    for key in identity.in_order():
        if epoch_sec == 0 or (key.valid_from < end and (key.valid_until is None or key.valid_until > start)):
            yield key


@int_map("checkpoint-binding", section="8.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBinding(Wire):
    """One line of the checkpoint-binding manifest: which hub and key signed a checkpoint (§8.4)."""

    hub_id: HubId
    key_id: KeyId
    label: Label
    epoch: Epoch
    upto_seq: StreamSeq
    mmr_root: MmrRoot


def bind_checkpoint(identity: HubIdentity, signer: HubKey, checkpoint: Checkpoint) -> CheckpointBinding:
    """Return the manifest line of a checkpoint that ``signer`` signed."""
    return CheckpointBinding(
        hub_id=identity.hub_id,
        key_id=signer.key_id,
        label=checkpoint.label_curr,
        epoch=checkpoint.epoch,
        upto_seq=checkpoint.upto_seq,
        mmr_root=checkpoint.mmr_root,
    )
