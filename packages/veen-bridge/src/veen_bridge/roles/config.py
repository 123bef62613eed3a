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

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from veen_bridge.roles.mapping import DEFAULT_RULES, MappingRule, StreamMapping, check_one_to_one
from veen_core.errors import ConfigError, DecodeError
from veen_core.ids import ClientId, HubId
from veen_overlays.bridge.records import OFFLINE_LOG, ONLINE_LOG

Role = Literal["bridge_online", "bridge_offline"]
ONLINE: Final = "bridge_online"
OFFLINE: Final = "bridge_offline"
AUDIT_STREAMS: Final = {ONLINE: ONLINE_LOG, OFFLINE: OFFLINE_LOG}

_COMMON: Final = frozenset(
    ("role", "hub", "trust", "client", "tokens", "operator", "ca", "cert", "cert_key", "readers", "streams")
)
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
    """Name of the source's hub log, if it is configured with another than the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeConfig:
    """The settings of one role; paths are absolute."""

    role: Role
    hub: str
    """Address of the role's own hub: the source hub of bridge_online, the target hub of bridge_offline."""
    trust: str
    """hub_id of that hub, in hex."""
    client: Path
    """Folder of the role's identity."""
    tokens: tuple[Path, ...] = ()
    operator: str = "unnamed"
    """The operator or automation that audit records name (AGB0 4.6)."""
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None
    readers: tuple[Path, ...] = ()
    """Identity folders whose keys open the streams of this zone; messages are sealed to the first."""
    streams: tuple[str, ...] = ()
    """bridge_online: the streams that may be exported. bridge_offline: the import streams of its tokens."""
    witnesses: Path | None = None
    sources: tuple[SourceHub, ...] = ()
    mode: Literal["wrap", "reseal"] = "wrap"
    source_readers: tuple[Path, ...] = ()
    """Identity folders whose keys open the messages of the source, for mode reseal."""

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


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise ConfigError(f"{twice} is given twice")
        return super().construct_mapping(node, deep)


def load_config(path: Path) -> BridgeConfig:
    """Read and check bridge.yaml; raise ``ConfigError``."""
    try:
        settings = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a SafeLoader
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} is not YAML: {exc}") from None
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc}") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{path} must be a mapping of settings")
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
        if key not in _COMMON | _OWN[role]:
            raise ConfigError(f"unknown setting {key}")
    values = _Settings(settings, base)
    config = BridgeConfig(
        role=role,
        hub=values.text("hub"),
        trust=HubId.from_hex(values.text("trust")).hex(),
        client=values.path("client"),
        tokens=values.paths("tokens"),
        operator=values.text("operator", "unnamed"),
        ca=values.optional_path("ca"),
        cert=values.optional_path("cert"),
        cert_key=values.optional_path("cert_key"),
        readers=values.paths("readers"),
        streams=values.texts("streams"),
        witnesses=values.optional_path("witnesses"),
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
    if unknown := next((key for key in item if key not in _SOURCE_KEYS), None):
        raise ConfigError(f"unknown setting sources.{unknown}")
    values = _Settings(item, base, "sources.")
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
    if any(hub.hex() == config.trust for hub in hubs):
        raise ConfigError("the target hub is also listed in `sources`: events would lead back (AGB0 J3)")
    check_one_to_one((source.hub_id, source.mapping) for source in config.sources)
    if config.mode == "reseal" and not config.source_readers:
        raise ConfigError("mode reseal needs source_readers: the bridge must open what it seals again (P4)")


@dataclass(frozen=True, slots=True)
class _Settings:
    """Typed access to a mapping of settings."""

    values: Mapping[str, Any]
    base: Path
    within: str = ""

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str) or (not value and default is None):
            raise ConfigError(f"{self.within}{key} must be given, as text")
        return value

    def items(self, key: str) -> list[Any]:
        value = self.values.get(key) or []
        if not isinstance(value, list):
            raise ConfigError(f"{self.within}{key} must be a list")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        items = self.items(key)
        if not all(isinstance(each, str) and each for each in items):
            raise ConfigError(f"{self.within}{key} must be a list of names")
        return tuple(items)

    def path(self, key: str) -> Path:
        return self.base / Path(self.text(key)).expanduser()

    def optional_path(self, key: str) -> Path | None:
        return self.path(key) if self.values.get(key) is not None else None

    def paths(self, key: str) -> tuple[Path, ...]:
        return tuple(self.base / Path(each).expanduser() for each in self.texts(key))
