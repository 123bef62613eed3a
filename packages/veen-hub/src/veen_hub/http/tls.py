"""TLS 1.2 or later, AEAD suites only, no compression; client certificates if configured (SH0.3, COMP0.3)."""

from __future__ import annotations

import ssl
from pathlib import Path

from veen_core.errors import ConfigError
from veen_hub.ops.config import Tls


def server_context(settings: Tls) -> ssl.SSLContext:
    """Make the TLS context of the API's listener."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    for name in ("cert", "key", "client_ca"):
        _check_readable(f"tls.{name}", getattr(settings, name))
    try:
        context.load_cert_chain(settings.cert, settings.key)
    except OSError as exc:  # also if a file is not PEM, or the key does not match the certificate
        raise ConfigError(
            f"tls.cert, tls.key: {settings.cert} and {settings.key} cannot be used together: {exc}"
        ) from None
    if settings.client_ca is not None:
        try:
            context.load_verify_locations(settings.client_ca)
        except OSError as exc:
            raise ConfigError(f"tls.client_ca: {settings.client_ca} cannot be used: {exc}") from None
        always = settings.client_certificate == "always"
        context.verify_mode = ssl.CERT_REQUIRED if always else ssl.CERT_OPTIONAL
    return context


def _check_readable(name: str, path: Path | None) -> None:
    """Raise an error that names a file that cannot be read; OpenSSL's errors do not name it."""
    try:
        if path is not None:
            path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"{name}: {path}: {exc.strerror}") from None
