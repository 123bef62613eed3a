"""bridge.yaml: the configuration of one role of an air-gap bridge (AGB0 4.2, 4.3; RESOLUTIONS P5).

    role: bridge_offline
    hub: https://hub.zone2.example      # the only hub that this role ever connects to
    trust: <hub_id>
    client: identity                    # folders and files are relative to this file
    tokens: [import.cap]
    operator: nightly import
    sources:                            # bridge_offline: whose bundles are accepted
      - hub_id: <hub_id>
        bridge_id: <client_id of bridge_online>
        mapping: [{from: "export/zone1/*", to: "import/zone1/*"}]
    mode: wrap                          # or reseal, which needs source_readers
    readers: [import-reader]            # whose keys seal and open the import streams
    streams: [import/zone1/orders]      # which streams the tokens are for

    role: bridge_online
    …
    streams: ["export/zone1/*"]         # which streams may be exported

A key of the other role is refused: a configuration has one direction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from veen_bridge.roles.mapping import DEFAULT_RULES, MappingRule, StreamMapping, check_one_to_one
from veen_core.errors import ConfigError, DecodeError
from veen_core.ids import ClientId, HubId, HubPk
from veen_core.stream import hub_id
from veen_hub.client.roles import ACCESS_KEYS, RoleAccess, Settings, parse_access, read_settings
from veen_overlays.bridge.records import OFFLINE_LOG, ONLINE_LOG

Role = Literal["bridge_online", "bridge_offline"]
ONLINE: Final = "bridge_online"
OFFLINE: Final = "bridge_offline"
AUDIT_STREAMS: Final = {ONLINE: ONLINE_LOG, OFFLINE: OFFLINE_LOG}

EXPORT_PREFIX: Final = "export/"
RECORD_PREFIX: Final = "record/"
_STREAM_ID: Final = re.compile("[0-9a-fA-F]{64}")
IMPORT_PREFIX: Final = "import/"

_COMMON: Final = ACCESS_KEYS - {"witnesses"} | {"role", "operator", "streams"}
_OWN: Final = {
    ONLINE: frozenset(("witnesses",)),
    OFFLINE: frozenset(("sources", "mode", "source_readers")),
}
_SOURCE_KEYS: Final = frozenset(("hub_id", "bridge_id", "mapping", "witnesses", "log_origin"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHub:
    """A source hub whose bundles bridge_offline accepts."""

    hub_id: HubId
    bridge_id: ClientId | None = None
    """The key of the bridge_online that makes the bundles; None accepts any bridge of this hub."""
    mapping: StreamMapping = field(default_factory=StreamMapping)
    witnesses: Path | None = None
    """Witness policy that the hub checkpoint of a bundle must fulfil."""
    log_origin: str | None = None
    """The configured name of the source's hub log; None: the default name of P1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeConfig:
    """The settings of one role; paths are absolute."""

    role: Role
    access: RoleAccess
    """The role's own hub: the source hub of bridge_online, the target hub of bridge_offline."""
    operator: str = "unnamed"
    """The operator or automation that audit records name (AGB0 4.6)."""
    streams: tuple[str, ...] = ()
    """bridge_online: the streams that may be exported. bridge_offline: the import streams of its tokens."""
    sources: tuple[SourceHub, ...] = ()
    mode: Literal["wrap", "reseal"] = "wrap"
    source_readers: tuple[Path, ...] = ()
    """Identity folders whose keys open the messages of the source, for mode reseal."""

    @property
    def hub(self) -> str:
        return self.access.hub

    @property
    def trust(self) -> str:
        return self.access.trust

    @property
    def trusted_hubs(self) -> frozenset[HubId]:
        """The hub_ids that ``trust`` may stand for: its own value, and the hub_id of a first hub_pk."""
        return frozenset((HubId.from_hex(self.trust), hub_id(HubPk.from_hex(self.trust))))

    @property
    def client(self) -> Path:
        return self.access.client

    @property
    def tokens(self) -> tuple[Path, ...]:
        return self.access.tokens

    @property
    def audit_stream(self) -> str:
        return AUDIT_STREAMS[self.role]

    def require(self, role: Role, command: str) -> None:
        """Raise ``ConfigError`` unless the configuration has this role."""
        if self.role != role:
            raise ConfigError(
                f"`veen bridge {command}` needs a configuration with role {role}, this one has {self.role}: "
                "one identity serves one zone and one direction (RESOLUTIONS P5)",
                action=f"give the configuration that `veen bridge init --role {role}` wrote",
            )

    def source(self, hub: HubId) -> SourceHub | None:
        """The settings of a source hub; None if its bundles are not accepted."""
        return next((each for each in self.sources if each.hub_id == hub), None)


