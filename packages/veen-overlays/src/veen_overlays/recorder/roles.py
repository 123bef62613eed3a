"""The roles of a recorder as templates of cap tokens (products-spec-1 §2.3, SDR0 3.2.3).

| role | writes to | reads |
|---|---|---|
| recorder_producer | the event streams that it is given | nothing: it seals to the recorder's key |
| recorder_admin | record/infrastructure/changes, the realm's label classes | every stream of the recorder |

A cap token permits writing. Reading needs no token: messages are sealed, and a reader needs their key. No
token permits to delete: a hub has no such request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal

from veen_core.cap import CapToken
from veen_core.errors import ConfigError
from veen_core.ids import ClientId, StreamId
from veen_core.stream import stream_id
from veen_overlays.control.records import label_class_stream
from veen_overlays.identifiers import realm_id
from veen_overlays.recorder.profile import RecorderProfile
from veen_overlays.recorder.records import CHANGES_STREAM

Role = Literal["recorder_producer", "recorder_admin"]
PRODUCER: Final = "recorder_producer"
ADMIN: Final = "recorder_admin"


def writable_streams(profile: RecorderProfile, role: Role, writes: tuple[str, ...]) -> tuple[StreamId, ...]:
    """Return the streams that a role may write to; ``writes`` are the event streams of a producer."""
    if role == ADMIN:
        if writes:
            raise ConfigError(
                "recorder_admin writes no events: its identity must differ from every producer's "
                "(SDR0 3.2.3)",
                action="make another identity with `veen record init --role recorder_producer`",
            )
        classes = () if profile.realm is None else (label_class_stream(realm_id(profile.realm)),)
        return (stream_id(CHANGES_STREAM), *classes)
    if not writes:
        raise ConfigError("recorder_producer needs the name of every stream that it writes to")
    profile.require_streams(writes)
    return tuple(map(stream_id, writes))


def check_distinct(
    profile: RecorderProfile,
    role: Role,
    identity: ClientId,
    *,
    given: Collection[str],
    tokens: Iterable[CapToken],
    producers: Collection[ClientId],
) -> None:
    """Refuse an identity that is, or would become, administrator and producer at once (SDR0 3.2.3).

    ``given`` are the roles that the identity was given before, ``tokens`` all that it has authorized at the
    hub, ``producers`` the keys that are known to record events.
    """
    events = set(map(stream_id, profile.streams))
    managed = set(writable_streams(profile, ADMIN, ()))
    held = {stream for token in tokens if token.subject_pk == identity for stream in token.allow.stream_ids}
    produces = PRODUCER in given or bool(held & events) or identity in producers
    if role == ADMIN and produces:
        raise ConfigError(
            f"identity {identity.hex()} records events, so it may not be recorder_admin (SDR0 3.2.3)",
            action="leave --identity out: the command then makes an identity",
        )
    if role == PRODUCER and (ADMIN in given or held & managed):
        raise ConfigError(
            f"identity {identity.hex()} is recorder_admin, so it may not record events (SDR0 3.2.3)",
            action="leave --identity out: the command then makes an identity",
        )
