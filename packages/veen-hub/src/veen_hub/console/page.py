"""The console's page: one HTML file, and a policy under which a browser runs nothing but its own script.

The policy is computed from the file's bytes: a page with another script would not run. Trusted Types are
required and no policy for them may be created, so that the browser itself refuses ``innerHTML`` and its kin.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

from aiohttp import web

from veen_core.errors import ConfigError

PAGE: Final = "console.html"
_INLINE: Final = re.compile(rb"<(script|style)(?:\s[^>]*)?>(.*?)</\1>", re.DOTALL)

SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""Headers of every answer of a console's listener."""
NOT_A_PAGE: Final = "default-src 'none'; sandbox"
"""Content-Security-Policy of every answer but the page: opened as a document, it runs nothing."""


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """The page's bytes and its Content-Security-Policy."""

    body: bytes
    policy: str

    @classmethod
    def load(cls) -> ConsolePage:
        """Read the page that was built into this distribution."""
        try:
            body = resources.files("veen_hub").joinpath("web", PAGE).read_bytes()
        except OSError:
            raise ConfigError(
                "this installation of veen-hub has no console page",
                action="run `npm run build` in packages/veen-hub/web, or install a released wheel",
            ) from None
        return cls(body, content_security_policy(body))

    def respond(self) -> web.Response:
        headers = {"Content-Security-Policy": self.policy, "Cache-Control": "no-store"}
        return web.Response(body=self.body, content_type="text/html", charset="utf-8", headers=headers)


def content_security_policy(page: bytes) -> str:
    """Return the policy for a page: its inline scripts and styles by hash, requests to its own origin."""
    hashes: dict[bytes, list[str]] = {b"script": [], b"style": []}
    for kind, text in _INLINE.findall(page):
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
    allowed = {kind: " ".join(found) or "'none'" for kind, found in hashes.items()}
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {allowed[b'script']}",
            f"style-src {allowed[b'style']}",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


async def add_security_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to an answer before it is sent, also to a live stream (aiohttp's signal)."""
    response.headers.update(SECURITY_HEADERS)
    response.headers.setdefault("Content-Security-Policy", NOT_A_PAGE)
