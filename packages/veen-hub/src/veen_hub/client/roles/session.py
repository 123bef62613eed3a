"""The connection of a role to its own hub: its keys, its tokens, and nothing else (AGB0 4.3, SDR0 3.2.3)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from veen_core.cap import CapToken, mint
from veen_core.client_state import ClientBounds
from veen_core.errors import ConfigError, DecodeError
from veen_core.ids import ClientId, StreamId
from veen_core.keys import DhKey, SigningKey
from veen_core.keystore import Secrets
from veen_hub.client import blocking
from veen_hub.client.connecting import connect
from veen_hub.client.hub import Hub
from veen_hub.client.identity import Identity
from veen_hub.client.roles.settings import RoleAccess
from veen_hub.client.wire.retry import Retry
from veen_hub.client.wire.transport import Tls

TOKEN_BOUNDS: Final = ClientBounds(max_client_id_lifetime_sec=2**40, max_msgs_per_client_id_per_label=2**63)
"""A role writes under its identity's own key, as its token demands; the token bounds the use of the key."""

Unlock = Callable[[Path], Secrets | Identity]
"""Opens the identity in a folder; asks for its passphrase if it has one."""


def load_plain(folder: Path) -> Identity:
    """Open an identity that has no passphrase."""
    return Identity.load(folder)


def dh_keys_of(folders: Iterable[Path], unlock: Unlock = load_plain) -> tuple[DhKey, ...]:
    """Return the reader keys of the identities in these folders."""
    return tuple(key for folder in folders for key in Identity.of(unlock(folder)).dh_keys)


# --- tokens


def load_tokens(paths: Iterable[Path]) -> tuple[CapToken, ...]:
    """Read the token files of a role."""
    return tuple(map(_token, paths))


def _token(path: Path) -> CapToken:
    try:
        return CapToken.decode(path.read_bytes())
    except OSError as exc:
        raise ConfigError(f"token {path} cannot be read: {exc.strerror}") from None
    except DecodeError as exc:
        raise ConfigError(f"{path} is not a token: {exc}") from None


def issue_role_token(
    issuer: SigningKey, subject: ClientId, streams: Iterable[StreamId], *, ttl: int, role: str
) -> CapToken:
    """Sign the one token of a role; the issuer of tokens may not be the role itself."""
    if issuer.public == subject:
        raise ConfigError(f"the issuer of tokens and the {role} must have different keys")
    return mint(issuer, subject, streams, ttl)


def excess_streams(token: CapToken, allowed: Collection[StreamId]) -> tuple[StreamId, ...]:
    """Return the streams of a token that its role must not write to."""
    return tuple(each for each in token.allow.stream_ids if each not in allowed)


# --- connections


def tls_of(access: RoleAccess) -> Tls | None:
    """Return the TLS settings of a role; None if it has none."""
    if access.ca is None and access.cert is None:
        return None
    return Tls(ca=access.ca, cert=access.cert, key=access.cert_key)


def _settings(access: RoleAccess, retry: Retry | None) -> dict[str, Any]:
    return {
        "trust": access.trust,
        "witnesses": access.witnesses,
        "state": access.client / "state",
        "bounds": TOKEN_BOUNDS,
        "tls": tls_of(access),
        "retry": retry,
    }


@asynccontextmanager
async def connect_role(
    access: RoleAccess, identity: Identity, *, retry: Retry | None = None
) -> AsyncIterator[Hub]:
    """Connect to the role's hub and authorize its tokens, if the hub demands tokens."""
    async with connect(access.hub, identity, **_settings(access, retry)) as hub:
        if (await hub.status()).gating:
            for token in load_tokens(access.tokens):
                await hub.authorize(token)
        yield hub


@contextmanager
def connect_role_blocking(
    access: RoleAccess, identity: Identity, *, retry: Retry | None = None
) -> Iterator[blocking.BlockingHub]:
    """Connect as ``connect_role`` does, for programs without an event loop."""
    with blocking.connect(access.hub, identity, **_settings(access, retry)) as hub:
        if hub.status().gating:
            for token in load_tokens(access.tokens):
                hub.authorize(token)
        yield hub
