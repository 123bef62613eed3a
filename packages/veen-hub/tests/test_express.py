"""The short way of a plain submit: taken when it may be, and never seen in an answer."""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, BinaryIO

import pytest

from veen_core.api import SubmitResponse
from veen_core.errors import ApiError
from veen_core.rejection import TABLE, Code, Rejection
from veen_hub.http import connections
from veen_hub.http.express import MAX_HEAD, Express, body_of, is_whole
from veen_hub.pipeline.intake import Part, Pending
from veen_storage import Files

from . import serving
from .conftest import StartHub
from .faults import FAULTS, play
from .people import Writer, envelope
from .serving import Answer, RunningHub, until
from .test_robustness import answer_to, deaf, post, talk

SUBMIT = "/v1/submit"
Send = Callable[[socket.socket, bytes, bytes], None]


def in_one_piece(connection: socket.socket, head: bytes, body: bytes) -> None:
    connection.sendall(head + body)


def in_two(connection: socket.socket, head: bytes, body: bytes) -> None:
    connection.sendall(head)
    time.sleep(0.02)
    connection.sendall(body)


def sending(send: Send) -> Callable[..., Answer]:
    """``serving.request`` with the bytes of a request handed over so."""

    def request(
        port: int,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        assert not isinstance(body, Iterator)
        named = {"Host": "hub", **(headers or {}), "Content-Length": str(len(body or b""))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        with socket.create_connection(("127.0.0.1", port), timeout=serving.PATIENCE) as connection:
            send(connection, f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode(), body or b"")
            return answer_to(connection)

    return request


def comparable(answer: Answer) -> tuple[Any, ...]:
    headers = {k: v for k, v in answer.headers.items() if k not in {"date", "veen-request-id"}}
    if answer.status == 200:
        return answer.status, headers, answer.body
    return answer.status, headers, dataclasses.replace(answer.error, request_id=None)


# --- the same answers


@pytest.mark.parametrize("row", [None, *FAULTS], ids=lambda row: row.detail if row else "accepted")
def test_both_ways_give_the_same_answer(
    start_hub: StartHub, monkeypatch: pytest.MonkeyPatch, row: Rejection | None
) -> None:
    answers = []
    for way, name in ((in_one_piece, "short"), (in_two, "long")):
        monkeypatch.setattr(serving, "request", sending(way))

        def start(*_: object, name: str = name, **settings: Any) -> RunningHub:
            return start_hub(name, **settings)

        answers.append(play(start, [row] if row else []))  # type: ignore[arg-type]  # one hub, whatever its name
    assert comparable(answers[0]) == comparable(answers[1])
    assert answers[0].headers.keys() == answers[1].headers.keys()


def test_what_the_sequencer_refuses_came_the_short_way(
    hub: RunningHub, alice: Writer, taken: list[Express], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "request", sending(in_one_piece))
    assert hub.submit(alice.next()).status == 200
    assert hub.submit(alice.message(1)).detail == "DUPLICATE"
    assert hub.submit(alice.message(2, sig=bytes(64))).detail == "SIG_INVALID"
    assert len(taken) == 3
    assert hub.metric("veen_submit_ok_total") == 1
    assert sum(hub.metric("veen_submit_err_total", code=code) for code in {r.code.value for r in TABLE}) == 2


def test_without_room_it_says_when_to_come_again(start_hub: StartHub, taken: list[Express]) -> None:
    hub = start_hub(max_waiting=1)
    alice = hub.writer()
    hub.do(lambda: setattr(hub.hub._intake, "waiting", 1))
    with talk(hub) as connection:
        connection.sendall(post(SUBMIT, envelope(alice.next())))
        answer = answer_to(connection)
        assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
        assert answer.headers["retry-after"] == "1"
        hub.do(lambda: setattr(hub.hub._intake, "waiting", 0))
        connection.sendall(post(SUBMIT, envelope(alice.message(1))))
        assert answer_to(connection).status == 200
    assert len(taken) == 2


@pytest.mark.parametrize(
    "settings",
    [{"pow__difficulty": 4}, {"network__deny": ["127.0.0.0/8"]}, {"network__allow": ["127.0.0.0/8"]}],
    ids=["work", "deny", "allow"],
)
def test_what_the_prefilter_may_refuse_goes_the_usual_way(
    start_hub: StartHub, taken: list[Express], settings: dict[str, Any]
) -> None:
    hub = start_hub(**settings)
    with talk(hub) as connection:
        connection.sendall(post(SUBMIT, envelope(hub.writer().next())))
        assert (answer_to(connection).status == 200) == ("network__allow" in settings)
    assert taken == []


# --- what is plain


PLAIN = post(SUBMIT, b"12345")
AIOHTTP = (
    b"POST /v1/submit HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
    b"User-Agent: Python/3.11 aiohttp/3\r\nContent-Length: 5\r\nContent-Type: application/cbor\r\n\r\n12345"
)


@pytest.mark.parametrize("data", [PLAIN, AIOHTTP], ids=["least", "aiohttp"])
def test_a_plain_submit_is_one(data: bytes) -> None:
    assert body_of(data) == b"12345"
    assert is_whole(data)


def changed(old: bytes, new: bytes) -> bytes:
    assert old in PLAIN
    return PLAIN.replace(old, new, 1)


@pytest.mark.parametrize(
    "data",
    [
        PLAIN[:-1],
        PLAIN + b"6",
        PLAIN + PLAIN,
        PLAIN[: PLAIN.index(b"\r\n\r\n")],
        changed(b"POST", b"PUT"),
        changed(b"POST", b"post"),
        changed(b"/v1/submit", b"/v1/submit?x=1"),
        changed(b"/v1/submit", b"http://hub/v1/submit"),
        changed(b"HTTP/1.1", b"HTTP/1.0"),
        changed(b"Host: hub\r\n", b""),
        changed(b"Host: hub\r\n", b"Host: hub\r\nHost: hub\r\n"),
        changed(b"Host: hub", b"Host:hub"),
        changed(b"Host: hub", b"Host : hub"),
        changed(b"Host: hub", b"Host: hub\r\n folded"),
        changed(b"Host: hub", b"Host: hub\nX: y"),
        changed(b"Host: hub", b"Host: \xc3\xa4"),
        changed(b"Host: hub", b"Host: hub\r\nTransfer-Encoding: chunked"),
        changed(b"Host: hub", b"Host: hub\r\nContent-Encoding: gzip"),
        changed(b"Host: hub", b"Host: hub\r\nExpect: 100-continue"),
        changed(b"Host: hub", b"Host: hub\r\nConnection: close"),
        changed(b"Host: hub", b"Host: hub\r\nConnection: upgrade\r\nUpgrade: h2c"),
        changed(b"Host: hub", b"Host: hub\r\nAccept: application/json"),
        changed(b"Host: hub", b"Host: hub\r\nVEEN-PoW: 00"),
        changed(b"application/cbor", b"application/json"),
        changed(b"application/cbor", b"application/cbor-seq"),
        changed(b"application/cbor", b"application/cbor; x=y"),
        changed(b"Content-Length: 5", b"Content-Length: 05"),
        changed(b"Content-Length: 5", b"Content-Length: +5"),
        changed(b"Content-Length: 5", b"Content-Length: 5 "),
        changed(b"Content-Length: 5", b"Content-Length: 5, 5"),
        changed(b"Content-Length: 5", b"Content-Length: 5\r\nContent-Length: 5"),
        changed(b"Content-Length: 5", b"Content-Length: 0x5"),
        changed(b"Content-Length: 5", b"content-length: 5"),
        changed(b"Host: hub", b"Host: hub\r\nUser-Agent: " + b"a" * MAX_HEAD),
        changed(b"Content-Length: 5", b"Content-Length: " + b"5" * 5_000),
    ],
)
def test_anything_else_is_not(data: bytes) -> None:
    assert body_of(data) is None


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n", True),
        (b"GET /v1/stream/00?from=1 HTTP/1.1\r\nhost: hub\r\nx-y: z\r\n\r\n", True),
        (post("/v1/stream", b"123"), True),
        (post("/v1/stream", b"123", length=4), False),
        (post("/v1/stream", b"123", length=2), False),
        (b"GET /healthz HTTP/1.1\r\nHost: hub\r\n", False),
        (b"GET /healthz HTTP/1.0\r\nHost: hub\r\n\r\n", False),
        (b"GET /healthz HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: chunked\r\n\r\n", False),
        (b"GET /healthz HTTP/1.1\r\nHost: hub\r\nUpgrade: websocket\r\n\r\n", False),
        (b"GET /healthz HTTP/1.1\r\nHost: hub\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", False),
        (b"GET /healthz HTTP/1.1\r\nHost: hub\r\nContent-Length: -0\r\n\r\n", False),
        (b"GET /healthz HTTP/1.1\r\nHost: hub\r\n folded\r\n\r\n", False),
        (b"hello", False),
        (b"CONNECT /healthz HTTP/1.1\r\nHost: hub\r\nContent-Length: 3\r\n\r\nabc", False),
        (b"GET /healthz HTTP/1.1\r\nHost: " + b"a" * MAX_HEAD + b"\r\n\r\n", False),
        (b"GET /healthz HTTP/1.1\r\nHost: hub\r\nContent-Length: " + b"0" * 5_000 + b"\r\n\r\n", False),
    ],
)
def test_a_request_is_known_to_be_whole_or_not_at_all(data: bytes, whole: bool) -> None:
    assert is_whole(data) == whole


