"""The console's listener in the hub's process: ``console`` in hub.yaml (ADR 0030)."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from veen_core.errors import ConfigError
from veen_hub.console.access import MIN_TOKEN_CHARACTERS, ListenerAccess
from veen_hub.console.description import ConsoleDescription, serve_description
from veen_hub.console.page import ConsolePage, add_security_headers
from veen_hub.http.errors import envelopes
from veen_hub.http.keys import HUB, READERS_ARE_CHECKED
from veen_hub.hub import Hub
from veen_hub.ops.config import ConsoleSettings
from veen_hub.version import VERSION


def make_console(hub: Hub, settings: ConsoleSettings, routes: Sequence[web.RouteDef]) -> web.Application:
    """Make the application: the page, and ``routes``, which are calls that other listeners have too."""
    token = _read_token(settings)
    access = ListenerAccess(token=token, secure=settings.is_beyond_loopback)
    page = ConsolePage.load()
    description = ConsoleDescription(served_by="hub", has_probes=True, version=VERSION)
    app = web.Application(middlewares=[envelopes, access.admit])
    app[HUB] = hub
    app[READERS_ARE_CHECKED] = token is not None
    app.on_response_prepare.append(add_security_headers)

    async def index(_request: web.Request) -> web.Response:
        return page.respond()

    app.add_routes([web.get("/", index), web.get("/console.json", serve_description(description)), *routes])
    return app


def _read_token(settings: ConsoleSettings) -> str | None:
    if settings.token_file is None:
        return None
    try:
        token = settings.token_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"console.token_file: {settings.token_file} cannot be read: {exc}") from None
    if len(token) < MIN_TOKEN_CHARACTERS or not token.isprintable() or " " in token:
        raise ConfigError(
            f"console.token_file: {settings.token_file} must have one line of at least "
            f"{MIN_TOKEN_CHARACTERS} characters without blanks",
            action=f"make one with `openssl rand -hex 24 > {settings.token_file}`",
        )
    return token
