"""``GET /console.json``: what a console's listener says of itself to its page."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Literal

from aiohttp import web


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleDescription:
    """How the page reaches the hub, and what the person who started ``veen console`` has pinned.

    The page trusts none of it by itself: it shows the pin, and a person confirms it.
    """

    served_by: Literal["hub", "veen console"]
    has_probes: bool
    """Whether ``/readyz`` and ``/metrics`` are served too."""
    version: str
    hub: str | None = None
    """Address of the hub, if the listener forwards to one."""
    pinned: str | None = None
    """hub_id or first hub_pk in hex, from --trust, the context or the identity's folder."""
    witness_policy: str | None = None
    """Text of the witness policy file (RESOLUTIONS P2)."""


def serve_description(
    description: ConsoleDescription,
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the handler of ``/console.json``."""
    text = json.dumps(asdict(description))

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(text=text, content_type="application/json", headers={"Cache-Control": "no-store"})

    return handler
