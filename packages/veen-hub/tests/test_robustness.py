"""Clients that misbehave: the table's error, bounded memory, and the next client unaffected."""

from __future__ import annotations

import gc
import gzip
import http.client
import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

import cbor2
import pytest
from aiohttp import web

from veen_core import rejection
from veen_core.api import ErrorEnvelope, StreamRequest
from veen_core.hashing import H
from veen_core.ids import StreamSeq
from veen_core.limits import Limits
from veen_hub.api import reading
from veen_hub.http.bounded_connection import MAX_HEAD_BYTES, MAX_HEADERS
from veen_hub.http.connections import Connection
from veen_hub.load import follower_fleet
from veen_hub.pipeline.pending_requests import PendingRequest
from veen_hub.pipeline.stream_items import encode_items

from .conftest import StartHub, StartProcess
from .following import Follower
from .people import Writer, ciphertext, envelope
from .serving import CBOR, CBOR_SEQ, PATIENCE, Answer, Calls, RunningHub, request, until
from .test_admission import is_refused_by

IDLE = int(os.environ.get("VEEN_IDLE_CONNECTIONS", "10000"))
FOLLOWERS = int(os.environ.get("VEEN_FOLLOWERS", "1000"))
FOLLOWER_BYTES = 40_000
"""Memory of a hub for one follower that is up to date, with room to spare: it takes 17 KB."""


@contextmanager
def talk(hub: Calls) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", hub.port), timeout=PATIENCE) as connection:
        yield connection


def answer_to(connection: socket.socket) -> Answer:
    response = http.client.HTTPResponse(connection)
    response.begin()
    found = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    response.close()
    return found


def post(path: str, body: bytes, length: int | None = None, kind: str = CBOR) -> bytes:
    """A request as it goes over the wire, which may announce another length than it has."""
    announced = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: hub\r\nContent-Type: {kind}\r\nContent-Length: {announced}\r\n\r\n"
    return head.encode() + body


@contextmanager
def deaf(hub: RunningHub) -> Iterator[socket.socket]:
    """A client that reads nothing, with so little room between it and the hub that this is soon felt."""
    with socket.socket(fileno=os.dup(hub.listening)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(PATIENCE)
        connection.connect(("127.0.0.1", hub.port))
        yield connection


def say(hub: Calls, data: bytes) -> Answer:
    with talk(hub) as connection:
        connection.sendall(data)
        return answer_to(connection)


# --- what is not HTTP, or too much of it


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 this is TLS\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: hub\r\nno colon here\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nbad\x00name: x\r\n\r\n",
        b"POST /v1/submit HTTP/1.1\r\nHost: hub\r\nContent-Length: many\r\n\r\n",
        b"POST /v1/submit HTTP/1.1\r\nHost: hub\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/submit HTTP/1.1\r\nHost: hub\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/submit HTTP/1.1\r\nHost: hub\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: hub\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: hub\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: hub\r\n"
        + b"".join(b"X-%d: 1\r\n" % n for n in range(500))
        + b"\r\n",
    ],
    ids=[
        "TLS",
        "not a request line",
        "another version",
        "no colon",
        "a zero in a name",
        "length is no number",
        "length is negative",
        "length and chunks",
        "two lengths",
        "long path",
        "long header",
        "many headers",
    ],
)
def test_bytes_that_are_not_http_get_an_envelope_and_the_connection_ends(
    hub: RunningHub, data: bytes
) -> None:
    answer = say(hub, data)
    assert (answer.status, answer.error.code) == (400, "E.BAD_REQUEST")
    assert answer.error.request_id
    assert hub.get("/healthz").status == 200


def test_a_broken_chunk_is_a_bad_request(hub: RunningHub) -> None:
    head = b"POST /v1/submit HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = say(hub, head + b"zz\r\nxx\r\n0\r\n\r\n")
    assert (answer.status, answer.error.code) == (400, "E.BAD_REQUEST")


