"""What a client remembers of one label, as bytes that can be replaced atomically (RESYNC0.4, KEX1+ 4.1)."""

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
    """``rk``: rekey material that moves with every receipt of one's own messages (spec-1 §9)."""

    __slots__ = ()

    def after(self, stream_seq: StreamSeq) -> RatchetKey:
        """``rk_next = HKDF(rk, "veen/rk" || u64be(s))``: earlier keys cannot be computed from it."""
        return RatchetKey(hkdf(self, b"veen/rk" + u64be(stream_seq)))


UNUSED: Final = ClientSeq(0)
"""Of a client_id that has signed nothing yet (B16)."""


@int_map("client_state", section="RESYNC0.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientState(Wire):
    """One label, one client_id. Write it durably before a MSG leaves and before a result is returned."""

    ver: Literal[1] = 1
    label: Label
    profile_id: ProfileId
    client_id: ClientId
    created_at: UnixTime
    """Of the client_id, for its lifetime bound (KEX1+ 4.1)."""
    client_seq: ClientSeq = UNUSED
    """The last one used; also how many messages this client_id signed here."""
    last_stream_seq: StreamSeq = NO_ENTRIES
    """Size of the prefix whose root was verified; the next ``prev_ack``."""
    peaks: tuple[NodeHash, ...] = ()
    """Of that prefix, in increasing height."""
    head: Receipt | None = None
    """The furthest receipt ever verified: kept across a resync, as evidence."""
    checkpointed: StreamSeq = NO_ENTRIES
    """``upto_seq`` of the last checkpoint accepted (§4.4.1)."""
    pending: tuple[bytes, ...] = ()
    """Encoded MSGs that left, or were about to, and have no receipt yet, by client_seq."""
    stalls: int = 0
    """Attempts in a row that did not move ``prev_ack`` (RESYNC0.3)."""
    rk: RatchetKey
    checkpoint: Checkpoint | None = None
    """The one a resync started from, while no receipt beyond it was verified: kept as evidence."""


MAX_STALLS: Final = 3
"""R of RESYNC0.3: then refresh keys and fetch a fresh prekey."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientBounds:
    """How long, and for how much, one client_id may be used (KEX1+ 4.1; the recommended maxima)."""

    max_client_id_lifetime_sec: int = 86_400
    max_msgs_per_client_id_per_label: int = 65_536

    def exhausted(self, state: ClientState, now: UnixTime) -> bool:
        """Whether the client must rotate its client_id before it signs again."""
        return (
            now - state.created_at >= self.max_client_id_lifetime_sec
            or state.client_seq >= self.max_msgs_per_client_id_per_label
        )
