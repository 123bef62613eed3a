"""HTTP/3 (DR0, RFC 9114): the same endpoints and answers, TLS 1.3, and bounds against rude peers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pylsqpack
import pytest
from aioquic._buffer import Buffer
from aioquic.asyncio import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection, Setting
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, QuicEvent
from aioquic.quic.packet import pull_quic_transport_parameters, push_quic_transport_parameters

from veen_core.api import StreamRequest
from veen_core.errors import ConfigError
from veen_core.ids import StreamSeq
from veen_core.status import Status
from veen_hub.client import Retry, Timeouts, Tls, Unreachable, connect
from veen_hub.client.wire import h3_transport
from veen_hub.client.wire.h3_transport import H3Transport, _Connection
from veen_hub.http3 import connection as h3_connection
from veen_hub.http3 import datagrams, windows
from veen_hub.http3.datagrams import LOCAL_DATAGRAM_BYTES
from veen_hub.ops import config as configuration

from . import serving
from .certificates import Certificates
from .client_fixtures import QUICK, person, run
from .conftest import StartHub
from .other_transports import comparable
from .over_h3 import ask, over_tls, url_of
from .people import ciphertext
from .serving import CBOR, PATIENCE, RunningHub, until

READER = person("alice").dh_keys[0].public
SUBMIT = "/v1/submit"


@pytest.fixture
def start_h3(start_hub: StartHub, certificates: Certificates) -> Callable[..., RunningHub]:
    cert, key = certificates.hub

    def start(*_: object, **settings: Any) -> RunningHub:
        return start_hub(tls__cert=cert, tls__key=key, h3__port=0, **settings)

    return start


@pytest.fixture(autouse=True)
def _https(monkeypatch: pytest.MonkeyPatch, certificates: Certificates) -> None:
    monkeypatch.setattr(serving, "request", over_tls(certificates))


@pytest.fixture
def tls(certificates: Certificates) -> Tls:
    return Tls(ca=certificates.authority)


# --- the same answers


def test_the_client_uses_every_endpoint_over_http3(start_h3: Callable[..., RunningHub], tls: Tls) -> None:
    hub = start_h3(gating=False)

    async def work() -> None:
        async with connect(url_of(hub), person("alice"), trust=hub.hub_id, tls=tls, retry=QUICK) as alice:
            stream = alice.stream("orders", to=READER)
            await stream.send("one", attachments=[b"f" * 3_000_000])
            assert len([one async for one in stream.send_many([f"{n}" * 40_000 for n in range(30)])]) == 30
            messages = [message async for message in stream.read()]
            assert len(messages) == 31
            assert len(await alice.fetch(messages[0].attachments[0].coid)) > 3_000_000
            seen = []
            async for message in stream.follow():
                seen.append(message.stream_seq)
                if len(seen) == 31:
                    await stream.send("more")
                if len(seen) == 32:
                    break
            assert seen == list(range(1, 33))

    run(work())
    for path in ("/v1/nothing", "/v2/status", "/log/tile/x", "/v1/stream/xyz", "//["):
        assert comparable(ask(hub, tls, "GET", path)) == comparable(hub.get(path)), path
    refused = ask(hub, tls, "GET", SUBMIT)
    assert comparable(refused) == comparable(hub.get(SUBMIT))
    head = ask(hub, tls, "HEAD", "/v1/status")
    assert (head.status, head.body) == (200, b"")


def test_http1_names_http3_in_alt_svc(start_h3: Callable[..., RunningHub]) -> None:
    hub = start_h3()
    assert hub.server.h3 is not None
    assert hub.get("/v1/status").headers["alt-svc"] == f'h3=":{hub.server.h3.port}"; ma=86400'


def test_the_addresses_that_a_hub_advertises_are_those_of_all_its_roads(
    start_h3: Callable[..., RunningHub],
) -> None:
    hub = start_h3(nats__servers=["tls://127.0.0.1:1"], nats__prefix="p")
    assert hub.server._own_urls() == (hub.url, url_of(hub), "tls://127.0.0.1:1/p")


def test_a_follower_changes_between_roads(start_h3: Callable[..., RunningHub], tls: Tls, place: Path) -> None:
    hub = start_h3(gating=False)

    async def follow(url: str, start: int) -> str:
        about: dict[str, Any] = {"trust": hub.hub_id, "tls": tls, "state": place / "s"}
        async with connect(url, person("alice"), **about) as alice:
            await alice.stream("orders", to=READER).send(f"{start}")
            async for message in alice.stream("orders").follow(start):
                return str(message.text)
        raise AssertionError

    for at, url in enumerate((url_of(hub), hub.url, url_of(hub)), 1):
        assert run(follow(url, at)) == f"{at}"


# --- TLS


def test_a_hub_that_is_not_trusted_is_not_spoken_to(
    start_h3: Callable[..., RunningHub], certificates: Certificates
) -> None:
    hub = start_h3()
    with pytest.raises(Unreachable, match=r"certificate of the hub is not trusted: unable.*--ca") as raised:
        ask(hub, Tls(ca=certificates.hub[0]), "GET", "/v1/status")
    assert not raised.value.retryable


class RawClient(QuicConnectionProtocol):
    """A client whose every step the test decides."""

    def __init__(self, quic: QuicConnection, *_: Any, **_options: Any) -> None:
        super().__init__(quic)
        self.http = H3Connection(quic)
        self.ended = asyncio.Event()
        self.tickets: list[Any] = []

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, ConnectionTerminated):
            self.ended.set()
        self.http.handle_event(event)

    def ask(self, path: str, method: str = "POST", *more: tuple[bytes, bytes], end: bool = False) -> int:
        stream_id = self._quic.get_next_available_stream_id()
        fields = [(b":method", method.encode()), (b":scheme", b"https"), (b":authority", b"h")]
        fields += [(b":path", path.encode()), (b"content-type", CBOR.encode()), *more]
        self.http.send_headers(stream_id, fields, end_stream=end)
        self.transmit()
        return stream_id


@contextlib.asynccontextmanager
async def raw(
    hub: RunningHub, tls: Tls, tickets: list[Any] | None = None, *, window: int = 1_048_576
) -> AsyncIterator[RawClient]:
    asked = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="127.0.0.1")
    asked.load_verify_locations(str(tls.ca))
    asked.max_stream_data = window
    assert hub.server.h3 is not None
    handler = tickets.append if tickets is not None else None
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_datagram_endpoint(
        lambda: RawClient(QuicConnection(configuration=asked, session_ticket_handler=handler)),
        local_addr=("127.0.0.1", 0),
    )
    try:
        client.connect(("127.0.0.1", hub.server.h3.port))
        await client.wait_connected()
        yield client
    finally:
        client.close()
        transport.close()
        await asyncio.sleep(0)


def test_there_is_no_session_ticket_and_so_no_early_data(
    start_h3: Callable[..., RunningHub], tls: Tls
) -> None:
    """A request in 0-RTT data could be repeated by somebody else (RFC 8470)."""
    hub = start_h3()
    tickets: list[Any] = []

    async def work() -> None:
        async with raw(hub, tls, tickets) as client:
            await client.ping()
            await client.ping()

    run(work())
    assert tickets == []


# --- a change of the client's address


def test_a_request_survives_a_change_of_the_clients_address(
    start_h3: Callable[..., RunningHub], tls: Tls
) -> None:
    hub = start_h3(gating=False)

    async def work() -> None:
        async with connect(url_of(hub), person("alice"), trust=hub.hub_id, tls=tls) as alice:
            stream = alice.stream("orders", to=READER)
            await stream.send("before")
            transport: Any = alice.connection.api.transport
            connection = transport._connection
            loop = asyncio.get_running_loop()
            moved, _ = await loop.create_datagram_endpoint(
                lambda: _Forward(connection), local_addr=("127.0.0.1", 0)
            )
            connection._transport.close()
            connection._transport = moved
            connection.change_connection_id()
            await stream.send("after")
            assert transport._connection is connection, "it is the same connection"
        moved.close()
        await asyncio.sleep(0)

    run(work())
    assert hub.metric("veen_submit_ok_total") == 2


class _Forward(asyncio.DatagramProtocol):
    """A new socket of an old connection."""

    def __init__(self, connection: QuicConnectionProtocol) -> None:
        self._connection = connection

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._connection.datagram_received(data, addr)


# --- the size of datagrams


def largest_datagram(hub: RunningHub, tls: Tls, monkeypatch: pytest.MonkeyPatch, wanted: int | None) -> int:
    """Fetch an attachment, and return the size of the largest datagram that the hub sent."""
    sizes: list[int] = []

    class Listens(_Connection):
        def __init__(self, quic: QuicConnection) -> None:
            super().__init__(quic)
            if wanted is not None:
                made = quic._serialize_transport_parameters
                monkeypatch.setattr(quic, "_serialize_transport_parameters", lambda: self._parameters(made()))

        @staticmethod
        def _parameters(made: bytes) -> bytes:
            parameters, buffer = pull_quic_transport_parameters(Buffer(data=made)), Buffer(capacity=1_024)
            parameters.max_udp_payload_size = wanted
            push_quic_transport_parameters(buffer, parameters)
            return bytes(buffer.data)

        def datagram_received(self, data: bytes | str, addr: Any) -> None:
            sizes.append(len(data))
            super().datagram_received(data, addr)

    monkeypatch.setattr(h3_transport, "_Connection", Listens)

    async def work() -> None:
        async with connect(url_of(hub), person("alice"), trust=hub.hub_id, tls=tls, retry=QUICK) as alice:
            stream = alice.stream("orders", to=READER)
            await stream.send("one", attachments=[b"f" * 300_000])
            (message,) = [message async for message in stream.read()]
            assert len(await alice.fetch(message.attachments[0].coid)) > 300_000

    run(work())
    return max(sizes)


@pytest.mark.parametrize(
    ("wanted", "largest"), [(None, LOCAL_DATAGRAM_BYTES), (4_000, 4_000), (1_200, 1_200)]
)
def test_datagrams_on_one_machine_are_as_large_as_the_peer_accepts(
    start_h3: Callable[..., RunningHub],
    tls: Tls,
    monkeypatch: pytest.MonkeyPatch,
    wanted: int | None,
    largest: int,
) -> None:
    hub = start_h3(gating=False)
    assert largest * 0.9 < largest_datagram(hub, tls, monkeypatch, wanted) <= largest


def test_datagrams_across_a_network_have_the_size_that_every_path_carries(
    start_h3: Callable[..., RunningHub], tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datagrams, "is_this_machine", lambda _host: False)
    assert largest_datagram(start_h3(gating=False), tls, monkeypatch, None) == 1_200


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%lo", False),
        ("hub.example", False),
    ],
)
def test_only_loopback_addresses_are_this_machine_for_certain(host: str, *, local: bool) -> None:
    assert datagrams.is_this_machine(host) is local


# --- rude peers


def test_a_slow_body_is_refused_and_the_connection_serves_others(
    start_h3: Callable[..., RunningHub], tls: Tls
) -> None:
    hub = start_h3(listen__request_timeout_sec=1, gating=False)

    async def work() -> None:
        async with raw(hub, tls) as client:
            stream_id = client.ask(SUBMIT)
            client.http.send_data(stream_id, b"\xa2", end_stream=False)
            client.transmit()
            await asyncio.to_thread(
                until, hub.hub.metrics.submit_err.labels("E.BAD_REQUEST")._value.get, "refused"
            )
            assert not client.ended.is_set()

    run(work())
    assert ask(hub, tls, "GET", "/v1/status").status == 200


@pytest.mark.parametrize("length", [1, 1_000_000], ids=["shorter", "longer"])
def test_a_body_of_another_length_is_refused_and_the_connection_serves_others(
    start_h3: Callable[..., RunningHub], tls: Tls, length: int
) -> None:
    hub = start_h3(gating=False)

    async def work() -> None:
        transport = H3Transport(url_of(hub), tls=tls, timeouts=Timeouts(request=PATIENCE))
        headers = {"Content-Type": CBOR, "Content-Length": str(length)}
        refused = await transport.exchange("POST", SUBMIT, bytes(50), headers)
        assert refused.status == 400
        connection = transport._connection
        assert (await transport.exchange("GET", "/v1/status")).status == 200
        assert transport._connection is connection
        await transport.close()

    run(work())


def test_a_head_that_never_ends_closes_the_connection(start_h3: Callable[..., RunningHub], tls: Tls) -> None:
    hub = start_h3()

    async def work() -> None:
        async with raw(hub, tls) as client:
            stream_id = client._quic.get_next_available_stream_id()
            client._quic.send_stream_data(stream_id, b"\x01\x80\x10\x00\x00" + bytes(100_000))
            client.transmit()
            async with asyncio.timeout(PATIENCE):
                await client.ended.wait()

    run(work())
    assert ask(hub, tls, "GET", "/v1/status").status == 200


def test_half_sent_heads_are_bounded_while_other_requests_succeed(
    start_h3: Callable[..., RunningHub], tls: Tls
) -> None:
    hub = start_h3()

    async def work() -> None:
        async with raw(hub, tls) as client, asyncio.timeout(PATIENCE):
            stream_id = client._quic.get_next_available_stream_id()
            client._quic.send_stream_data(stream_id, b"\x01\x80\x10\x00\x00")
            with contextlib.suppress(ConnectionError):
                for _ in range(4):
                    client._quic.send_stream_data(stream_id, bytes(h3_connection.MAX_HEAD_BYTES // 3))
                    client.ask("/healthz", "GET", end=True)
                    await client.ping()
            await client.ended.wait()

    run(work())


def test_a_head_cannot_be_compressed_with_a_table_that_the_client_fills(
    start_h3: Callable[..., RunningHub], tls: Tls
) -> None:
    """With such a table, 32 KiB can stand for 64 MiB."""
    hub = start_h3()

    async def work() -> None:
        async with raw(hub, tls) as client, asyncio.timeout(PATIENCE):
            await client.ping()
            wanted = client.http.received_settings
            assert wanted is not None
            assert (wanted[Setting.QPACK_MAX_TABLE_CAPACITY], wanted[Setting.QPACK_BLOCKED_STREAMS]) == (0, 0)
            client.http._encoder = pylsqpack.Encoder()
            filled = client.http._encoder.apply_settings(4_096, 16)
            client._quic.send_stream_data(client.http._local_encoder_stream_id, filled)
            with contextlib.suppress(ConnectionError):
                for _ in range(4):
                    client.ask("/healthz", "GET", (b"x-many", b"v" * 2_000), end=True)
                    await client.ping()
            await client.ended.wait()

    run(work())


def test_answers_that_nobody_reads_are_counted_and_dropped(
    start_h3: Callable[..., RunningHub], tls: Tls
) -> None:
    hub = start_h3(listen__follower_timeout_sec=1)
    alice = hub.writer()
    for _ in range(3):
        hub.accept(alice.next(ciphertext=ciphertext(bytes(60_000))))
    page = StreamRequest(label=alice.label, from_seq=StreamSeq(1)).encode()

    async def work() -> None:
        async with raw(hub, tls, window=100) as client:
            client._quic._write_stream_limits = lambda **_about: None  # type: ignore[method-assign]
            for _ in range(10):
                client.http.send_data(client.ask("/v1/stream"), page, end_stream=True)
            client.transmit()
            await asyncio.to_thread(until, lambda: hub.hub.unsent > 10 * 180_000, "they are counted")
            await asyncio.to_thread(until, lambda: hub.hub.unsent == 0, "they are dropped")
            assert hub.server.h3 is not None
            (connection,) = hub.server.h3._connections
            assert sum(map(connection._windows.unsent, list(connection._quic._streams))) < 10_000

    run(work())


@pytest.mark.parametrize("gives_up", ["reset_stream", "stop_stream"])
def test_a_request_that_its_client_gives_up_leaves_nothing_behind(
    start_h3: Callable[..., RunningHub], tls: Tls, gives_up: str
) -> None:
    """A client may give up its request, or only the answer (RFC 9114 §4.1.1)."""
    hub = start_h3()
    alice = hub.writer()

    async def work() -> None:
        async with raw(hub, tls) as client, asyncio.timeout(PATIENCE):
            await client.ping()
            assert hub.server.h3 is not None
            (connection,) = hub.server.h3._connections
            before = len(connection._quic._streams)
            for _ in range(5):
                ended = gives_up == "stop_stream"
                stream_id = client.ask(f"/v1/stream/{alice.label.hex()}", "GET", end=ended)
                await asyncio.to_thread(until, lambda: hub.hub.feed.followers, "it follows")
                getattr(client._quic, gives_up)(stream_id, 0)
                client.transmit()
                await asyncio.to_thread(until, lambda: not hub.hub.feed.followers, "it is forgotten")
            await client.ping()
            assert len(connection._quic._streams) <= before + 1

    run(work())


def test_a_client_that_gives_up_too_many_requests_is_disconnected(
    start_h3: Callable[..., RunningHub], tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(h3_connection, "MAX_RESETS", 5)
    hub = start_h3()

    async def work() -> None:
        async with raw(hub, tls) as client, asyncio.timeout(PATIENCE):
            while not client.ended.is_set():
                stream_id = client.ask(SUBMIT)
                client._quic.reset_stream(stream_id, 0)
                client.transmit()
                await asyncio.sleep(0.005)

    run(work())


def test_bytes_that_nobody_has_read_do_not_open_the_window(
    start_h3: Callable[..., RunningHub], tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream without its first byte cannot be read: no more than the window may wait for it."""
    monkeypatch.setattr(windows, "STREAM_WINDOW_BYTES", 20_000)
    hub = start_h3()

    async def work() -> None:
        async with raw(hub, tls) as client:
            stream = client._quic._get_or_create_stream_for_send(client._quic.get_next_available_stream_id())
            client._quic.send_stream_data(stream.stream_id, bytes(200_000))
            stream.sender._pending.subtract(0, 1)
            client.transmit()
            for _ in range(5):
                await client.ping()
            assert stream.sender.highest_offset <= 20_000

    run(work())


