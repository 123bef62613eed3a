"""The choice of a transport: the one that the scheme of the hub's address names (§10.3, DR0)."""

from __future__ import annotations

from importlib.util import find_spec

from veen_core.errors import ConfigError
from veen_hub.client.wire.http_transport import HttpTransport
from veen_hub.client.wire.transport import HubTransport, Timeouts, Tls


def transport_to(url: str, *, tls: Tls | None, timeouts: Timeouts) -> HubTransport:
    """Make the transport to a hub: HTTP/1.1, HTTP/3, NATS, or files."""
    scheme = url.partition("://")[0]
    if scheme in ("nats", "tls"):
        _require("nats", "nats-py", "veen-hub[nats]", url)
        from veen_hub.client.wire.nats_transport import NatsTransport  # noqa: PLC0415 - an optional package

        return NatsTransport(url, tls=tls, timeouts=timeouts)
    if scheme == "h3":
        _require("aioquic", "aioquic", "veen-hub[h3]", url)
        from veen_hub.client.wire.h3_transport import H3Transport  # noqa: PLC0415 - an optional package

        return H3Transport(url, tls=tls, timeouts=timeouts)
    if scheme == "file":
        from veen_hub.client.wire.file_transport import FileTransport  # noqa: PLC0415 - rarely used

        return FileTransport(url, tls=tls, timeouts=timeouts)
    return HttpTransport(url, tls=tls, timeouts=timeouts)


def _require(module: str, package: str, extra: str, url: str) -> None:
    if find_spec(module) is None:
        scheme = url.partition("://")[0]
        raise ConfigError(f"{scheme}:// needs the package {package}", action=f"install {extra}")
