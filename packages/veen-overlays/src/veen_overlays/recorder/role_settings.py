"""The part of recorder.yaml that one role adds to the shared profile (SDR0 3.2.3).

    role: recorder_producer
    origin: shop                        # the component that the events name
    writes: [record/app/orders]         # the streams of the role's token
    recipient: <X25519 key in hex>      # whom events are sealed to: the recorder's reader
    realm_recipient: <key in hex>       # recorder_admin: whom label classes are sealed to
    producers: [<client_id in hex>]     # known producers, none of which may administer

``hub``, ``trust``, ``client``, ``tokens`` and ``readers`` say how the role reaches its hub; the package that
connects checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from veen_core.errors import ConfigError, DecodeError
from veen_core.ids import ClientId, DhPublicKey, FixedBytes
from veen_overlays.recorder.profile import PROFILE_KEYS, RecorderProfile, parse_profile
from veen_overlays.recorder.roles import ADMIN, PRODUCER, Role, writable_streams

ROLE_KEYS: Final = frozenset(("role", "origin", "writes", "recipient", "realm_recipient", "producers"))
F = TypeVar("F", bound=FixedBytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderRole:
    """The profile of a recorder, and the settings of one role."""

    profile: RecorderProfile
    role: Role | None = None
    """None for a file that has the shared profile only."""
    origin: str = ""
    writes: tuple[str, ...] = ()
    recipient: DhPublicKey | None = None
    """The key that events are sealed to; None seals to the role's own key."""
    realm_recipient: DhPublicKey | None = None
    """The key that label classes are sealed to: that of the realm's readers, its hubs among them."""
    producers: tuple[ClientId, ...] = ()

    def require(self, role: Role, command: str) -> None:
        """Raise ``ConfigError`` unless the file has this role."""
        if self.role != role:
            raise ConfigError(
                f"`veen record {command}` needs a recorder.yaml with role {role}, this one has "
                f"{self.role or 'none'}",
                action=f"give the file that `veen record init --role {role}` wrote",
            )


def parse_role(settings: Mapping[str, Any]) -> RecorderRole:
    """Check the settings of recorder.yaml, without those that reach the hub; raise ``ConfigError``."""
    if unknown := next((key for key in settings if key not in PROFILE_KEYS | ROLE_KEYS), None):
        raise ConfigError(f"unknown setting {unknown}")
    profile = parse_profile(settings)
    role = _role(settings.get("role"))
    writes = _texts(settings, "writes")
    if role is not None:
        writable_streams(profile, role, writes)  # refuses streams that do not belong to the role
    origin = settings.get("origin", "")
    if not isinstance(origin, str) or (role == PRODUCER and not origin):
        raise ConfigError("origin must be given, as text: the component that the events name")
    return RecorderRole(
        profile=profile,
        role=role,
        origin=origin,
        writes=writes,
        recipient=_key(settings, "recipient"),
        realm_recipient=_key(settings, "realm_recipient"),
        producers=tuple(_from_hex(ClientId, "producers", each) for each in _texts(settings, "producers")),
    )


def _role(value: Any) -> Role | None:
    if value is None:
        return None
    if value == PRODUCER:
        return PRODUCER
    if value == ADMIN:
        return ADMIN
    raise ConfigError(f"role must be {PRODUCER} or {ADMIN}")


def _texts(settings: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = settings.get(key) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{key} must be a list of text")
    if len(set(value)) < len(value):
        raise ConfigError(f"{key} lists an item twice")
    return tuple(value)


def _key(settings: Mapping[str, Any], name: str) -> DhPublicKey | None:
    value = settings.get(name)
    return None if value is None else _from_hex(DhPublicKey, name, value)


def _from_hex(kind: type[F], key: str, value: Any) -> F:
    if not isinstance(value, str):
        raise ConfigError(f"{key} must be text in hex")
    try:
        return kind.from_hex(value)
    except DecodeError as exc:
        raise ConfigError(f"{key}: {exc}") from None
