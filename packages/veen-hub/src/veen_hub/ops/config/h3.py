"""The section ``h3`` of hub.yaml: HTTP/3 in addition to HTTP/1.1 (DR0, ADR 0031)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from veen_hub.ops.config.setting_error import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class H3Settings:
    """HTTP/3 on a UDP port, with the certificate of `tls`; needs `veen-hub[h3]` (DR0).

    Answers over HTTP/1.1 announce HTTP/3 in the header `Alt-Svc`.
    """

    host: str | None = None
    """Address to listen on; by default `listen.host`."""
    port: int | None = None
    """UDP port to listen on; by default the number of the API's TCP port."""
    max_connections: int = 4_096
    """Open connections, handshakes included; datagrams of further ones are dropped."""

    def __post_init__(self) -> None:
        if find_spec("aioquic") is None:
            raise SettingError("h3", "the package aioquic is not installed", action="install veen-hub[h3]")