def test_an_unknown_expectation_is_a_bad_request(hub: RunningHub) -> None:
    for path in ("/v1/submit", "/nowhere"):
        answer = say(
            hub,
            f"POST {path} HTTP/1.1\r\nHost: hub\r\nExpect: miracles\r\nContent-Length: 0\r\n\r\n".encode(),
        )
        assert (answer.status, answer.error.code) == (400, "E.BAD_REQUEST")


def test_pipelined_requests_are_answered_in_order(hub: RunningHub, alice: Writer) -> None:
    with talk(hub) as connection:
        connection.sendall(b"".join(post("/v1/submit", envelope(alice.next())) for _ in range(20)))
        file = connection.makefile("rb")
        seqs = []
        for _ in range(20):
            assert b"200" in file.readline()
            length = 0
            while line := file.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            seqs.append(cbor2.loads(file.read(length))[2][2])
        file.close()
    assert seqs == list(range(1, 21))


def test_a_compressed_body_is_refused_before_it_is_unpacked(hub: RunningHub, alice: Writer) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    for encoding in ("gzip", "deflate", "br", "identity, gzip"):
        for path in ("/v1/submit", "/v1/stream", "/tooling/authorize"):
            answer = hub.post(path, bomb, Content_Encoding=encoding)
            assert (answer.status, answer.error.code) == (400, "E.BAD_REQUEST")
    assert hub.submit(alice.next(), Content_Encoding="identity").status == 200


# --- slow and half-sent


def test_a_body_that_does_not_arrive_in_time_is_refused(start_hub: StartHub) -> None:
    hub = start_hub(listen__request_timeout_sec=1)
    started = time.monotonic()
    answer = say(hub, post("/v1/submit", b"abc", length=100))
    assert (answer.status, answer.error.code) == (400, "E.BAD_REQUEST")
    assert 0.9 < time.monotonic() - started < 5


def test_the_timeout_of_a_body_covers_the_whole_body(start_hub: StartHub) -> None:
    """Not by the pause between two bytes: the whole has its time."""
    hub = start_hub(listen__request_timeout_sec=1)
    with talk(hub) as connection:
        connection.sendall(post("/v1/stream", b"", length=1_000))
        connection.settimeout(0.1)
        started = time.monotonic()
        answer = b""
        while not answer and time.monotonic() - started < 5:
            connection.sendall(b"x")
            try:
                answer = connection.recv(65_536)
            except TimeoutError:
                continue
        assert b"400" in answer.split(b"\r\n")[0]
        assert time.monotonic() - started < 4


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"PO",
        b"POST /v1/submit HT",
        b"POST /v1/submit HTTP/1.1\r\nHost: hub\r\nContent-Type: appl",
        post("/v1/submit", b"abc", length=100),
        b"POST /v1/submit HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"PUT /v1/attachment/" + b"ab" * 32 + b" HTTP/1.1\r\nHost: hub\r\nContent-Length: 100\r\n\r\nabc",
    ],
    ids=["nothing", "a word", "a line", "a header", "a body", "a chunk", "an attachment"],
)
def test_a_half_sent_request_does_not_disturb_other_clients(
    hub: RunningHub, alice: Writer, half: bytes
) -> None:
    for _ in range(5):
        with talk(hub) as connection:
            connection.sendall(half)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    assert hub.submit(alice.next()).status == 200
    until(lambda: hub.server.connections <= 1, "their connections are gone")


FIELDS = b"".join(b"X-%d: %s\r\n" % (n, b"a" * 8_000) for n in range(100))
CHUNKED = b"POST /v1/submit HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"


