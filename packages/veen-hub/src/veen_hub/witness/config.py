"""witness.yaml: every setting of a witness, declared once, with its type, default and bounds.

    logs:
      - keys:
          - veen.hub/5f…+1a2b3c4d+AbC…
    listen:
      host: 0.0.0.0
      port: 8090

The strings below the settings are the text of docs/guides/run-a-witness.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal

from veen_core.errors import ConfigError
from veen_core.tlog.note import ED25519, NoteKey
from veen_hub import yaml_file
from veen_hub.ops.config import INT_MAX
from veen_hub.ops.config.schema import build
from veen_hub.witness.rules import LogKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """A log that the witness cosigns."""

    keys: tuple[NoteKey, ...]
    """The log's verifier keys, as `veen hub keys --note` prints a hub's; several during a key rotation."""
    origin: str | None = None
    """First line of the log's checkpoints; by default the name of its keys."""

    def __post_init__(self) -> None:
        if not self.keys:
            raise ConfigError("logs: a log has no keys; give its verifier keys, or remove it")
        for key in self.keys:
            check_log_key(key)
        names = sorted({key.name for key in self.keys})
        if self.origin is None and len(names) > 1:
            raise ConfigError(f"logs: set origin, because the keys have different names: {', '.join(names)}")

    @property
    def name(self) -> str:
        return self.origin if self.origin is not None else self.keys[0].name


def check_log_key(key: NoteKey) -> None:
    """Refuse the verifier key of a witness."""
    if key.kind != ED25519:
        raise ConfigError(
            f"logs: {key.name} is the key of a witness, not of a log; `veen hub keys --note` prints a "
            "hub's log key"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """The witness's address and its limits."""

    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` or `::` listens on every address."""
    port: int = 8090
    """Port to listen on; 0 takes a free one."""
    prefix: str = ""
    """Path before `/add-checkpoint` and the other routes, such as `/witness`."""
    max_connections: int = 1_024
    """Open connections, TLS handshakes included. A further connection is answered with 503 and closed."""
    backlog: int = 128
    """Connections that wait in the operating system's queue to be accepted."""
    request_timeout_sec: int = 10
    """A request whose body has not arrived after this time is refused."""
    slow_client_sec: int = 10
    """A client that does not read its answers for this long is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessTls:
    """TLS: 1.2 or later, AEAD suites only. Clients need no certificate, because checkpoints are signed."""

    cert: Path
    """PEM file with the witness's certificate chain."""
    key: Path
    """PEM file with the certificate's private key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessConfig:
    """All settings of a witness; its name and key are in its folder."""

    logs: tuple[LogSettings, ...] = ()
    listen: Listen = Listen()
    tls: WitnessTls | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log events to write."""

    def __post_init__(self) -> None:
        for key, (least, most) in BOUNDS.items():
            if not least <= (value := attrgetter(key)(self)) <= most:
                raise ConfigError(f"{key}: {value} is not between {least} and {most}")
        if not self.listen.host:
            raise ConfigError('listen.host: empty; "0.0.0.0" or "::" listens on every address')
        prefix = self.listen.prefix
        if prefix and not (prefix.startswith("/") and not prefix.endswith("/") and prefix.isprintable()):
            raise ConfigError("listen.prefix: must begin with / and must not end with it, such as /witness")
        names = [log.name for log in self.logs]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(
                f"logs: {', '.join(sorted(twice))} is listed twice; put its keys into one entry"
            )

    @property
    def log_keys(self) -> LogKeys:
        return {log.name: log.keys for log in self.logs}


BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "listen.port": (0, 65_535),
    "listen.max_connections": (1, INT_MAX),
    "listen.backlog": (1, INT_MAX),
    "listen.request_timeout_sec": (1, INT_MAX),
    "listen.slow_client_sec": (1, INT_MAX),
}
"""Smallest and largest value of a setting."""


def load(path: Path, overrides: Mapping[str, Mapping[str, Any]]) -> WitnessConfig:
    """Load the file; ``overrides`` are settings by section, which win over the file's."""
    settings = yaml_file.read(path)
    for section, values in overrides.items():
        given = settings.get(section) or {}
        if values and isinstance(given, Mapping):  # else the schema refuses the section
            settings[section] = {**given, **values}
    try:
        made = build(WitnessConfig, settings, "")
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc}") from None
    assert isinstance(made, WitnessConfig)
    return made
