"""The section ``nats`` of hub.yaml: the hub as a NATS service (DR0, ADR 0031)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from veen_hub.nats.subjects import is_prefix
from veen_hub.ops.config.setting_error import SettingError

SCHEMES: Final = ("nats", "tls")


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsSettings:
    """The hub as a NATS service; without this section the hub uses no NATS (DR0). Needs `veen-hub[nats]`.

    If the NATS servers cannot be reached when the hub starts, it connects later.
    """

    servers: tuple[str, ...] = ()
    """Addresses of one NATS cluster: `nats://host:4222`, or `tls://host:4222` to insist on TLS."""
    prefix: str | None = None
    """Beginning of this hub's subjects; by default `veen.` and its hub_id, "" for DR0's bare subjects."""
    ca: Path | None = None
    """PEM file, if this machine does not trust the certificates of the NATS servers."""
    cert: Path | None = None
    """PEM file with the hub's certificate, if the NATS servers require one."""
    key: Path | None = None
    """PEM file with the private key of `nats.cert`."""
    user: str | None = None
    """The hub's user at the NATS servers."""
    secret_file: Path | None = None
    """File with the user's password; without `nats.user`, with a token."""
    max_requests: int = 1_024
    """Requests in progress; a further request is answered with E.UNAVAILABLE."""
    max_followers: int = 1_024
    """Live streams; a further one is answered with E.UNAVAILABLE."""
    without_certificates: bool = False
    """Serve readers without a certificate although `tls.client_ca` is set: NATS decides who connects."""

    def __post_init__(self) -> None:
        if find_spec("nats") is None:
            raise SettingError(
                "nats", "the package nats-py is not installed", action="install veen-hub[nats]"
            )
        if not self.servers:
            raise SettingError("nats.servers", "missing; give at least one address like tls://host:4222")
        for each in self.servers:
            _check_server(each)
        if self.prefix is not None and not is_prefix(self.prefix):
            raise SettingError(
                "nats.prefix",
                f"{self.prefix!r} is not a subject; use words of letters, digits, - and _, separated by dots",
            )
        if self.key is not None and self.cert is None:
            raise SettingError("nats.key", "has no effect without nats.cert")
        if self.user is not None and self.secret_file is None:
            raise SettingError("nats.secret_file", "missing; nats.user needs a password")
        if self.ca is not None and not self.uses_tls:
            raise SettingError("nats.ca", "has no effect unless nats.servers begin with tls://")

    @property
    def uses_tls(self) -> bool:
        """Whether the connection must be TLS."""
        return any(each.startswith("tls://") for each in self.servers) or self.cert is not None

    def context(self) -> ssl.SSLContext | None:
        """Load the TLS files; raises ``ConfigError``."""
        if not self.uses_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except OSError as exc:
            raise SettingError("nats.ca, nats.cert, nats.key", f"cannot be loaded: {exc}") from None
        return context

    def secret(self) -> str | None:
        """Read the password or token; raises ``ConfigError``."""
        if self.secret_file is None:
            return None
        try:
            return self.secret_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise SettingError("nats.secret_file", f"{self.secret_file} cannot be read: {exc}") from None


def _check_server(url: str) -> None:
    """Check ``nats://host[:port]``. The error does not repeat the address: it may contain a password."""
    want = "each must be nats://host[:port] or tls://host[:port]"
    try:
        found = urlsplit(url)
        named = bool(found.hostname) and found.port != 0
    except ValueError:
        raise SettingError("nats.servers", f"{want}; a host or port is not valid") from None
    if "@" in found.netloc:
        raise SettingError(
            "nats.servers", f"{want}; write user and password into nats.user and nats.secret_file"
        )
    if found.scheme not in SCHEMES or not named or found.path not in ("", "/") or "?" in url:
        raise SettingError("nats.servers", want)
