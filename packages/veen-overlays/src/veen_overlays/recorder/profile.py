"""The recorder profile: which event type is recorded in which stream, and within which bounds (SDR0 3.2.2).

    profile: shop-production
    realm: shop                       # whose label classes keep the streams (LCLASS0)
    max_payload_bytes: 65536
    checkpoints: {every_sec: 300, every_events: 10000}
    streams:
      record/security/auth: [login, logout]
      record/app/orders: [order.placed, order.paid]

Every event type belongs to exactly one stream. These are the settings of recorder.yaml that all roles share;
``profile_id`` is their hash and identifies the configuration in checkpoints (SDR0 3.2.4).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from veen_core import cbor
from veen_core.errors import ConfigError
from veen_core.hashing import Ht
from veen_core.ids import FixedBytes
from veen_core.limits import DEFAULT_LIMITS
from veen_overlays.control.policy import FOREVER_SEC
from veen_overlays.recorder.records import CHANGES_STREAM, RECORD_NAMESPACE

PROFILE_KEYS: Final = frozenset(("profile", "realm", "max_payload_bytes", "checkpoints", "streams"))
DEFAULT_MAX_PAYLOAD_BYTES: Final = 65_536
FIELDS_RESERVE_BYTES: Final = 16_384
"""Room that a body needs besides the payload: the other fields of record.event.v1."""
MAX_PAYLOAD_BYTES: Final = DEFAULT_LIMITS.max_body_bytes - FIELDS_RESERVE_BYTES
"""Largest bound on payloads: the body of a MSG must have room for the payload (core §14.2)."""
DEFAULT_EVERY_SEC: Final = 300
DEFAULT_EVERY_EVENTS: Final = 10_000
LONG_TERM_SEC: Final = FOREVER_SEC
"""The retention_hint ``long_term`` of recorder streams (SDR0 3.2.2), in seconds (LCLASS0 6.1)."""
RECORD_CLASS: Final = "log"
"""The label class of recorder streams (LCLASS0 6.1)."""
MAX_NAME_BYTES: Final = 200
"""Longest name of a stream, an event type or a profile."""

_STREAM: Final = re.compile(r"record(/[A-Za-z0-9][A-Za-z0-9._-]*)+")
_EVENT_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")


class RecorderProfileId(FixedBytes):
    """``Ht("veen/recorder-profile", settings)``: identifies an SDR0 configuration (SDR0 3.2.4)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCadence:
    """When a checkpoint is due: by time, by volume, or by whichever comes first (SDR0 3.2.4)."""

    every_sec: int | None
    every_events: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderProfile:
    """The settings of a recorder that all its roles share."""

    name: str
    realm: str | None
    max_payload_bytes: int
    cadence: CheckpointCadence
    streams: Mapping[str, tuple[str, ...]]
    """The event types of each stream, in the order of the file."""

    @property
    def all_streams(self) -> tuple[str, ...]:
        """Every stream of the recorder: those of event types, then the management stream."""
        return (*self.streams, CHANGES_STREAM)

    def stream_of(self, event_type: str) -> str:
        """Return the one stream of an event type; raise ``ConfigError`` if it has none (SDR0 3.2.2)."""
        for stream, types in self.streams.items():
            if event_type in types:
                return stream
        raise ConfigError(
            f"event type {event_type[:MAX_NAME_BYTES]!r} belongs to no stream",
            action="add the event type to one stream in recorder.yaml",
        )

    def require_streams(self, names: tuple[str, ...]) -> None:
        """Raise ``ConfigError`` if a name is not a stream of event types."""
        for name in names:
            if name not in self.streams:
                known = ", ".join(self.streams)
                raise ConfigError(f"{name} is no stream of event types in recorder.yaml; it has {known}")

    @property
    def profile_id(self) -> RecorderProfileId:
        """The hash of all settings, in a fixed order."""
        streams = [[name, sorted(self.streams[name])] for name in sorted(self.streams)]
        cadence = [self.cadence.every_sec, self.cadence.every_events]
        item = [1, self.name, self.realm, self.max_payload_bytes, cadence, streams]
        return RecorderProfileId(Ht("veen/recorder-profile", cbor.encode(item)))


def parse_profile(settings: Mapping[str, Any]) -> RecorderProfile:
    """Check the shared settings of recorder.yaml; keys of roles are the caller's to check."""
    realm = settings.get("realm")
    if realm is not None and (not isinstance(realm, str) or not realm):
        raise ConfigError("realm must be text")
    return RecorderProfile(
        name=_profile_name(settings.get("profile")),
        realm=realm,
        max_payload_bytes=_integer(
            settings, "max_payload_bytes", DEFAULT_MAX_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES
        ),
        cadence=_cadence(settings.get("checkpoints")),
        streams=_streams(settings.get("streams")),
    )


def _profile_name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value.encode()) <= MAX_NAME_BYTES:
        raise ConfigError(f"profile must be given, as text of at most {MAX_NAME_BYTES} bytes")
    return value


def _integer(settings: Mapping[str, Any], key: str, default: int, most: int, within: str = "") -> int:
    value = settings.get(key, default)
    if type(value) is not int or not 1 <= value <= most:
        raise ConfigError(f"{within}{key} must be an integer from 1 to {most}")
    return value


def _cadence(value: Any) -> CheckpointCadence:
    if value is None:
        return CheckpointCadence(every_sec=DEFAULT_EVERY_SEC, every_events=DEFAULT_EVERY_EVENTS)
    known = ("every_sec", "every_events")
    if not isinstance(value, Mapping) or not value:
        raise ConfigError(f"checkpoints must be a mapping with {' or '.join(known)} (SDR0 3.2.4)")
    if unknown := next((key for key in value if key not in known), None):
        raise ConfigError(f"unknown setting checkpoints.{unknown}")
    found = {key: _integer(value, key, 0, 2**32, "checkpoints.") if key in value else None for key in known}
    return CheckpointCadence(**found)


def _streams(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping) or not value:
        raise ConfigError("streams must map each stream below record/ to its event types")
    found: dict[str, tuple[str, ...]] = {}
    owner: dict[str, str] = {}
    for name, types in value.items():
        check_stream_name(name)
        if not isinstance(types, list) or not types:
            raise ConfigError(f"streams.{name} must be a list of event types")
        for event_type in types:
            check_event_type(event_type)
            if event_type in owner:
                raise ConfigError(
                    f"event type {event_type} belongs to {owner[event_type]} and to {name}: an event type "
                    "has exactly one stream (SDR0 3.2.2)"
                )
            owner[event_type] = name
        found[name] = tuple(types)
    return found


def check_stream_name(name: Any) -> None:
    """Raise ``ConfigError`` unless this may be the stream of event types."""
    if not isinstance(name, str) or _STREAM.fullmatch(name) is None or len(name) > MAX_NAME_BYTES:
        raise ConfigError(
            f"{name!r} is no recorder stream: a name starts with {RECORD_NAMESPACE}, and its parts have "
            "letters, digits, dot, dash and underscore (products-spec-1 2.2)"
        )
    if name == CHANGES_STREAM:
        raise ConfigError(f"{name} carries migrations only, and no event types (SDR0 3.2.2)")


def check_event_type(name: Any) -> None:
    """Raise ``ConfigError`` unless this may be the name of an event type."""
    if not isinstance(name, str) or _EVENT_TYPE.fullmatch(name) is None or len(name) > MAX_NAME_BYTES:
        raise ConfigError(
            f"{name!r} is no event type: a name starts with a letter or digit and has letters, digits and "
            "._:/- only"
        )
