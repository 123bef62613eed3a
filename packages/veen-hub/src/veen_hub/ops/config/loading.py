"""Load hub.yaml. Precedence: command-line flags, then ``VEEN_*`` variables, then the file, then defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veen_core.errors import ConfigError
from veen_hub import yaml_file
from veen_hub.ops.config.hub_config import HubConfig
from veen_hub.ops.config.schema import build, kind_name
from veen_hub.ops.config.setting_error import SettingError


def load(path: Path | None, overrides: Mapping[str, Any]) -> HubConfig:
    """Load the file and apply ``overrides``, whose keys are dotted."""
    settings = yaml_file.read(path) if path is not None else {}
    for old, new in ALIASES.items():
        if old in settings:
            settings.setdefault(new, settings.pop(old))
    try:
        for key, value in overrides.items():
            _set(settings, key.split("."), value)
        made = build(HubConfig, settings, "")
    except ConfigError as exc:
        if path is None or (isinstance(exc, SettingError) and exc.key in overrides):
            raise
        raise ConfigError(f"{path}: {exc.message}", action=exc.action) from None
    assert isinstance(made, HubConfig)
    return made


ALIASES: Mapping[str, str] = {"hub_profile": "role"}
"""Other names of settings, as spec-4 §5.3 uses them in its ConfigMaps."""


def _set(settings: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        if settings.get(key) is None:  # or a section whose every line is commented out
            settings[key] = {}
        settings = settings[key]
        if not isinstance(settings, dict):
            raise SettingError(key, f"must be a mapping, not {kind_name(settings)}")
    settings[keys[-1]] = value


ENVIRONMENT: Mapping[str, str] = {
    "VEEN_ROLE": "role",
    "VEEN_TENANT_ID": "tenant_id",
    "VEEN_UNIVERSE_ID": "universe_id",
    "VEEN_LOG_LEVEL": "log_level",
    "VEEN_DATA_DIR": "data_dir",
    "VEEN_KEYS_DIR": "keys_dir",
    "VEEN_AUTHORITY_URL": "authority_url",
    "VEEN_REPLICA_OF": "replica_of",
    "VEEN_LISTEN_HOST": "listen.host",
    "VEEN_LISTEN_PORT": "listen.port",
    "VEEN_PROBES_HOST": "probes.host",
    "VEEN_PROBES_PORT": "probes.port",
    "VEEN_TLS_CERT": "tls.cert",
    "VEEN_TLS_KEY": "tls.key",
    "VEEN_HEADS_FILE": "hub_log.memories.heads_file",
    "VEEN_ANCHOR_BACKEND": "anchor.backend",
    "VEEN_ANCHOR_PATH": "anchor.path",
}


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that ``VEEN_*`` variables override."""
    found: dict[str, Any] = {}
    for variable, key in ENVIRONMENT.items():
        if value := environment.get(variable):
            found[key] = int(value) if key.endswith(".port") and value.isdecimal() else value
    return found
