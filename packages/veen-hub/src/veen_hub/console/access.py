"""Access rules of a console's listener: for the token, the Host header and the site of a request.

A browser also runs pages of other sites, and other users' programs can connect to a loopback address. Three
rules keep them out:

1. With a token, every call needs it: in a cookie that ``/?token=…`` sets (HttpOnly, SameSite=Strict), or as
   ``Authorization: Bearer``.
2. Without a token, the Host must be a loopback name: a site that makes its own name resolve to 127.0.0.1 (DNS
   rebinding) is refused.
3. A call that the browser marks as made by another site (``Sec-Fetch-Site``) is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from veen_core.errors import ApiError
from veen_core.rejection import Code

COOKIE_PREFIX: Final = "veen_console_"
MIN_TOKEN_CHARACTERS: Final = 22
"""About 128 bits in base64url."""
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
SIGN_IN: Final = (
    "This console needs its token: open the address that was printed when it started, "
    "or add ?token=… to this one."
)
OWN_SITES: Final = frozenset({"same-origin", "none"})
"""Values of ``Sec-Fetch-Site`` that the page itself and a typed address have."""
_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAccess:
    """The rules of one listener; ``token`` is None if a loopback name is enough."""

    token: str | None
    secure: bool = False
    """Whether the listener speaks TLS: the cookie is then sent over TLS only."""

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Admit a request, set the cookie if ``?token=`` is valid, or refuse."""
        name, _ = _split_host(request.host)
        if self.token is None:
            _check_loopback_name(name)
        elif request.path == "/" and "token" in request.query:
            return self._sign_in(request, request.query["token"])
        elif not self._has_token(request):
            if request.path == "/":  # a person reads this answer
                return web.Response(status=401, text=f"{SIGN_IN}\n")
            raise ApiError(Code.UNAUTHORIZED, SIGN_IN)
        if request.path != "/" and request.headers.get("Sec-Fetch-Site", "none") not in OWN_SITES:
            raise ApiError(Code.FORBIDDEN, "the request comes from a page of another site")
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed as exc:
            allowed = ", ".join(sorted(exc.allowed_methods))
            text = f"{request.path} has no method {request.method}: use {allowed}\n"
            return web.Response(status=405, text=text, headers={"Allow": allowed})

    def _sign_in(self, request: web.Request, given: str) -> web.Response:
        if not self._is_token(given):
            return web.Response(status=401, text=f"This is not the token of this console. {SIGN_IN}\n")
        answer = web.Response(status=303, headers={"Location": "/", "Cache-Control": "no-store"})
        answer.set_cookie(
            _cookie_name(request), self._session(), httponly=True, samesite="Strict", secure=self.secure
        )
        return answer

    def _has_token(self, request: web.Request) -> bool:
        cookie = request.cookies.get(_cookie_name(request))
        if cookie is not None and _are_equal(cookie, self._session()):
            return True
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._is_token(given.strip())

    def _is_token(self, given: str) -> bool:
        assert self.token is not None
        return _are_equal(given, self.token)

    def _session(self) -> str:
        """The cookie's value: made from the token, and not the token."""
        assert self.token is not None
        return hashlib.sha256(b"veen-console-session\0" + self.token.encode()).hexdigest()


def _are_equal(given: str, wanted: str) -> bool:
    """Compare in constant time; bytes of a header that are not UTF-8 are lone surrogates here."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), wanted.encode())


def _cookie_name(request: web.Request) -> str:
    """Name the cookie by port: a browser sends cookies of one host to all its ports."""
    return f"{COOKIE_PREFIX}{_split_host(request.host)[1] or 'default'}"


def _split_host(host: str) -> tuple[str, str | None]:
    found = _HOST.fullmatch(host)
    if found is None:
        raise ApiError(Code.BAD_REQUEST, "the Host header is not a name or an address with an optional port")
    return found["name"], found["port"]


def _check_loopback_name(name: str) -> None:
    if name.lower() not in LOOPBACK_NAMES:
        raise ApiError(
            Code.FORBIDDEN, "this console answers under localhost, 127.0.0.1 and [::1] only: use one of them"
        )
