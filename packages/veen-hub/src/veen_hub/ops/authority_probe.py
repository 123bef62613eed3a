"""The authority hub of a tenant: whether it is there, for ``/readyz`` (spec-4 §5.3, §10.1).

A hub that follows its realm's admin streams knows by the age of its view, and the policy says so. One that
was only told where its authority is asks it whether it lives: when somebody asks for its own readiness, and
not more often than every few seconds.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import Final

import aiohttp

from veen_core.errors import ConfigError

ASKED_EVERY_SEC: Final = 5.0
PATIENCE_SEC: Final = 2.0


class Authority:
    """Used on the event loop only."""

    def __init__(self, url: str, ca: Path | None = None) -> None:
        try:
            self._context = ssl.create_default_context(cafile=ca)
        except OSError as exc:  # also what is no certificate
            raise ConfigError(f"authority_ca: {ca}: {exc.strerror or exc}") from None
        self._probe = url.rstrip("/") + "/healthz"
        self._url = url
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._why: str | None = None

    async def unreachable(self) -> str | None:
        """Why it cannot be reached, if so."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= ASKED_EVERY_SEC:
                self._why = await self._ask()
                self._asked_at = time.monotonic()
            return self._why

    async def _ask(self) -> str | None:
        patience = aiohttp.ClientTimeout(total=PATIENCE_SEC)
        try:
            async with (
                aiohttp.ClientSession(timeout=patience) as session,
                # not where it is sent on to: a login page is not alive
                session.get(self._probe, allow_redirects=False, ssl=self._context) as answer,
            ):
                return None if answer.status == 200 else f"{self._url} answers {answer.status}"
        except TimeoutError:
            return f"{self._url} does not answer within {PATIENCE_SEC:g} s"
        except aiohttp.ClientResponseError:  # its text is what came, on many lines
            return f"{self._url} does not answer in HTTP"
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            return f"{self._url} cannot be reached: {str(exc) or type(exc).__name__}"