# --- one connection, many requests


def seqs(answers: BinaryIO, count: int) -> list[int]:
    """Of answers that may come in one piece."""
    found = []
    for _ in range(count):
        head = b"".join(iter(answers.readline, b"\r\n")).decode()
        assert head.startswith("HTTP/1.1 200 "), head
        length = int(head.split("Content-Length: ")[1].split("\r\n")[0])
        found.append(SubmitResponse.decode(answers.read(length)).receipt.stream_seq)
    return found


def test_ways_may_change_on_one_connection(hub: RunningHub, alice: Writer, taken: list[Express]) -> None:
    """A submit that comes before aiohttp waits for it goes its way; sooner or later one does not."""
    with talk(hub) as connection:
        for _ in range(100):
            connection.sendall(post(SUBMIT, envelope(alice.next())))
            assert answer_to(connection).status == 200
            if len(taken) == 3:
                return
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n")
            assert answer_to(connection).status == 200
    raise AssertionError(f"the short way was taken {len(taken)} times only")


def test_after_a_request_in_parts_the_connection_keeps_to_the_usual_way(
    hub: RunningHub, alice: Writer, taken: list[Express]
) -> None:
    """Where a parser stands that was given a part cannot be told from outside."""
    with talk(hub) as connection:
        for way in (in_two, in_one_piece, in_one_piece):
            way(connection, *_split(post(SUBMIT, envelope(alice.next()))))
            assert answer_to(connection).status == 200
    assert taken == []