def load_config(path: Path) -> BridgeConfig:
    """Read and check bridge.yaml; raise ``ConfigError``."""
    if not path.exists():
        raise ConfigError(
            f"{path}: no such file",
            action="name the role's file with --config, or make a role with `veen bridge init`",
        )
    settings = read_settings(path)
    try:
        return parse_config(settings, path.parent.absolute())
    except (ConfigError, DecodeError) as exc:
        raise ConfigError(f"{path}: {exc}") from None


def parse_config(settings: Mapping[str, Any], base: Path) -> BridgeConfig:
    """Check settings; relative paths are below ``base``."""
    role = settings.get("role")
    if role not in (ONLINE, OFFLINE):
        raise ConfigError(f"role must be {ONLINE} or {OFFLINE}")
    for key in settings:
        if key in _OWN[OFFLINE if role == ONLINE else ONLINE]:
            raise ConfigError(
                f"{key} does not belong to role {role}: a configuration has one direction (RESOLUTIONS P5)"
            )
    values = Settings(settings, base)
    values.require_known(_COMMON | _OWN[role])
    config = BridgeConfig(
        role=role,
        access=parse_access(values),
        operator=values.text("operator", "unnamed"),
        streams=values.texts("streams"),
        sources=tuple(_source(each, base) for each in values.items("sources")),
        mode=_mode(values.text("mode", "wrap")),
        source_readers=values.paths("source_readers"),
    )
    _check(config)
    return config


def _mode(text: str) -> Literal["wrap", "reseal"]:
    if text == "wrap":
        return "wrap"
    if text == "reseal":
        return "reseal"
    raise ConfigError(f"mode must be wrap or reseal, not {text!r} (RESOLUTIONS P4)")


def _source(item: Any, base: Path) -> SourceHub:
    if not isinstance(item, dict):
        raise ConfigError("each of `sources` must be a mapping with hub_id")
    values = Settings(item, base, "sources.")
    values.require_known(_SOURCE_KEYS)
    bridge = values.text("bridge_id", "")
    rules = tuple(_rule(each) for each in values.items("mapping"))
    return SourceHub(
        hub_id=HubId.from_hex(values.text("hub_id")),
        bridge_id=ClientId.from_hex(bridge) if bridge else None,
        mapping=StreamMapping(rules=rules or DEFAULT_RULES),
        witnesses=values.optional_path("witnesses"),
        log_origin=values.text("log_origin", "") or None,
    )


def _rule(item: Any) -> MappingRule:
    if not isinstance(item, dict) or set(item) != {"from", "to"}:
        raise ConfigError('each rule of `mapping` must be {from: "export/…", to: "import/…"}')
    return MappingRule.of(str(item["from"]), str(item["to"]))


def _check(config: BridgeConfig) -> None:
    hubs = [source.hub_id for source in config.sources]
    if len(set(hubs)) < len(hubs):
        raise ConfigError("sources: one hub_id is listed twice")
    if not config.trusted_hubs.isdisjoint(hubs):
        raise ConfigError("the target hub is also listed in `sources`: events would lead back (AGB0 J3)")
    if config.role == ONLINE:
        _check_export_streams(config.streams)
    else:
        check_import_streams(config.streams, config.sources)
    check_one_to_one((source.hub_id, source.mapping) for source in config.sources)
    if config.mode == "reseal" and not config.source_readers:
        raise ConfigError("mode reseal needs source_readers: the bridge must open what it seals again (P4)")


def _check_export_streams(streams: Sequence[str]) -> None:
    """Refuse a stream that may not leave the zone (AGB0 4.3).

    bridge_online reads export/*, and the streams of record/* that are named one by one (products-spec-1 2.3,
    5.1): queries and their digests cross as recorder streams (query-api §9.1). An id does not show a name.
    """
    for name in streams:
        is_record = name.startswith(RECORD_PREFIX) and "*" not in name
        if not (is_record or name.startswith(EXPORT_PREFIX) or _STREAM_ID.fullmatch(name)):
            raise ConfigError(
                f"bridge_online may not export stream {name}: it reads streams below {EXPORT_PREFIX}, and "
                f"single streams below {RECORD_PREFIX} (AGB0 4.3)",
                action="let the application write what may leave the zone to a stream below "
                f"{EXPORT_PREFIX}, or name each recorder stream",
            )


def check_import_streams(streams: Sequence[str], sources: Sequence[SourceHub]) -> None:
    """Refuse a stream that no mapping rule writes to, or that is not below import/ (P5)."""
    for name in streams:
        if not name.startswith(IMPORT_PREFIX) or "*" in name:
            raise ConfigError(
                f"bridge_offline may not write to stream {name}: it writes to streams below {IMPORT_PREFIX} "
                "only, each named in full (AGB0 4.3)"
            )
        rules = (rule for source in sources for rule in source.mapping.rules)
        if not any(rule.target.match(name) is not None for rule in rules):
            raise ConfigError(f"bridge_offline may not write to stream {name}: no mapping rule leads to it")
