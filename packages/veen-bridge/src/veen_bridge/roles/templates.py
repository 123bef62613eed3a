"""The tokens of each role: exactly the streams that it writes to, and no other (AGB0 4.3, RESOLUTIONS P5).

| role | writes to | reads |
|---|---|---|
| bridge_online | bridge/online/log | the export streams of its zone |
| bridge_offline | its import streams, bridge/offline/log | the same streams, to resume (P8) |

A cap token permits writing. Reading needs no token: messages are sealed, and a reader needs their key.
"""

from __future__ import annotations

from collections.abc import Sequence

from veen_bridge.roles.config import AUDIT_STREAMS, OFFLINE, ONLINE, Role, SourceHub, check_import_streams
from veen_core.cap import CapToken
from veen_core.errors import ConfigError
from veen_core.ids import ClientId, StreamId
from veen_core.keys import SigningKey
from veen_core.stream import stream_id
from veen_hub.client import roles
from veen_hub.client.roles import issue_role_token


def writable_streams(role: Role, streams: Sequence[str]) -> tuple[str, ...]:
    """The names of the streams that a role writes to; ``streams`` are the role's own, as configured."""
    return (AUDIT_STREAMS[role],) if role == ONLINE else (*streams, AUDIT_STREAMS[role])


def issue_token(
    issuer: SigningKey,
    role: Role,
    bridge: ClientId,
    streams: Sequence[str],
    sources: Sequence[SourceHub],
    *,
    ttl: int,
) -> CapToken:
    """Sign the one token that a role needs; raise ``ConfigError`` if it would permit more (P5)."""
    if any(source.bridge_id == bridge for source in sources):
        raise ConfigError("the same key may not serve as bridge_online and bridge_offline (RESOLUTIONS P5)")
    if role == OFFLINE:
        if not streams:
            raise ConfigError("bridge_offline needs the name of every import stream that it writes to")
        check_import_streams(streams, sources)
    writable = map(stream_id, writable_streams(role, streams))
    return issue_role_token(issuer, bridge, writable, ttl=ttl, role="bridge")


def excess_streams(token: CapToken, role: Role, streams: Sequence[str]) -> tuple[StreamId, ...]:
    """The streams of a token that the role must not write to."""
    return roles.excess_streams(token, set(map(stream_id, writable_streams(role, streams))))