def _split(data: bytes) -> tuple[bytes, bytes]:
    end = data.index(b"\r\n\r\n") + 4
    return data[:end], data[end:]


def test_what_follows_a_submit_waits_for_its_answer(hub: RunningHub, alice: Writer) -> None:
    """Pipelined in one piece, in many, and cut where it hurts: answers come in order."""
    requests = [post(SUBMIT, envelope(alice.next())) for _ in range(12)]
    with talk(hub) as connection, connection.makefile("rb") as answers:
        for request in requests[:6]:
            connection.sendall(request)
            time.sleep(0.0005)
        assert seqs(answers, 6) == [1, 2, 3, 4, 5, 6]
        rest = b"".join(requests[6:])
        for start, end in pairwise([0, 1_000, 1_001, 2_500, len(rest)]):
            connection.sendall(rest[start:end])
        assert seqs(answers, 6) == [7, 8, 9, 10, 11, 12]


class SlowSync(Files):
    """A disk that takes its time."""

    seconds = 0.0

    def sync(self, fd: int) -> None:
        time.sleep(self.seconds)
        super().sync(fd)


def test_a_client_that_leaves_is_not_answered_and_its_message_is_kept(start_hub: StartHub) -> None:
    files = SlowSync()
    hub = start_hub(files=files)
    alice = hub.writer()
    files.seconds = 0.2
    with talk(hub) as connection:
        connection.sendall(post(SUBMIT, envelope(alice.next())))
        time.sleep(0.05)
    files.seconds = 0.0
    until(lambda: hub.store.read.head(alice.label), "the message is durable")
    assert hub.accept(alice.next()).stream_seq == 2


