"""The stateless half of the admission table: structure and signature (§8.1 stages 2 and 3a, §8.2).

The rows of ``STATELESS`` run in order; the first failure wins. They need only the message and what the hub
was created with, so they run in any thread or process. ``table`` holds the rows that need the log's state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from veen_core import cbor, ciphertext, rejection
from veen_core.errors import AdmissionError, DecodeError, DecodeFault, SignatureError
from veen_core.hashing import H
from veen_core.ids import AuthRef, ClientId, ClientSeq, Label, LeafHash, ProfileId, StreamSeq
from veen_core.limits import Limits
from veen_core.msg import Msg, check_size, verify_signature
from veen_core.rejection import Rejection

DECODING: Final = {
    DecodeFault.CBOR: rejection.CBOR_INVALID,
    DecodeFault.SIZE: rejection.FIELD_SIZE,
    DecodeFault.VERSION: rejection.VERSION,
}


@dataclass(frozen=True, slots=True)
class ProfileAndLimits:
    """Profile and limits that the hub was created with."""

    profile_id: ProfileId
    limits: Limits


@dataclass(slots=True)  # frozen would cost 2 µs a message
class Submission:
    """A MSG that passed every stateless check: the fields the stateful rows need, and its bytes."""

    label: Label
    client_id: ClientId
    client_seq: ClientSeq
    prev_ack: StreamSeq
    auth_ref: AuthRef | None
    leaf: LeafHash
    wire: bytes


def profile_is_supported(msg: Msg, _wire: bytes, hub: ProfileAndLimits) -> bool:
    return msg.profile_id == hub.profile_id


def ciphertext_matches_hash(msg: Msg, _wire: bytes, _hub: ProfileAndLimits) -> bool:
    return H(msg.ciphertext) == msg.ct_hash


def signature_verifies(msg: Msg, wire: bytes, _hub: ProfileAndLimits) -> bool:
    try:
        verify_signature(msg, wire)
    except SignatureError:
        return False
    return True


STATELESS: Final[tuple[tuple[Rejection, Callable[[Msg, bytes, ProfileAndLimits], bool]], ...]] = (
    (rejection.PROFILE, profile_is_supported),
    (rejection.CT_HASH, ciphertext_matches_hash),
    (rejection.SIG_INVALID, signature_verifies),
)


def examine(wire: bytes, hub: ProfileAndLimits) -> Submission:
    """Check structure and signature; raise ``AdmissionError`` with the first failing row."""
    msg = _decode(wire, hub.limits)
    for row, holds in STATELESS:
        if not holds(msg, wire, hub):
            raise AdmissionError(row, row.means)
    return Submission(
        msg.label, msg.client_id, msg.client_seq, msg.prev_ack, msg.auth_ref, msg.leaf_hash, wire
    )


def _decode(wire: bytes, limits: Limits) -> Msg:
    try:
        check_size(len(wire), limits)
        msg = Msg.decode(wire)
        ciphertext.check_layout(msg.ciphertext, limits)
    except DecodeError as exc:
        fault = (
            DecodeFault.SIZE
            if exc.fault is DecodeFault.VERSION and _layout_is_broken(wire, limits)
            else exc.fault
        )
        raise AdmissionError(DECODING[fault], str(exc)) from None
    return msg


def _layout_is_broken(wire: bytes, limits: Limits) -> bool:
    """Check the ciphertext of a MSG of unknown version, because FIELD_SIZE comes before VERSION (§8.2)."""
    try:
        ciphertext.check_layout(cbor.decode_items(wire)[8], limits)
    except DecodeError:
        return True
    return False
