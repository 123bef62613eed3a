"""The client's HTTP: a response is parsed alike in any parts, and refused if it is ambiguous (RFC 9112)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen_core.errors import ConfigError
from veen_hub.client import Misbehaved, Unreachable
from veen_hub.client.errors import Unavailable
from veen_hub.client.wire import http_connection, http_pool
from veen_hub.client.wire.http_response import MAX_HEAD_BYTES, HttpError, ResponseParser
from veen_hub.client.wire.http_transport import HttpTransport
from veen_hub.client.wire.transport import Timeouts

from .client_fixtures import run

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED = CHUNKED_HEAD + b"2\r\nhe\r\n3;note=x\r\nllo\r\n0\r\nTrailer: t\r\n\r\n"
INFORMED = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + LENGTH


def parse(*parts: bytes) -> tuple[ResponseParser, bytes]:
    parser, body = ResponseParser(), b""
    for part in parts:
        parser.feed(part)
        body += parser.take()
    return parser, body


@pytest.mark.parametrize("response", [LENGTH, CHUNKED, INFORMED], ids=["length", "chunks", "informed"])
@given(cuts=st.lists(st.integers(0, 150), max_size=12))
def test_a_response_is_parsed_alike_in_whatever_parts_it_arrives(response: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(response)) for cut in cuts), len(response)]
    parts = [response[a:b] for a, b in pairwise(places) if a < b]
    parser, body = parse(*parts)
    assert (parser.is_complete, body) == (True, b"hello")
    assert parser.head is not None
    assert (parser.head.status, parser.head.is_persistent) == (200, True)


@pytest.mark.parametrize("end", range(1, len(CHUNKED)))
def test_a_response_that_is_cut_off_is_not_complete(end: int) -> None:
    parser, _ = parse(CHUNKED[:end])
    assert not parser.is_complete
    with pytest.raises(HttpError, match="before the response was complete"):
        parser.feed_eof()


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    parser, body = parse(b"HTTP/1.0 200 OK\r\n\r\nhel", b"lo")
    before = parser.is_complete
    parser.feed_eof()
    assert (before, parser.is_complete, body) == (False, True, b"hello")
    assert parser.head is not None
    assert not parser.head.is_persistent


@pytest.mark.parametrize(
    ("head", "persistent"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: upgrade , close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    ],
)
def test_the_server_decides_whether_the_connection_stays_open(head: bytes, persistent: bool) -> None:
    parser, _ = parse(head)
    assert parser.is_complete
    assert parser.head is not None
    assert parser.head.is_persistent == persistent


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
        CHUNKED_HEAD + b"x\r\n",
        CHUNKED_HEAD + b"-1\r\n",
        CHUNKED_HEAD + b"1\r\nabc\r\n",
        CHUNKED_HEAD + b"123456789\r\n",
        CHUNKED_HEAD + b"1" + b";" * 300,
        CHUNKED_HEAD + b"0\r\n\r\nmore",
        CHUNKED_HEAD + b"0\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * MAX_HEAD_BYTES,
        b"HTTP/1.1 200 " + b"x" * MAX_HEAD_BYTES,
    ],
)
def test_a_response_that_could_be_read_in_two_ways_or_has_no_end_is_refused(response: bytes) -> None:
    with pytest.raises(HttpError):
        parse(response)


# --- over a socket

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def served(serve: Serve, timeouts: Timeouts | None = None) -> AsyncIterator[HttpTransport]:
    serving: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = HttpTransport(f"http://127.0.0.1:{port}", tls=None, timeouts=timeouts or Timeouts())
    try:
        yield transport
    finally:
        await transport.close()
        server.close()
        await asyncio.wait_for(asyncio.gather(*serving, return_exceptions=True), 10)


def test_requests_one_after_the_other_share_a_connection() -> None:
    connections: list[list[bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append([])
        while True:
            connections[-1].append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(LENGTH)

    async def story() -> None:
        async with served(serve) as transport:
            for _ in range(3):
                assert await transport.call("GET", "/v1/status") == b"hello"
            assert len(await asyncio.gather(*(transport.call("GET", "/x") for _ in range(2)))) == 2

    run(story())
    assert [len(requests) for requests in connections] == [4, 1]
    assert connections[0][0].startswith(b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1:")


@pytest.mark.parametrize("surplus", [b"", b"HTTP/1.1 200 OK\r\n"], ids=["closed", "bytes nobody asked for"])
def test_a_connection_that_is_closed_or_speaks_first_is_not_used_again(surplus: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(LENGTH)
        await writer.drain()
        if surplus:
            await asyncio.sleep(0.05)
            writer.write(surplus)
            await reader.read()

    async def story() -> None:
        async with served(serve) as transport:
            for _ in range(2):
                assert await transport.call("GET", "/") == b"hello"
                await asyncio.sleep(0.2)

    run(story())


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_pool, "MAX_IDLE_SECONDS", 0.0)
    made: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.append(1)
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(LENGTH)

    async def story() -> None:
        async with served(serve) as transport:
            await transport.call("GET", "/")
            await transport.call("GET", "/")

    run(story())
    assert len(made) == 2


def test_a_silent_hub_and_a_hub_that_stops_in_the_middle_end_in_a_timeout() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"" if b"/silent" in asked else LENGTH[:-2])
        await reader.read()

    async def story() -> None:
        async with served(serve, Timeouts(request=0.2)) as transport:
            for path in ("/silent", "/halfway"):
                with pytest.raises(Unreachable, match="no answer in time"):
                    await transport.call("GET", path)
            with pytest.raises(Unreachable, match="no answer in time"):
                async with transport.open("GET", "/halfway", idle=0.2) as parts:
                    assert [part async for part in parts] == [b"hel"]

    run(story())


def test_a_response_beyond_its_bound_is_refused_before_it_is_read() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED_HEAD)
        while True:
            writer.write(b"10000\r\n" + bytes(65_536) + b"\r\n")
            await writer.drain()

    async def story() -> None:
        async with served(serve) as transport:
            with pytest.raises(Misbehaved, match="larger than 1048576 bytes"):
                await transport.call("GET", "/")

    run(story())


def test_a_slow_reader_holds_the_hub_back() -> None:
    sent: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(1_000):
            writer.write(bytes(65_536))
            await writer.drain()
            sent.append(65_536)

    async def story() -> None:
        async with served(serve) as transport, transport.open("GET", "/", timeout=20.0) as parts:
            await anext(aiter(parts))
            while True:  # until the hub's writes stop
                before = len(sent)
                await asyncio.sleep(0.2)
                if len(sent) == before:
                    break
            assert sum(sent) < 1_000 * 65_536
            assert sum([len(part) async for part in parts]) > 60_000_000

    run(story())
    assert len(sent) == 1_000


def test_a_large_upload_that_is_refused_early_ends_with_the_refusal() -> None:
    refused = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: 7\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(refused)
        await writer.drain()
        while await reader.read(65_536):  # the client stops before all is sent
            pass

    async def story() -> None:
        async with served(serve) as transport:
            with pytest.raises(Unavailable, match="HTTP 503 from a proxy") as caught:
                await transport.call("PUT", "/", bytes(256 * http_connection.WRITE_BYTES))
            assert caught.value.retry_after == 7

    run(story())


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "https://host:port",
        "http://[::1",
        "http://user:word@host",
        "ftp://h",
        "http://hüb/",
        "http://h/a b",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    async def story() -> None:
        with pytest.raises(ConfigError, match="is not an http:// or https:// address"):
            HttpTransport(url, tls=None, timeouts=Timeouts())

    run(story())