@pytest.mark.parametrize(
    "start",
    [
        b"GET /healthz HTTP/1.1\r\nHost: hub\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\nGET /healthz HTTP/1.1\r\nHost: hub\r\n",
        b"GET /v1/stream/" + b"00" * 32 + b" HTTP/1.1\r\nHost: hub\r\n\r\nGET / HTTP/1.1\r\n",
        CHUNKED,
    ],
    ids=["a head", "behind another", "behind a follower", "behind a body"],
)
def test_endless_header_fields_fill_no_memory(
    hub: RunningHub, alice: Writer, start: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Each within its bound, and so many as may be: no request comes of them, and nobody waits for one."""
    with talk(hub) as connection:
        connection.sendall(start)
        time.sleep(0.05)
        sent = 0
        with suppress(BrokenPipeError, ConnectionResetError):
            for sent in range(0, len(FIELDS), 8_192):
                connection.sendall(FIELDS[sent : sent + 8_192])
                time.sleep(0.005)
        assert sent < 2 * MAX_HEAD_BYTES
        until(lambda: hub.server.connections == 0, "it is dropped")
    assert hub.submit(alice.next()).status == 200
    assert [record.message for record in caplog.records if record.message.endswith("_failed")] == []


@pytest.mark.parametrize("end", [b"", b"\r\n"], ids=["half sent", "at once"])
def test_a_head_that_is_too_long_is_refused_with_the_reason(hub: RunningHub, end: bytes) -> None:
    fields = FIELDS[: FIELDS.index(b"X-5:")]
    answer = say(hub, b"GET /v1/status HTTP/1.1\r\nHost: hub\r\n" + fields + end)
    assert (answer.status, answer.error.code) == (400, "E.BAD_REQUEST")
    assert answer.headers["veen-request-id"] == answer.error.request_id
    assert str(MAX_HEAD_BYTES) in answer.error.message


def test_a_body_after_many_requests_is_not_parsed_as_a_head(hub: RunningHub) -> None:
    """aiohttp's parser stops when enough requests wait, and goes on by itself."""
    body = bytes(8 * MAX_HEAD_BYTES)
    ping = b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n"
    with talk(hub) as connection:
        connection.sendall(500 * ping + post("/v1/submit", b"", len(body)))
        for at in range(0, len(body), 16_384):
            time.sleep(0.01)
            connection.sendall(body[at : at + 16_384])
        with connection.makefile("rb") as file:
            statuses: list[bytes] = []
            while len(statuses) <= 500 and (line := file.readline()):
                statuses += re.findall(rb"HTTP/1\.1 (\d+)", line)
    assert statuses == [b"200"] * 500 + [b"400"]


def test_a_body_after_a_declined_upgrade_is_not_parsed_as_a_head(
    hub: RunningHub, caplog: pytest.LogCaptureFixture
) -> None:
    """aiohttp holds what came behind it, and parses it when it has declined."""
    body = bytes(8 * MAX_HEAD_BYTES)
    upgrade = b"GET /healthz HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with talk(hub) as connection:
        connection.sendall(upgrade + post("/v1/submit", b"", len(body)))
        assert answer_to(connection).status == 200
        for at in range(0, len(body), 16_384):
            time.sleep(0.005)
            connection.sendall(body[at : at + 16_384])
        assert answer_to(connection).status == 400
    assert [record.message for record in caplog.records if record.message.endswith("_failed")] == []


def test_a_head_may_have_as_many_cookies_as_fields(hub: RunningHub, alice: Writer) -> None:
    cookies = b"".join(b"VEEN-PoW: " + b"ab" * 90 + b"\r\n" for _ in range(MAX_HEADERS - 8))
    head, _, body = post("/v1/submit", envelope(alice.next())).partition(b"\r\n\r\n")
    with talk(hub) as connection:
        for part in (head + b"\r\n", cookies[:9_000], cookies[9_000:] + b"\r\n", body):
            connection.sendall(part)
            time.sleep(0.01)
        assert answer_to(connection).status == 200


def test_a_message_is_decided_even_if_its_sender_hangs_up(hub: RunningHub, alice: Writer) -> None:
    with talk(hub) as connection:
        connection.sendall(post("/v1/submit", envelope(alice.next())))
    until(lambda: hub.metric("veen_stage_entries", stage="durable") == 2, "token and message are durable")
    assert hub.submit(alice.message(1)).detail == "DUPLICATE"
    assert hub.accept(alice.message(2)).stream_seq == 2


# --- too many


def test_a_connection_beyond_the_limit_gets_one_answer(start_hub: StartHub) -> None:
    hub = start_hub(listen__max_connections=5)
    with ExitStack() as stack:
        held = [stack.enter_context(talk(hub)) for _ in range(5)]
        until(lambda: hub.server.connections == 5, "the hub has them all")
        with talk(hub) as connection:
            answer = answer_to(connection)
        assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["veen-request-id"] == answer.error.request_id
        held[0].close()
        until(lambda: hub.server.connections < 5, "there is room again")
        assert hub.status().hub_ts


def test_connections_for_which_there_are_no_descriptors_are_refused_with_an_answer(
    start_process: StartProcess,
) -> None:
    hub = start_process("data", "--open")
    resource.prlimit(hub.process.pid, resource.RLIMIT_NOFILE, (400, 400))
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(talk(hub)).sendall(b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n")
        with talk(hub) as connection:
            answer = answer_to(connection)
        assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
        assert request(hub.probes_port, "GET", "/readyz").status == 200
        until(lambda: "connections_limited" in [line["event"] for line in hub.lines], "it is logged")
    until(lambda: hub.get("/healthz").status == 200, "there is room again")


def test_probes_are_answered_while_the_api_is_full(start_hub: StartHub) -> None:
    hub = start_hub(listen__max_connections=2)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(talk(hub))
        until(lambda: hub.server.connections == 2, "the hub has them all")
        assert hub.get("/healthz").status == 503
        for path in ("/healthz", "/readyz", "/metrics"):
            assert request(hub.probes_port, "GET", path).status == 200


def test_the_api_serves_neither_metrics_nor_readiness(hub: RunningHub) -> None:
    """They name streams and storage errors: a stranger who reaches the API must not read them."""
    for path in ("/readyz", "/metrics"):
        assert request(hub.port, "GET", path).status == 404
    assert request(hub.probes_port, "POST", "/v1/submit", b"x").status == 404
    assert request(hub.probes_port, "GET", "/v1/status").status == 404


def open_files_for(many: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = many + 200
    if hard < needed:
        pytest.skip(f"{needed} open files are needed, {hard} allowed")
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def test_idle_connections_cost_little_and_the_next_client_is_answered(start_process: StartProcess) -> None:
    open_files_for(IDLE)
    hub = start_process("data", "--open")
    alice = Writer("alice", hub.status().identity.hub_id)
    before = hub.resident_bytes
    with ExitStack() as stack:
        idle = [stack.enter_context(talk(hub)) for _ in range(IDLE)]
        for connection in idle[::2]:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: hub\r\nHos")
        for _ in range(20):
            assert hub.submit(alice.next()).status == 200
        assert (hub.resident_bytes - before) / IDLE < 32 * 1_024
    assert hub.get("/healthz").status == 200


# --- followers


def test_many_followers_of_one_label_all_get_everything(start_process: StartProcess) -> None:
    open_files_for(FOLLOWERS)
    hub = start_process("data", "--open")
    alice, entries = Writer("alice", hub.status().identity.hub_id), 20
    before = hub.resident_bytes
    command = (sys.executable, follower_fleet.__file__)
    numbers = (str(hub.port), alice.label.hex(), str(FOLLOWERS), str(entries))
    with subprocess.Popen([*command, *numbers], stdout=subprocess.PIPE, text=True) as fleet:
        assert fleet.stdout is not None
        assert fleet.stdout.readline() == "ready\n"
        assert hub.metric("veen_followers") == FOLLOWERS
        wires = [alice.next() for _ in range(entries)]
        receipts = [hub.accept(wire).encode() for wire in wires]
        report = json.loads(fleet.stdout.read())
    contents = [(wire, receipt, 0) for wire, receipt in zip(wires, receipts, strict=True)]
    whole = b"".join(encode_items(contents, StreamSeq(1)))
    assert (report["followers"], report["digests"], report["digest"]) == (FOLLOWERS, 1, H(whole).hex())
    assert hub.resident_bytes - before < FOLLOWERS * FOLLOWER_BYTES + 32 * 1_048_576
    until(lambda: hub.metric("veen_followers") == 0, "all of them are gone")


def test_a_follower_that_does_not_read_is_dropped_and_delays_no_other(start_hub: StartHub) -> None:
    hub = start_hub(listen__follower_timeout_sec=1)
    alice = hub.writer()
    big, total = ciphertext(bytes(200_000)), 60
    with (
        Follower(hub.port, alice.label, receive_buffer=4_096) as deaf,
        Follower(hub.port, alice.label) as keen,
        ThreadPoolExecutor(1) as pool,
    ):
        reading = pool.submit(lambda: {item[1]: time.perf_counter() for item in keen.each(total)})
        durable = {}
        for _ in range(total):
            durable[hub.accept(alice.next(ciphertext=big)).stream_seq] = time.perf_counter()
        arrived = reading.result(PATIENCE)
        assert list(arrived) == list(range(1, total + 1))
        assert max(arrived[seq] - durable[seq] for seq in durable) < 1
        until(lambda: hub.metric("veen_followers_dropped_total") == 1, "the deaf one is dropped")
        assert deaf.status == 200
    until(lambda: hub.do(lambda: hub.hub.feed.followers) == 0, "both are gone")


def test_a_follower_that_is_behind_uses_little_memory_however_large_entries_are(start_hub: StartHub) -> None:
    hub = start_hub()
    alice = hub.writer()
    for _ in range(24):
        hub.accept(alice.next(ciphertext=ciphertext(bytes(400_000))))
    held = []

    def sent(connection: Any) -> None:
        if connection.transport is not None:
            held.append(connection.transport.get_write_buffer_size())

    with deaf(hub) as connection:
        connection.sendall(f"GET /v1/stream/{alice.label.hex()} HTTP/1.1\r\nHost: hub\r\n\r\n".encode())
        total, wanted = 0, 24 * 400_000
        while total < wanted:
            total += len(connection.recv(65_536))
            hub.do(lambda: [sent(one) for one in hub.server._api_runner.server.connections])
    assert max(held) < 2 * 1_048_576


# --- memory


def hostile(alice: Writer) -> list[bytes]:
    """Requests that try to make the hub hold, unpack or compute much."""
    big = envelope(alice.message(1, ciphertext=ciphertext(bytes(900_000)), sig=bytes(64)))
    deep = b"\x81" * 30_000 + b"\x00"
    return [
        post("/v1/submit", big),
        post("/v1/submit", b"", length=10**12),
        post("/v1/submit", deep, kind="application/cbor-seq"),
        post("/v1/submit", b"\xa2\x01\x01\x02\x9b\x7f\xff\xff\xff"),
        post("/v1/stream", b"[" * 60_000, kind="application/json"),
        post("/v1/stream", b"9" * 60_000, kind="application/json"),
        post("/tooling/authorize", deep),
        b"GET /v1/stream/"
        + alice.label.hex().encode()
        + b"?from="
        + b"9" * 5_000
        + b" HTTP/1.1\r\nHost: hub\r\n\r\n",
        b"GET /" + b"%2e" * 2_000 + b" HTTP/1.1\r\nHost: hub\r\n\r\n",
        b"POST /v1/submit HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n"
        + bytes(100_000),
    ]


def test_a_thousand_hostile_requests_leave_no_memory_behind(start_process: StartProcess) -> None:
    hub = start_process("data", "--open")
    alice = Writer("alice", hub.status().identity.hub_id)
    attacks = hostile(alice)

    def attack(times: int) -> None:
        for n in range(times):
            with talk(hub) as connection:
                try:
                    connection.sendall(attacks[n % len(attacks)])
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65_536):
                        pass
                except OSError:
                    pass

    attack(200)
    before = hub.resident_bytes
    attack(1_000)
    assert hub.resident_bytes - before < 48 * 1_048_576
    assert hub.submit(alice.next()).status == 200
    assert [line for line in hub.lines if line["event"].startswith("bug")] == []


LARGE = bytes(50_000)
CUT_OFF = {
    "no HTTP": LARGE,
    "a header too long": b"GET / HTTP/1.1\r\nHost: hub\r\nX: " + LARGE,
    "no such path": post("/nowhere", LARGE),
    "not CBOR": post("/v1/submit", envelope(b"\xff" + LARGE)),
    "half a message": post("/v1/submit", LARGE, 2 * len(LARGE)),
    "half a sequence": post("/v1/submit", LARGE, 2 * len(LARGE), CBOR_SEQ),
    "half a question": post("/v1/receipt", LARGE, len(LARGE) + 1),
    "a broken chunk": b"POST /v1/submit HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    + LARGE,
    "a follower": b"GET /v1/stream/" + b"00" * 32 + b"?from=1 HTTP/1.1\r\nHost: hub\r\n\r\n",
}


@pytest.mark.parametrize("way", ["hangs up", "waits"])
@pytest.mark.parametrize("data", CUT_OFF.values(), ids=CUT_OFF.keys())
def test_refused_and_interrupted_requests_leave_no_reference_cycles(
    hub: RunningHub, data: bytes, way: str
) -> None:
    """A look is rare: by then, what was left of such requests would be gigabytes."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):  # the last one may still be at hand
            with talk(hub) as connection, suppress(ConnectionError, TimeoutError):
                connection.sendall(data)
                if way == "waits":
                    connection.settimeout(0.2)
                    connection.recv(1)
        until(lambda: hub.server.connections == 0, "it is gone")
        assert hub.get("/healthz").status == 200  # and so is all that was done for it
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [*gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    kinds = web.BaseRequest | Connection | PendingRequest | FrameType
    assert not [one for one in left if isinstance(one, kinds)]


def test_a_sequence_of_nothing_but_the_largest_messages_is_bounded(start_hub: StartHub) -> None:
    hub = start_hub(limits=Limits(max_msg_bytes=4_096, max_chunk_bytes=65_536))
    body = bytes(9 * 1_048_576)
    answer = hub.post("/v1/submit", body, "application/cbor-seq")
    is_refused_by(rejection.SIZE_PREFILTER, answer)


def test_half_sent_bodies_fill_no_memory_and_keep_no_small_message_out(start_hub: StartHub) -> None:
    hub = start_hub()
    alice, room = hub.writer(), 4 * 1_048_576
    hub.do(lambda: setattr(hub.hub.body_budget, "max_bytes", room))
    part = post("/v1/submit", bytes(1_048_576), length=8_000_000, kind="application/cbor-seq")
    large = alice.message(2, ciphertext=ciphertext(bytes(500_000)))
    with ExitStack() as stack:
        crawling = [stack.enter_context(talk(hub)) for _ in range(8)]
        for connection in crawling:
            connection.sendall(part)
        until(lambda: hub.hub.body_budget.held > 3 * 1_048_576, "there is hardly any room")
        assert hub.hub.body_budget.held <= room
        answer = hub.submit(large)
        assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
        assert answer.headers["retry-after"] == "1"
        assert hub.accept(alice.next()).stream_seq == 1
    until(lambda: hub.hub.body_budget.held == 0, "those who sent them are gone")
    assert hub.accept(large).stream_seq == 2


def test_unread_pages_fill_no_memory(start_hub: StartHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = start_hub(listen__follower_timeout_sec=2)
    alice = hub.writer()
    for _ in range(4):
        hub.accept(alice.next(ciphertext=ciphertext(bytes(500_000))))
    monkeypatch.setattr(reading, "MAX_UNSENT_BYTES", 3_000_000)
    asked = StreamRequest(label=alice.label, from_seq=StreamSeq(1)).encode()
    with ExitStack() as stack:
        for count in (1, 2):
            stack.enter_context(deaf(hub)).sendall(post("/v1/stream", asked))
            until(lambda count=count: hub.hub.unsent > count * 2_000_000, "it waits to be read")
        answer = hub.post("/v1/stream", asked)
        assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
        assert hub.get("/healthz").status == 200
        until(lambda: hub.hub.unsent == 0, "who does not read is dropped")
        assert hub.post("/v1/stream", asked).status == 200


def test_an_error_envelope_is_what_a_client_of_any_kind_gets(hub: RunningHub) -> None:
    for accept in ("text/html", "*/*", "", "application/json;q=0.1, text/html", "\xff"):
        answer = hub.call("GET", "/nowhere", headers={"Accept": accept})
        assert isinstance(answer.error, ErrorEnvelope)
        assert answer.status == 404
    assert hub.get("/nowhere").headers["content-type"] == CBOR


def test_slow_uploads_do_not_block_other_uploads(start_hub: StartHub) -> None:
    hub = start_hub()
    alice = hub.writer()
    content = b"an attachment" * 100
    with ExitStack() as crawling:
        for number in range(20):
            other = f"content {number}".encode() * 1_000
            head = "".join(f"{k}: {v}\r\n" for k, v in alice.attachment_headers(other).items())
            connection = crawling.enter_context(talk(hub))
            request = f"PUT /v1/attachment/{H(other).hex()} HTTP/1.1\r\nHost: x\r\n{head}"
            connection.sendall(f"{request}Content-Length: {len(other)}\r\n\r\n".encode() + other[:10])
        answer = hub.call(
            "PUT", f"/v1/attachment/{H(content).hex()}", content, alice.attachment_headers(content)
        )
        assert answer.status == 200


def test_an_unread_answer_is_not_kept(start_hub: StartHub) -> None:
    hub = start_hub(listen__follower_timeout_sec=1)
    alice = hub.writer()
    for _ in range(8):
        hub.accept(alice.next(ciphertext=ciphertext(bytes(900_000))))
    asked = StreamRequest(label=alice.label, from_seq=StreamSeq(1)).encode()
    with talk(hub) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.sendall(post("/v1/stream", asked))
        until(lambda: hub.do(lambda: hub.server.connections) == 0, "the connection is given up")


@pytest.mark.parametrize("way", ["page", "follow"])
def test_a_slow_reader_gets_everything_and_a_trickling_one_is_dropped(start_hub: StartHub, way: str) -> None:
    hub = start_hub(listen__follower_timeout_sec=1)
    alice = hub.writer()
    for _ in range(3):
        hub.accept(alice.next(ciphertext=ciphertext(bytes(250_000))))
    asked = StreamRequest(label=alice.label, from_seq=StreamSeq(1)).encode()
    request = {
        "page": post("/v1/stream", asked),
        "follow": f"GET /v1/stream/{alice.label.hex()} HTTP/1.1\r\nHost: hub\r\n\r\n".encode(),
    }[way]

    def taken(size: int) -> int:
        """By a client that takes so much every twentieth of a second."""
        total = 0
        with deaf(hub) as connection:
            connection.sendall(request)
            until(lambda: hub.server.connections, "it is there")
            while total < 750_000 and hub.server.connections:
                time.sleep(0.05)
                total += len(connection.recv(size))
        return total

    assert taken(12_000) >= 750_000
    assert taken(100) < 100_000


def test_unread_answers_end_their_connection_however_short_they_are(start_hub: StartHub) -> None:
    hub = start_hub(listen__follower_timeout_sec=1)
    with deaf(hub) as connection:
        connection.sendall(b"GET /v1/status HTTP/1.1\r\nHost: hub\r\n\r\n" * 500)
        until(lambda: hub.do(lambda: hub.server.connections) == 1, "it is there")
        until(lambda: hub.do(lambda: hub.server.connections) == 0, "the connection is given up")


def test_an_unread_last_answer_does_not_keep_a_connection_open(start_hub: StartHub) -> None:
    hub = start_hub(listen__follower_timeout_sec=1)
    ask = "GET /v1/status HTTP/1.1\r\nHost: hub\r\n{}\r\n"
    with deaf(hub) as connection:
        connection.sendall((ask.format("") * 20 + ask.format("Connection: close\r\n")).encode())
        until(lambda: hub.do(lambda: hub.server.connections) == 1, "it is there")
        until(lambda: hub.do(lambda: hub.server.connections) == 0, "the connection is given up")
