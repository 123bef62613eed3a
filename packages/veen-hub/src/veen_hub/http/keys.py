"""The typed keys under which an application has its hub, and what is known of its readers."""

from __future__ import annotations

from aiohttp import web

from veen_hub.hub import Hub

HUB = web.AppKey("hub", Hub)
READERS_ARE_CHECKED = web.AppKey("readers_are_checked", bool)
"""Set where every request has shown a token that stands in for a reader's client certificate."""