def test_only_an_idle_connection_is_closed(start_hub: StartHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEEPALIVE_SEC", 0.5)
    files = SlowSync()
    hub = start_hub(files=files)
    alice = hub.writer()
    with talk(hub) as connection:
        for pause in (0.3, 0.3, 0.3, 0.0):
            connection.sendall(post(SUBMIT, envelope(alice.next())))
            assert answer_to(connection).status == 200
            time.sleep(pause)
        files.seconds = 0.8
        connection.sendall(post(SUBMIT, envelope(alice.next())))
        assert answer_to(connection).status == 200
        files.seconds = 0.0
        assert connection.recv(1) == b"", "and now it is"


def test_a_stop_answers_what_came_the_short_way(start_hub: StartHub) -> None:
    files = SlowSync()
    hub = start_hub(files=files)
    alice = hub.writer()
    files.seconds = 0.3
    with talk(hub) as connection:
        connection.sendall(post(SUBMIT, envelope(alice.next())))
        time.sleep(0.05)
        hub.stop()
        assert answer_to(connection).read(SubmitResponse).receipt.stream_seq == 1


def test_for_a_client_that_does_not_read_answers_are_not_heaped_up(
    start_hub: StartHub, taken: list[Express]
) -> None:
    hub = start_hub(listen__follower_timeout_sec=1)
    refused = post(SUBMIT, envelope(hub.writer().message(1, sig=bytes(64))))
    with deaf(hub) as connection:
        until(lambda: hub.server.connections, "it is accepted")
        for count in range(1, 2_000):
            connection.sendall(refused)
            until(lambda count=count: _refused(hub) == count or not hub.server.connections, "it is answered")
            if not hub.server.connections:
                break
        assert count < 1_000, "and then the connection is given up"
    assert len(taken) > 10


def _refused(hub: RunningHub) -> float:
    return hub.hub.metrics.submit_err.labels("E.SIG")._value.get()


def test_a_bug_on_the_short_way_is_answered_and_the_connection_goes_on(
    hub: RunningHub, alice: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_express: Express) -> bytes:
        raise RuntimeError("a bug")

    with talk(hub) as connection:
        with monkeypatch.context() as patch:
            patch.setattr(Express, "answer", broken)
            connection.sendall(post(SUBMIT, envelope(alice.next())))
            answer = answer_to(connection)
        assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
        connection.sendall(post(SUBMIT, envelope(alice.next())))
        assert answer_to(connection).status == 200


def test_a_bug_in_one_answer_keeps_no_other_client_waiting(hub: RunningHub) -> None:
    told: list[str] = []

    def broken() -> None:
        raise RuntimeError("a bug")

    def settled_together() -> None:
        hub.hub._intake.waiting += 2
        refused = ApiError(Code.UNAVAILABLE, "no")
        waiting = [Pending.of([b""], then) for then in (broken, lambda: told.append("other"))]
        hub.hub._intake._deliver([Part(pending, 0, 1) for pending in waiting], [refused] * 2)

    hub.do(settled_together)
    assert told == ["other"]
