"""Probe of a tenant's authority hub, for ``/readyz`` (spec-4 §5.3, §10.1).

The tenant requests the authority's ``/healthz`` when its own readiness is requested, at most once every
``PROBE_INTERVAL_SEC``. The age of a hub's view of its realm is not checked here; the policy
reports it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import Final

import aiohttp

from veen_core.errors import ConfigError

PROBE_INTERVAL_SEC: Final = 5.0
PROBE_TIMEOUT_SEC: Final = 2.0


class AuthorityProbe:
    """Probes the authority and caches the result; used from the event loop only."""

    def __init__(self, url: str, ca: Path | None = None) -> None:
        try:
            self._context = ssl.create_default_context(cafile=ca)
        except OSError as exc:  # an SSLError too: not a certificate
            raise ConfigError(f"authority_ca: {ca}: {exc.strerror or exc}") from None
        self._probe = url.rstrip("/") + "/healthz"
        self._url = url
        self._lock = asyncio.Lock()
        self._probed_at = float("-inf")
        self._why: str | None = None

    async def unreachable(self) -> str | None:
        """Return why the authority cannot be reached, or None if it can."""
        async with self._lock:
            if time.monotonic() - self._probed_at >= PROBE_INTERVAL_SEC:
                self._why = await self._request()
                self._probed_at = time.monotonic()
            return self._why

    async def _request(self) -> str | None:
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_SEC)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                # no redirects: a login page would answer 200
                session.get(self._probe, allow_redirects=False, ssl=self._context) as answer,
            ):
                return None if answer.status == 200 else f"{self._url} answers {answer.status}"
        except TimeoutError:
            return f"{self._url} does not answer within {PROBE_TIMEOUT_SEC:g} s"
        except aiohttp.ClientResponseError:  # its message would repeat the answer, over several lines
            return f"{self._url} does not answer in HTTP"
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            return f"{self._url} cannot be reached: {str(exc) or type(exc).__name__}"
