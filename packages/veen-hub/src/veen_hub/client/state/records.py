"""What is in the pieces of a state store: a label's state and keys, a stream's open epochs, held tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from veen_core.cap import CapToken
from veen_core.client_state import ClientState
from veen_core.errors import DecodeError, StateError
from veen_core.ids import ClientId, ClientSeq, Epoch, UnixTime
from veen_core.keys import SigningSeed
from veen_core.wire import Wire, int_map

W = TypeVar("W", bound=Wire)


def decode_record(kind: type[W], content: bytes, name: str) -> W:
    """What a piece holds; a damaged one is named."""
    try:
        return kind.decode(content)
    except DecodeError as exc:
        raise StateError(
            f"{name} in the state store is damaged: {exc}; restore it, or move it away: then this client "
            "verifies anew from nothing, and does not settle what it had sent"
        ) from None


@int_map("client_key", section="KEX0.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey(Wire):
    """A client_id of one label; without a seed it is the identity's own signing key.

    ``client_seq`` and ``created_at`` count while the key is not the one in use: the state has the newest.
    """

    client_id: ClientId
    seed: SigningSeed | None = None
    created_at: UnixTime
    client_seq: ClientSeq


@int_map("label_record", section="RESYNC0.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRecord(Wire):
    """Everything a client remembers of one label."""

    ver: Literal[1] = 1
    state: ClientState
    keys: tuple[ClientKey, ...]


@int_map("epochs_record", section="12")
@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsRecord(Wire):
    """The epochs of one stream under whose labels a message may be unanswered."""

    ver: Literal[1] = 1
    epochs: tuple[Epoch, ...]


@int_map("held_token", section="6.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HeldToken(Wire):
    """An authorized token and its end, by the hub's receipt."""

    token: CapToken
    expires_at: UnixTime


@int_map("held_tokens", section="6.1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTokens(Wire):
    """Persisted, so that auth_ref and admission history can be told again (§6.1)."""

    ver: Literal[1] = 1
    tokens: tuple[HeldToken, ...]
