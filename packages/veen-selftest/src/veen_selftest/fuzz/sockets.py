"""Raw sockets: bytes that are not HTTP, half a request, idle connections; the next user is served (SH0.4)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

from veen_core.api import wrap_submit
from veen_selftest.hubs.http_hub import CBOR, HttpHub
from veen_selftest.runner.check import Check, Skip, require
from veen_selftest.runner.context import CheckContext

IDLE_CONNECTIONS: Final = 200
HEAD: Final = f"POST /v1/submit HTTP/1.1\r\nHost: hub\r\nContent-Type: {CBOR}\r\n"


@contextlib.contextmanager
def plain(hub: HttpHub) -> Iterator[socket.socket]:
    """Open a TCP connection to the hub."""
    if hub.url.startswith("https:"):
        raise Skip("needs a hub without TLS: behind TLS, such bytes do not reach HTTP")
    with contextlib.closing(socket.create_connection(hub.address, timeout=10)) as connection:
        yield connection


def _garbage(context: CheckContext) -> None:
    """Bytes that are not HTTP get a refusal or a closed connection, and other writers are served."""
    hub = context.hub_without_pow()
    writer = context.writer(hub)
    words = [
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/submit HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/submit HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /v1/submit HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 40_000 + b"\r\n",
        *(context.rng.randbytes(context.rng.choice([1, 50, 5_000])) for _ in range(20)),
    ]
    for word in words:
        with plain(hub) as connection, contextlib.suppress(OSError):
            connection.sendall(word)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65_536)
            require(not answer.startswith(b"HTTP/1.1 5"), f"{answer[:40]!r} in answer to {word[:60]!r}")
        hub.accept(writer.next())


def _half_sent(context: CheckContext) -> None:
    """A request that stops halfway is not accepted, and delays no other writer."""
    hub = context.hub_without_pow()
    writer, other = context.writer(hub), context.writer(hub, "bob", on="other")
    body = wrap_submit(writer.message(1))
    whole = HEAD.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    for _ in range(20):
        with plain(hub) as connection:
            connection.sendall(whole[: context.rng.randrange(1, len(whole) - 1)])
            hub.accept(other.next())
    require(
        hub.submit(writer.message(1)).status == 200,
        "the hub accepted half a message, or refuses the whole one afterwards",
    )


def _idle(context: CheckContext) -> None:
    """With 200 idle or half-sent connections open, the next user is served."""
    hub = context.hub_without_pow()
    writer = context.writer(hub)
    with contextlib.ExitStack() as open_:
        for n in range(IDLE_CONNECTIONS):
            connection = open_.enter_context(plain(hub))
            if n % 2:
                connection.sendall(HEAD.encode()[: context.rng.randrange(1, len(HEAD))])
        for _ in range(5):
            hub.accept(writer.next())
    hub.accept(writer.next())


def _announced(context: CheckContext) -> None:
    """An announced body that is too large or compressed is refused before the hub waits for it."""
    hub = context.hub_without_pow()
    writer = context.writer(hub)
    for extra in ("Content-Length: 99999999999\r\n", "Content-Encoding: gzip\r\nContent-Length: 10\r\n"):
        with plain(hub) as connection:
            connection.sendall((HEAD + extra + "\r\n").encode())
            answer = connection.recv(65_536)
            require(answer.startswith(b"HTTP/1.1 4"), f"{answer[:60]!r} in answer to {extra!r}")
    hub.accept(writer.next())


CHECKS: Final = (
    Check("fuzz.garbage", "core §10.3", _garbage),
    Check("fuzz.half-sent", "core §8.1", _half_sent),
    Check("fuzz.idle", "OP0.4", _idle),
    Check("fuzz.announced", "SH0.4", _announced),
)
