"""The YAML file of a role: typed settings, and the part that says how the role reaches its hub.

A role is one identity with the tokens for exactly the streams that it writes to: a bridge's (AGB0 4.3), a
recorder's (SDR0 3.2.3). The settings of ``RoleAccess`` are the same for every role; the rest is its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from veen_core.errors import ConfigError
from veen_core.ids import HubId
from veen_hub import yaml_file
from veen_hub.client.atomic_files import replace_file

ACCESS_KEYS: Final = frozenset(
    ("hub", "trust", "client", "tokens", "ca", "cert", "cert_key", "readers", "witnesses")
)
"""The settings that ``parse_access`` reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleAccess:
    """The hub of a role, and the files with its keys and tokens; paths are absolute."""

    hub: str
    """Address of the only hub that the role connects to."""
    trust: str
    """hub_id of that hub, in hex."""
    client: Path
    """Folder of the role's identity."""
    tokens: tuple[Path, ...] = ()
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None
    readers: tuple[Path, ...] = ()
    """Identity folders whose keys open the streams; messages are sealed to the first."""
    witnesses: Path | None = None
    """Witness policy that the hub's log must fulfil (RESOLUTIONS P2)."""


def read_settings(path: Path) -> dict[str, Any]:
    """Read a YAML file as a mapping of settings; a key given twice raises ``ConfigError``."""
    try:
        return yaml_file.read(path)
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}") from None


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Write settings as a YAML file, durably, in their order."""
    replace_file(path, yaml.safe_dump(dict(settings), sort_keys=False).encode())


@dataclass(frozen=True, slots=True)
class Settings:
    """Typed access to a mapping of settings; relative paths are below ``base``."""

    values: Mapping[str, Any]
    base: Path
    within: str = ""

    def require_known(self, known: Collection[str]) -> None:
        """Raise ``ConfigError`` if a setting is not one of ``known``."""
        if (unknown := next((key for key in self.values if key not in known), None)) is not None:
            raise ConfigError(f"unknown setting {self.within}{unknown}")

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


def parse_access(values: Settings) -> RoleAccess:
    """Check the settings that say how a role reaches its hub."""
    return RoleAccess(
        hub=values.text("hub"),
        trust=HubId.from_hex(values.text("trust")).hex(),
        client=values.path("client"),
        tokens=values.paths("tokens"),
        ca=values.optional_path("ca"),
        cert=values.optional_path("cert"),
        cert_key=values.optional_path("cert_key"),
        readers=values.paths("readers"),
        witnesses=values.optional_path("witnesses"),
    )
