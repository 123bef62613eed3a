"""The core invariants of §7, over one accepted (MSG, RECEIPT) pair and the state before it.

I7 (ttl and rate) needs the token and the hub's admission record and is the hub's to check
(``cap``, ``rate``). Everything else is a row of ``INVARIANTS``; the first that does not hold is
reported by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from veen_core import attachment, ciphertext, stream
from veen_core.checkpoint import LabelOrigin
from veen_core.errors import DecodeError, InvariantError, OpenError
from veen_core.hashing import H
from veen_core.ids import NO_ENTRIES, AttRoot, ClientSeq, Coid, ProfileId, StreamSeq
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.mmr import Mmr
from veen_core.msg import Msg, check_size
from veen_core.receipt import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """The attachments of an opened message, for I5: what the header claims and what is in hand."""

    att_root: AttRoot | None
    coids: tuple[Coid, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """A label as it stood before the pair: all that the invariants may look at."""

    last_client_seq: ClientSeq
    profiles: Collection[ProfileId]
    limits: Limits = field(default=DEFAULT_LIMITS)
    origin: LabelOrigin | None = None
    """How the label is derived, if the verifier knows (H4): without it I12 cannot be judged."""
    attached: Attached | None = None
    """Given only by a reader who opened the message: without it I5 cannot be judged."""
    log: Mmr | None = None
    """Where proofs stand in its place, I3's root cannot be judged here; then ``last_stream_seq`` counts."""
    last_stream_seq: StreamSeq = NO_ENTRIES

    @property
    def size(self) -> int:
        """Entries before the pair."""
        return self.log.size if self.log is not None else self.last_stream_seq


@dataclass(frozen=True, slots=True)
class Pair:
    """The pair as bytes and as values."""

    msg_bytes: bytes
    receipt_bytes: bytes
    msg: Msg
    receipt: Receipt


def _i1(pair: Pair, _before: Before) -> str | None:
    return None if H(pair.msg.ciphertext) == pair.msg.ct_hash else "H(ciphertext) is not ct_hash"


def _i2(pair: Pair, _before: Before) -> str | None:
    if pair.receipt.label != pair.msg.label:
        return "RECEIPT.label is not MSG.label"
    return None if pair.receipt.leaf_hash == pair.msg.leaf_hash else "leaf_hash is not that of the MSG"


def _i3(pair: Pair, before: Before) -> str | None:
    if pair.receipt.stream_seq != before.size + 1:
        return f"stream_seq is {pair.receipt.stream_seq} after {before.size} entries"
    if before.log is None:
        return None
    after = before.log.copy()
    after.append(pair.receipt.leaf_hash)
    return None if after.root == pair.receipt.mmr_root else "mmr_root is not that of the log with this leaf"


def _i4(pair: Pair, before: Before) -> str | None:
    return (
        None
        if pair.msg.profile_id in before.profiles
        else f"profile {pair.msg.profile_id.hex()} is not supported"
    )


def _i5(_pair: Pair, before: Before) -> str | None:
    if before.attached is None:
        return None
    given = before.attached
    try:
        attachment.check_attachments(given.att_root, given.coids, given.sizes, before.limits)
    except OpenError as exc:
        return str(exc)
    return None


def _i6(pair: Pair, before: Before) -> str | None:
    if pair.msg.prev_ack <= before.size:
        return None
    return f"prev_ack {pair.msg.prev_ack} is ahead of the stream's {before.size}"


def _i8(pair: Pair, before: Before) -> str | None:
    if pair.msg.client_seq > before.last_client_seq:
        return None
    return f"client_seq {pair.msg.client_seq} was accepted before"


def _i9(pair: Pair, before: Before) -> str | None:
    if pair.msg.client_seq == before.last_client_seq + 1 and pair.msg.client_seq >= 1:  # B16
        return None
    return f"client_seq {pair.msg.client_seq} does not follow {before.last_client_seq}"


def _i10(pair: Pair, _before: Before) -> str | None:
    canonical = pair.msg.encode() == pair.msg_bytes and pair.receipt.encode() == pair.receipt_bytes
    return None if canonical else "not the canonical bytes"


def _i11(pair: Pair, before: Before) -> str | None:
    try:
        check_size(len(pair.msg_bytes), before.limits)
        ciphertext.check_layout(pair.msg.ciphertext, before.limits)
    except DecodeError as exc:
        return str(exc)
    return None


def _i12(pair: Pair, before: Before) -> str | None:
    if before.origin is None:
        return None
    origin = before.origin
    window = stream.epoch_window(pair.receipt.hub_ts, origin.epoch_sec, origin.max_skew_sec)
    if any(origin.label_at(epoch) == pair.msg.label for epoch in window):
        return None
    return f"the label is of no epoch within the skew of hub_ts {pair.receipt.hub_ts}"


Rows: TypeAlias = tuple[tuple[str, Callable[[Pair, Before], str | None]], ...]
INVARIANTS: Final[Rows] = (
    ("I10", _i10),
    ("I11", _i11),
    ("I1", _i1),
    ("I2", _i2),
    ("I4", _i4),
    ("I5", _i5),
    ("I6", _i6),
    ("I8", _i8),
    ("I9", _i9),
    ("I12", _i12),
    ("I3", _i3),
)
"""In the order in which they are checked: form and bounds before hashes before state."""


_ALONE: Final = tuple(row for row in INVARIANTS if row[0] in ("I10", "I11", "I1", "I2"))
_ANYWHERE: Final = Before(last_client_seq=ClientSeq(0), profiles=())


def verify_alone(msg_bytes: bytes, receipt_bytes: bytes) -> Pair:
    """I10, I11 at the widest limits, I1, I2: what a pair shows by itself, wherever it stood."""
    return _verify(msg_bytes, receipt_bytes, _ANYWHERE, _ALONE)


def verify_pair(msg_bytes: bytes, receipt_bytes: bytes, before: Before) -> Pair:
    """Verify I1-I6 and I8-I12; returns the decoded pair, or raises naming the invariant.

    Signatures are not invariants: ``msg.verify_signature`` and ``hub_identity.verify_receipt``.
    """
    return _verify(msg_bytes, receipt_bytes, before, INVARIANTS)


def _verify(msg_bytes: bytes, receipt_bytes: bytes, before: Before, rows: Rows) -> Pair:
    if len(msg_bytes) > before.limits.max_msg_bytes:  # before anything is decoded (SH0.4)
        raise InvariantError(
            "I11", f"MSG of {len(msg_bytes)} bytes exceeds {before.limits.max_msg_bytes} (§14.2)"
        )
    try:
        pair = Pair(msg_bytes, receipt_bytes, Msg.decode(msg_bytes), Receipt.decode(receipt_bytes))
    except DecodeError as exc:
        raise InvariantError("I10", str(exc)) from exc
    for name, failure in rows:
        if (why := failure(pair, before)) is not None:
            raise InvariantError(name, f"{why} (§7, stream_seq {pair.receipt.stream_seq})")
    return pair