def test_a_silent_handshake_ends_and_connections_are_bounded(
    start_h3: Callable[..., RunningHub], tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(h3_connection, "HANDSHAKE_SEC", 0.2)
    hub = start_h3(h3__max_connections=1)
    listener = hub.server.h3
    assert listener is not None

    async def work() -> None:
        async with raw(hub, tls):
            assert len(listener._connections) == 1
            transport = H3Transport(url_of(hub), tls=tls, timeouts=Timeouts(connect=0.5))
            with pytest.raises(Unreachable):
                await transport.exchange("GET", "/v1/status")

    run(work())
    until(lambda: not listener._connections, "the connection has ended")
    assert ask(hub, tls, "GET", "/v1/status").status == 200


def test_noise_is_dropped(start_h3: Callable[..., RunningHub], tls: Tls) -> None:
    hub = start_h3()
    assert hub.server.h3 is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noisy:
        for size in (0, 1, 7, 1_200, 1_400):
            for first in (0x00, 0x40, 0xC0, 0xFF):
                noisy.sendto(bytes([first]) + os.urandom(size), ("127.0.0.1", hub.server.h3.port))
    assert ask(hub, tls, "GET", "/v1/status").read(Status)
    assert not hub.server.h3._connections or len(hub.server.h3._connections) == 1


def test_a_follower_that_does_not_read_is_dropped(
    start_h3: Callable[..., RunningHub], tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(h3_connection, "MAX_UNSENT_BYTES", 10_000)
    hub = start_h3(listen__follower_timeout_sec=1)
    alice = hub.writer()

    async def work() -> None:
        async with raw(hub, tls, window=20_000) as client:
            client._quic._write_stream_limits = lambda **_about: None  # type: ignore[method-assign]
            client.ask(f"/v1/stream/{alice.label.hex()}", "GET", end=True)
            await asyncio.to_thread(until, lambda: hub.hub.feed.followers, "it follows")
            for _ in range(40):
                wire = alice.next(ciphertext=ciphertext(bytes(2_000)))
                await asyncio.to_thread(hub.accept, wire)
            await asyncio.to_thread(
                until, lambda: hub.metric("veen_followers_dropped_total") == 1, "it is dropped"
            )

    run(work())
    assert hub.metric("veen_followers") == 0


def test_a_stopping_hub_ends_live_streams(start_h3: Callable[..., RunningHub], tls: Tls) -> None:
    hub = start_h3(gating=False)

    async def work() -> None:
        about: dict[str, Any] = {"trust": hub.hub_id, "tls": tls, "retry": Retry(max_outage=0.1)}
        about["timeouts"] = Timeouts(connect=1.0)  # of the attempt to come back, which finds nobody
        async with connect(url_of(hub), person("alice"), **about) as alice:
            stream = alice.stream("orders", to=READER)
            await stream.send("one")
            following = stream.follow()
            assert (await anext(following)).text == "one"
            await asyncio.to_thread(hub.stop)
            with pytest.raises(Unreachable):
                await anext(following)

    run(work())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"h3.port": 1}, "needs tls.cert"),
        ({"h3.port": 1, "tls.cert": "c", "tls.key": "k", "tls.client_ca": "a"}, "client certificates"),
    ],
    ids=["plain", "client certificates"],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        configuration.load(None, settings)


@pytest.mark.parametrize("url", ["h3://", "h3://u:p@h", "h3://h:x"], ids=["host", "user", "port"])
def test_addresses_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is not an h3:// address"):
        H3Transport(url, tls=None, timeouts=Timeouts())
