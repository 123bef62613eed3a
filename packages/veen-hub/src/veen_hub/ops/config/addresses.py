"""Checks of addresses. Errors do not repeat a URL of hub.yaml, because it may contain a password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from veen_hub.ops.config.setting_error import SettingError


def check_ca(key: str, ca: Path | None, url_key: str, url: str | None) -> None:
    """Refuse a certificate authority for a plain HTTP address: the connection would not be protected."""
    if ca is not None and not (url or "").startswith("https://"):
        raise SettingError(key, f"has no effect unless {url_key} begins with https://")


def split_address(text: str) -> tuple[str, int]:
    """Split ``HOST:PORT`` into both; a host with colons is written in brackets. Raises ``ValueError``."""
    host, _separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or len(port) > 5 or int(port) > 65_535:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def check_address(key: str, url: str, *, path: bool = False) -> None:
    """Check ``http(s)://host[:port]``, with a path only if ``path`` is set."""
    form = "host[:port][/path]" if path else "host[:port]"
    want = f"must be http://{form} or https://{form}"
    try:
        found = urlsplit(url)
        named = bool(found.hostname) and found.port != 0
    except ValueError:
        raise SettingError(key, f"{want}; its host or port is not valid") from None
    if "@" in found.netloc:
        raise SettingError(key, f"{want}; remove user and password, the hub sends none")
    plain = url.isascii() and url.isprintable() and " " not in url
    if not (plain and named and found.scheme in {"http", "https"}):
        raise SettingError(key, want)
    if "?" in url or "#" in url or (not path and found.path not in {"", "/"}):
        raise SettingError(key, f"{want}, without {'a' if path else 'a path,'} query or fragment")
