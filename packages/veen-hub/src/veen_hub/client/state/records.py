"""The records of a state store: a label's state and keys, open epochs, held tokens, a hub checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from veen_core.cap import CapToken
from veen_core.client_state import ClientState
from veen_core.errors import DecodeError, StateError
from veen_core.ids import ClientId, ClientSeq, Epoch, LeafHash, UnixTime
from veen_core.keys import SigningSeed
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_core.wire import Wire, int_map

W = TypeVar("W", bound=Wire)


def decode_record(kind: type[W], content: bytes, name: str) -> W:
    """Decode a record; a damaged one raises ``StateError``, which names it."""
    try:
        return kind.decode(content)
    except DecodeError as exc:
        raise StateError(
            f"the record {name} in the state store is damaged: {exc}",
            action="restore it from a backup; if you move it away instead, this client verifies the log from "
            "its beginning, and messages that were pending are not settled",
        ) from None


@int_map("client_key", section="KEX0.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey(Wire):
    """A client_id of one label and its key; without a seed, the key is the identity's own signing key.

    ``client_seq`` and ``created_at`` are valid while another client_id is in use; those of the client_id in
    use are in the label's state.
    """

    client_id: ClientId
    seed: SigningSeed | None = None
    created_at: UnixTime
    client_seq: ClientSeq


@int_map("label_record", section="RESYNC0.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRecord(Wire):
    """Everything that a client stores about one label."""

    ver: Literal[1] = 1
    state: ClientState
    keys: tuple[ClientKey, ...]


@int_map("epochs_record", section="12")
@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsRecord(Wire):
    """The epochs of one stream whose labels may have an unanswered message."""

    ver: Literal[1] = 1
    epochs: tuple[Epoch, ...]


@int_map("moved_messages", section="RESOLUTIONS P9")
@dataclass(frozen=True, slots=True, kw_only=True)
class MovedMessages(Wire):
    """Messages that an old hub never took, sealed for its successor; empty once they are pending there."""

    ver: Literal[1] = 1
    messages: tuple[bytes, ...]
    """Encoded MSGs for the successor's label, in the order of client_seq."""
    sealed_from: tuple[LeafHash, ...]
    """The leaf_hash of the message that each was sealed from."""


@int_map("held_token", section="6.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HeldToken(Wire):
    """An authorized token and its expiry, which follows from the hub's receipt."""

    token: CapToken
    expires_at: UnixTime


@int_map("held_tokens", section="6.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTokens(Wire):
    """All authorized tokens of one hub; stored, because §6.1 demands their auth_refs after a restart."""

    ver: Literal[1] = 1
    tokens: tuple[HeldToken, ...]


@int_map("hub_checkpoint_record", section="RESOLUTIONS P2")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubCheckpointRecord(Wire):
    """The largest hub checkpoint that a client has accepted, as the signed note."""

    ver: Literal[1] = 1
    checkpoint: bytes

    @property
    def signed_head(self) -> SignedHead:
        return parse_signed_head(self.checkpoint)
