"""The error of one setting: it knows the setting's key, so that the loader can tell file and flag apart."""

from __future__ import annotations

from veen_core.errors import ConfigError


class SettingError(ConfigError):
    """A setting is not allowed; ``key`` is its dotted name in hub.yaml."""

    def __init__(self, key: str, what: str, *, action: str | None = None) -> None:
        super().__init__(f"{key}: {what}", action=action)
        self.key = key
