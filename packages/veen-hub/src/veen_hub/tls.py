"""TLS: 1.2 and up, AEAD suites only, no compression; client certificates if asked for (SH0.3, COMP0.3)."""

from __future__ import annotations

import ssl

from veen_core.errors import ConfigError
from veen_hub.config import Tls


def server_context(settings: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(settings.cert, settings.key)
        if settings.client_ca is not None:
            context.load_verify_locations(settings.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as exc:
        raise ConfigError(
            f"tls: {settings.cert}, {settings.key} or {settings.client_ca} cannot be used: {exc}"
        ) from None
    return context
