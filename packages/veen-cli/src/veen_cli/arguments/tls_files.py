"""The files of a TLS connection, checked before the hub is contacted (spec-2 COMP0.3)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from veen_hub.client import Tls


def load_tls(ca: str | Path | None, cert: str | Path | None, cert_key: str | Path | None) -> Tls | None:
    """Return the TLS settings, or None without any; refuse files that cannot be used."""
    if cert_key and not cert:
        raise click.UsageError("--cert-key is the key of a certificate: give --cert too.")
    if not ca and not cert:
        return None
    # Imported here: most commands are given no TLS files, and some never load the client.
    from veen_core.errors import ConfigError  # noqa: PLC0415
    from veen_hub.client import Tls  # noqa: PLC0415

    parts = [("--ca", Tls(ca=ca))] if ca else []
    if cert:
        parts.append(("--cert", Tls(cert=cert, key=cert_key)))
    wanted = "it must be PEM, with the --cert-key of that certificate, without a passphrase."
    for flag, part in parts:
        try:
            part.context()
        except ConfigError:
            raise click.UsageError(f"{flag} {part.ca or part.cert} cannot be used: {wanted}") from None
    return Tls(ca=ca, cert=cert, key=cert_key)
