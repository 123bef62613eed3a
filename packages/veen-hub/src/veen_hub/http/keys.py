"""Typed keys of an application: its hub, and whether its readers were admitted by a token."""

from __future__ import annotations

from aiohttp import web

from veen_hub.hub import Hub

HUB = web.AppKey("hub", Hub)
READERS_ARE_CHECKED = web.AppKey("readers_are_checked", bool)
"""Set if every request has shown a token, so that readers need no client certificate."""
