"""The connection of a role to its own hub, the only one that an export or an import opens (AGB0 4.3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from veen_bridge.roles.config import BridgeConfig
from veen_core.errors import ConfigError
from veen_core.ids import ClientId, HubId
from veen_core.keys import DhKey
from veen_hub.client import Hub, Identity, Retry, Stream
from veen_hub.client.roles import Unlock, connect_role, dh_keys_of, load_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleKeys:
    """The keys of a role: its own identity, and the reader keys of its streams."""

    identity: Identity
    readers: tuple[DhKey, ...]
    """Reader keys of this zone's streams; empty if they are sealed to the role's own key."""
    source_readers: tuple[DhKey, ...]
    source_reader_ids: tuple[ClientId, ...] = ()
    """The identity keys in the folders of the source's reader keys."""

    @classmethod
    def load(cls, config: BridgeConfig, unlock: Unlock = load_plain) -> RoleKeys:
        sources = [Identity.of(unlock(folder)) for folder in config.source_readers]
        return cls(
            identity=Identity.of(unlock(config.client)),
            readers=dh_keys_of(config.access.readers, unlock),
            source_readers=tuple(key for each in sources for key in each.dh_keys),
            source_reader_ids=tuple(each.client_id for each in sources),
        )

    @property
    def bridge_id(self) -> ClientId:
        """The role's identity key, by which records name the bridge."""
        return self.identity.client_id

    @property
    def opening(self) -> tuple[DhKey, ...]:
        """The keys that open the streams of this zone."""
        return (*self.readers, *self.identity.dh_keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSession:
    """A role that is connected to its hub."""

    config: BridgeConfig
    keys: RoleKeys
    hub: Hub

    def stream(self, name: str) -> Stream:
        """A stream of the hub, sealed to its readers, or to the bridge's own key if none are configured."""
        return self.hub.stream(name, readers=self.keys.readers)

    @property
    def audit(self) -> Stream:
        """The role's audit stream (AGB0 4.6)."""
        return self.stream(self.config.audit_stream)


def check_one_side(config: BridgeConfig, keys: RoleKeys) -> None:
    """Refuse a role that holds a key that signs in the source zone (RESOLUTIONS P5)."""
    for source in config.sources:
        if source.bridge_id == keys.bridge_id:
            raise ConfigError(
                f"bridge_offline {keys.bridge_id.hex()} has the key of the bridge_online of hub "
                f"{source.hub_id.hex()}: one key may not serve both zones (RESOLUTIONS P5)",
                action="make an identity for this zone with `veen bridge init --role bridge_offline`",
            )
        if source.bridge_id is not None and source.bridge_id in keys.source_reader_ids:
            raise ConfigError(
                f"source_readers has the signing key of the bridge_online of hub {source.hub_id.hex()}: "
                "bridge_offline could write in the source zone (RESOLUTIONS P5)",
                action="give bridge_offline a reader key that no role signs with (`veen keygen`)",
            )


def check_own_hub(config: BridgeConfig, hub: HubId) -> None:
    """Refuse a hub that ``trust`` names by a hub_pk, and one that is also a source (AGB0 J3)."""
    if config.source(hub) is not None:
        raise ConfigError("the target hub is also listed in `sources`: events would lead back (AGB0 J3)")
    if hub.hex() != config.trust:
        raise ConfigError(
            f"trust in bridge.yaml is a hub_pk: {config.trust}",
            action=f"write trust: {hub.hex()}, the hub_id",
        )


@asynccontextmanager
async def open_session(
    config: BridgeConfig, keys: RoleKeys, *, retry: Retry | None = None
) -> AsyncIterator[RoleSession]:
    """Connect to the role's hub and authorize its tokens.

    The client's state in the identity's folder saves work. Nothing depends on it: without it, the state of
    the bridge is folded from the logs (RESOLUTIONS P8).
    """
    check_one_side(config, keys)
    async with connect_role(config.access, keys.identity, retry=retry) as hub:
        check_own_hub(config, hub.hub_id)
        yield RoleSession(config=config, keys=keys, hub=hub)
