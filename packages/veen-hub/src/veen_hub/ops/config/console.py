"""The section ``console`` of hub.yaml: a listener for people who look at the hub in a browser (ADR 0030)."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from veen_hub.ops.config.setting_error import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The console's listener; without this section the hub has none.

    It serves one static page, the calls that read the hub, `/readyz` and `/metrics`. It accepts no
    message and no admin's call.
    """

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int | None = None
    """Port to listen on; by default `listen.port` + 2, or any free one if `listen.port` is 0."""
    token_file: Path | None = None
    """File with the token that readers need; without it, all clients that reach the address read the log."""
    beyond_loopback: bool = False
    """Allow an address that other machines reach; needs `tls` and `console.token_file`."""
    max_connections: int = 256
    """Open connections; a further connection is closed."""

    def __post_init__(self) -> None:
        if self.is_beyond_loopback and not self.beyond_loopback:
            raise SettingError(
                "console.host",
                f"{self.host} can be reached from other machines; use 127.0.0.1, or set "
                "console.beyond_loopback, console.token_file and tls",
            )
        if self.is_beyond_loopback and self.token_file is None:
            raise SettingError(
                "console.token_file", f"missing; {self.host} can be reached from other machines"
            )

    @property
    def is_beyond_loopback(self) -> bool:
        """Whether other machines reach the address."""
        try:
            return not ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"
