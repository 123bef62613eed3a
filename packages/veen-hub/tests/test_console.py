"""The console's listeners: who may ask, what is served, under which policy, and what is never forwarded."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from veen_core.errors import ConfigError
from veen_core.status import Status
from veen_hub.api.routes import READ_ROUTES
from veen_hub.console.description import ConsoleDescription
from veen_hub.console.forwarding import serve_console
from veen_hub.console.page import content_security_policy
from veen_hub.ops.config import load

from .people import envelope
from .serving import CBOR, JSON, Answer, RunningHub, make_directory, request

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def hub_with_console(tmp_path: Path) -> Iterator[RunningHub]:
    make_directory(tmp_path / "hub")
    hub = RunningHub(tmp_path / "hub", gating=False, console__port=0)
    yield hub
    hub.stop()


def console_port(hub: RunningHub) -> int:
    assert hub.server.console_url is not None
    return int(hub.server.console_url.rpartition(":")[2])


def ask(hub: RunningHub, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request(console_port(hub), method, path, body, named)


def test_the_page_runs_only_its_own_script_and_asks_only_its_own_origin(hub_with_console: RunningHub) -> None:
    answer = ask(hub_with_console, "GET", "/")
    policy = answer.headers["content-security-policy"]
    (script,) = re.findall(rb"<script[^>]*>(.*?)</script>", answer.body, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "connect-src 'self'" in policy
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"


def test_another_script_in_the_page_would_not_run() -> None:
    policy = content_security_policy(b"<style>a{}</style><script>1</script>")
    assert policy != content_security_policy(b"<style>a{}</style><script>2</script>")
    assert "script-src 'none'" in content_security_policy(b"<p onclick=1>")


def test_a_console_serves_what_reads_the_hub_and_nothing_that_writes(hub_with_console: RunningHub) -> None:
    hub = hub_with_console
    writer = hub.writer("alice")
    hub.accept(writer.next())
    assert ask(hub, "GET", "/v1/status").read(Status).identity == hub.hub.identity
    assert ask(hub, "GET", "/metrics").status == 200
    assert ask(hub, "GET", "/readyz").status == 200
    submit = ask(hub, "POST", "/v1/submit", envelope(writer.next()), Content_Type=CBOR)
    assert submit.error.code == "E.NOT_FOUND"
    for path in ("/tooling/checkpoint", "/tooling/retention", "/tooling/authorize", "/v1/replica/snapshot"):
        assert ask(hub, "POST", path, b"").error.code == "E.NOT_FOUND"


def test_another_site_cannot_ask_through_the_browser(hub_with_console: RunningHub) -> None:
    hub = hub_with_console
    assert ask(hub, "GET", "/v1/status", Sec_Fetch_Site="cross-site").error.code == "E.FORBIDDEN"
    assert ask(hub, "GET", "/v1/status", Sec_Fetch_Site="same-origin").status == 200
    assert ask(hub, "GET", "/v1/status", Host="evil.example").error.code == "E.FORBIDDEN"
    assert ask(hub, "GET", "/", Host="evil.example").error.code == "E.FORBIDDEN"


def test_with_a_token_every_call_needs_it(tmp_path: Path) -> None:
    make_directory(tmp_path / "hub")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    hub = RunningHub(
        tmp_path / "hub", gating=False, console={"port": 0, "token_file": str(tmp_path / "token")}
    )
    try:
        assert ask(hub, "GET", "/").status == 401
        assert ask(hub, "GET", "/v1/status").error.code == "E.UNAUTHORIZED"
        assert ask(hub, "GET", "/?token=wrong").status == 401
        entered = ask(hub, "GET", f"/?token={TOKEN}")
        assert entered.status == 303
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert TOKEN not in cookie
        assert ask(hub, "GET", "/", Cookie=cookie.partition(";")[0]).status == 200
        assert ask(hub, "GET", "/v1/status", Authorization=f"Bearer {TOKEN}").status == 200
        assert ask(hub, "GET", "/v1/status", Authorization="Bearer wrong").error.code == "E.UNAUTHORIZED"
    finally:
        hub.stop()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"host": "0.0.0.0"}, "can be reached from other machines; use 127.0.0.1, or set"),
        ({"host": "0.0.0.0", "beyond_loopback": True}, "console.token_file: missing"),
        ({"host": "0.0.0.0", "beyond_loopback": True, "token_file": "t"}, "tls is not set"),
        ({"host": "hub.example"}, "can be reached from other machines"),
        ({"port": 70_000}, "console.port: 70000 is not between"),
        ({"hosts": "x"}, "console.hosts: unknown setting"),
    ],
    ids=["open", "without a token", "without TLS", "by name", "port", "unknown"],
)
def test_an_unsafe_console_is_refused_and_the_error_says_what_to_set(
    settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        load(None, {"console": settings})


def test_client_certificates_are_not_bypassed_without_a_token() -> None:
    tls = {"cert": "c", "key": "k", "client_ca": "a", "client_certificate": "reading"}
    with pytest.raises(ConfigError, match=r"console\.token_file: missing; tls\.client_ca is set"):
        load(None, {"tls": tls, "console": {}})
    assert load(None, {"tls": tls, "console": {"token_file": "t"}}).console is not None


def test_a_short_token_is_refused(tmp_path: Path) -> None:
    make_directory(tmp_path / "hub")
    (tmp_path / "token").write_text("short\n")
    with pytest.raises(ConfigError, match="at least 22 characters"):
        RunningHub(tmp_path / "hub", console={"port": 0, "token_file": str(tmp_path / "token")})


def test_veen_console_forwards_reads_with_its_token_and_says_when_the_hub_is_gone(
    hub_with_console: RunningHub,
) -> None:
    hub = hub_with_console
    description = ConsoleDescription(served_by="veen console", has_probes=True, version="1", hub=hub.url)

    async def calls() -> None:
        async with (
            serve_console(
                hub=hub.url,
                probes=hub.server.probes_url,
                tls=None,
                description=description,
                host="127.0.0.1",
                port=0,
            ) as url,
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
        ):
            base = url.partition("/?")[0]
            async with session.get(f"{base}/v1/status") as refused:
                assert refused.status == 401
            async with session.get(url) as page:
                assert page.status == 200
            async with session.get(f"{base}/v1/status", headers={"Accept": CBOR}) as answer:
                assert Status.decode(await answer.read()).identity == hub.hub.identity
            async with session.get(f"{base}/metrics") as metrics:
                assert b"veen_disk_free_bytes" in await metrics.read()
            async with session.post(f"{base}/v1/submit", data=b"x") as submit:
                assert submit.status == 404
            await asyncio.to_thread(hub.stop)
            async with session.get(f"{base}/v1/status", headers={"Accept": JSON}) as gone:
                assert gone.status == 503
                assert "does not answer" in await gone.text()

    asyncio.run(calls())
    assert {route.method for route in READ_ROUTES} == {"GET", "POST"}
    assert all("submit" not in route.pattern for route in READ_ROUTES)


@asynccontextmanager
async def lying_hub_behind_a_console() -> AsyncIterator[tuple[str, dict[str, str], list[str]]]:
    """Yield a console's address, its sign-in header, and the paths asked of its hub, which sends HTML."""
    asked: list[str] = []

    async def say(request: web.Request) -> web.Response:
        asked.append(request.raw_path)
        headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": "script-src *"}
        return web.Response(text="<script>alert(1)</script>", headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", say)
    description = ConsoleDescription(served_by="veen console", has_probes=False, version="1")
    async with TestServer(app) as hub:
        settings = {"probes": None, "tls": None, "description": description, "host": "127.0.0.1", "port": 0}
        async with serve_console(hub=str(hub.make_url("/")), **settings) as url:  # type: ignore[arg-type]
            base, _, token = url.partition("/?token=")
            yield base, {"Authorization": f"Bearer {token}"}, asked


@pytest.mark.parametrize(
    "path",
    [
        "/log/tile/../../v1/replica/snapshot",
        "/log/tile/%2e%2e/%2e%2e/v1/replica/snapshot",
        "/log/tile/x/..%2f..%2f..%2fv1/replica/journal",
        "/log/tile/..\\..\\v1/replica/snapshot",
        "/log/tile//v1/replica/snapshot",
        "/log/tile/./x",
        "/v1/attachment/%2e%2e",
    ],
)
def test_a_path_that_leads_elsewhere_is_not_forwarded(path: str) -> None:
    async def calls() -> None:
        async with lying_hub_behind_a_console() as (base, headers, asked):
            port = int(base.rpartition(":")[2])
            refused = await asyncio.to_thread(request, port, "GET", path, None, headers)
            assert refused.status in {400, 404}
            plain = await asyncio.to_thread(request, port, "GET", "/log/tile/0/x001/067.p/8", None, headers)
            assert plain.status == 200
            assert asked == ["/log/tile/0/x001/067.p/8"]

    asyncio.run(calls())


def test_an_answer_of_the_hub_never_becomes_a_document_of_the_console() -> None:
    async def calls() -> None:
        async with (
            lying_hub_behind_a_console() as (base, headers, _),
            aiohttp.ClientSession() as session,
            session.get(f"{base}/healthz", headers=headers) as answer,
        ):
            assert answer.headers["Content-Type"] == "application/octet-stream"
            assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"

    asyncio.run(calls())


def test_every_answer_but_the_page_is_sandboxed(hub_with_console: RunningHub) -> None:
    for path in ("/healthz", "/console.json", "/nothing"):
        answer = ask(hub_with_console, "GET", path)
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"


def test_a_wrong_method_is_405_and_a_strange_host_or_token_is_refused(tmp_path: Path) -> None:
    make_directory(tmp_path / "hub")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    hub = RunningHub(
        tmp_path / "hub", gating=False, console={"port": 0, "token_file": str(tmp_path / "token")}
    )
    try:
        right = f"Bearer {TOKEN}"
        for method in ("PUT", "OPTIONS", "HEAD"):
            answer = ask(hub, method, f"/v1/stream/{'00' * 32}", Authorization=right)
            assert (answer.status, answer.headers["allow"]) == (405, "GET")
        assert ask(hub, "GET", "/v1/status", Authorization="Bearer \xff\xfe").status == 401
        cookie = f"veen_console_{console_port(hub)}=\xff\xfe"
        assert ask(hub, "GET", "/v1/status", Cookie=cookie).status == 401
        assert ask(hub, "GET", f"/?token={TOKEN}", Host="127.0.0.1:ab;c=d").status == 400
        assert ask(hub, "GET", f"/?token={TOKEN}", Host="[::1]").status == 303
    finally:
        hub.stop()
