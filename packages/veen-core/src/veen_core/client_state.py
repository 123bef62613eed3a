"""The durable state of one label's client, stored as one object (RESYNC0.4, KEX1+ 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from veen_core.checkpoint import Checkpoint
from veen_core.hashing import hkdf, u64be
from veen_core.ids import (
    NO_ENTRIES,
    ClientId,
    ClientSeq,
    Label,
    NodeHash,
    ProfileId,
    Secret,
    StreamSeq,
    UnixTime,
)
from veen_core.receipt import Receipt
from veen_core.wire import Wire, int_map


class RatchetKey(Secret):
    """``rk``: the ratchet key, replaced by its successor at each receipt of an own message (spec-1 §9)."""

    __slots__ = ()

    def after(self, stream_seq: StreamSeq) -> RatchetKey:
        """Return ``HKDF(rk, "veen/rk" || u64be(s))``, from which ``rk`` cannot be computed."""
        return RatchetKey(hkdf(self, b"veen/rk" + u64be(stream_seq)))


UNUSED: Final = ClientSeq(0)
"""The ``client_seq`` of a client_id that has signed no message (B16)."""


@int_map("client_state", section="RESYNC0.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientState(Wire):
    """The state for one label and client_id. Make it durable before a MSG is sent or a result returned."""

    ver: Literal[1] = 1
    label: Label
    profile_id: ProfileId
    client_id: ClientId
    created_at: UnixTime
    """When the client_id was created; its lifetime is bounded (KEX1+ 4.1)."""
    client_seq: ClientSeq = UNUSED
    """The last number used, which is also how many messages this client_id signed on this label."""
    last_stream_seq: StreamSeq = NO_ENTRIES
    """Number of entries in the verified prefix; the ``prev_ack`` of the next message."""
    peaks: tuple[NodeHash, ...] = ()
    """Peaks of the verified prefix, in increasing height."""
    head: Receipt | None = None
    """The furthest receipt ever verified, kept across a resync as evidence."""
    checkpointed: StreamSeq = NO_ENTRIES
    """``upto_seq`` of the last accepted checkpoint (§4.4.1)."""
    pending: tuple[bytes, ...] = ()
    """Encoded MSGs without a receipt, sent or about to be sent, in the order of client_seq."""
    stalls: int = 0
    """Consecutive attempts that did not move ``prev_ack`` (RESYNC0.3)."""
    rk: RatchetKey
    checkpoint: Checkpoint | None = None
    """The checkpoint of the last resync, kept as evidence until a receipt beyond it is verified."""


MAX_STALLS: Final = 3
"""Attempts after which a client refreshes its keys and fetches a fresh prekey (R of RESYNC0.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientBounds:
    """Bounds on the use of one client_id; the defaults are the recommended maxima (KEX1+ 4.1)."""

    max_client_id_lifetime_sec: int = 86_400
    max_msgs_per_client_id_per_label: int = 65_536

    def exhausted(self, state: ClientState, now: UnixTime) -> bool:
        """Return whether the client must rotate its client_id before it signs again."""
        return (
            now - state.created_at >= self.max_client_id_lifetime_sec
            or state.client_seq >= self.max_msgs_per_client_id_per_label
        )
