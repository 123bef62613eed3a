"""Submits that arrive whole are handled directly, for every client, with the same answers as all others."""

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
from veen_hub.api.submit import SubmitCall
from veen_hub.http import bounded_connection
from veen_hub.pipeline.pending_requests import NEWCOMERS, PendingRequest, RequestSlice
from veen_storage import Files

from . import serving
from .conftest import StartHub
from .faults import FAULTS, play
from .people import Writer, ciphertext, envelope
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
def test_direct_and_indirect_submits_get_the_same_answer(
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


def test_refusals_of_the_sequencer_are_answered_and_counted(
    hub: RunningHub, alice: Writer, direct: list[SubmitCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "request", sending(in_one_piece))
    assert hub.submit(alice.next()).status == 200
    assert hub.submit(alice.message(1)).detail == "DUPLICATE"
    assert hub.submit(alice.message(2, sig=bytes(64))).detail == "SIG_INVALID"
    assert len(direct) == 3
    assert hub.metric("veen_submit_ok_total") == 1
    assert sum(hub.metric("veen_submit_err_total", code=code) for code in {r.code.value for r in TABLE}) == 2


def test_a_direct_submit_to_a_full_queue_is_answered_with_retry_after(
    start_hub: StartHub, direct: list[SubmitCall]
) -> None:
    hub = start_hub(max_waiting=1)
    alice = hub.writer()
    hub.do(lambda: setattr(hub.hub.waiting_room, "waiting", 1))
    with talk(hub) as connection:
        connection.sendall(post(SUBMIT, envelope(alice.next())))
        answer = answer_to(connection)
        assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
        assert answer.headers["retry-after"] == "1"
        hub.do(lambda: setattr(hub.hub.waiting_room, "waiting", 0))
        connection.sendall(post(SUBMIT, envelope(alice.message(1))))
        assert answer_to(connection).status == 200
    assert len(direct) == 2


@pytest.mark.parametrize(
    "settings",
    [{"pow__difficulty": 4}, {"network__deny": ["127.0.0.0/8"]}, {"network__allow": ["127.0.0.0/8"]}],
    ids=["work", "deny", "allow"],
)
def test_the_prefilter_applies_to_direct_submits(
    start_hub: StartHub, direct: list[SubmitCall], settings: dict[str, Any]
) -> None:
    hub = start_hub(**settings)
    with talk(hub) as connection:
        connection.sendall(post(SUBMIT, envelope(hub.writer().next())))
        assert (answer_to(connection).status == 200) == ("network__allow" in settings)
    assert len(direct) == 1


# --- every client


CLIENTS = {
    "nothing but the body": {},
    "aiohttp": {"Accept": "*/*", "Accept-Encoding": "gzip, deflate", "User-Agent": "Python/3.11 aiohttp/3"},
    "our own": {"Accept": "application/cbor, application/cbor-seq"},
    "JSON wanted": {"Accept": "application/json"},
    "lower case": {"content-type": "application/cbor; x=y", "x-trace": "1"},
    "a cookie": {"VEEN-PoW": "00", "Cookie": "a=b"},
}


@pytest.mark.parametrize("headers", CLIENTS.values(), ids=CLIENTS)
def test_a_whole_submit_is_handled_directly_whatever_its_headers(
    hub: RunningHub, alice: Writer, direct: list[SubmitCall], headers: dict[str, str]
) -> None:
    named = (
        {"Host": "hub", "Content-Type": "application/cbor"}
        if "content-type" not in headers
        else {"Host": "hub"}
    )
    body = envelope(alice.next())
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**named, **headers}.items())
    with talk(hub) as connection:
        connection.sendall(
            f"POST {SUBMIT} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
        )
        assert answer_to(connection).read(SubmitResponse).receipt.stream_seq == 1
    assert len(direct) == 1


def test_a_whole_sequence_is_handled_directly(
    hub: RunningHub, alice: Writer, direct: list[SubmitCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "request", sending(in_one_piece))
    answer = hub.post(SUBMIT, b"".join(envelope(alice.next()) for _ in range(20)), kind=serving.CBOR_SEQ)
    assert answer.status == 200
    assert len(direct) == 1


def test_bodies_of_direct_submits_count_against_the_budget(
    start_hub: StartHub,
) -> None:
    hub = start_hub()
    alice = hub.writer()
    hub.do(lambda: setattr(hub.hub.body_budget, "max_bytes", 10_000))
    large = post(SUBMIT, envelope(alice.next(ciphertext=ciphertext(bytes(120_000)))))
    with talk(hub) as connection:
        connection.sendall(large)
        answer = answer_to(connection)
    assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
    assert hub.do(lambda: hub.hub.body_budget.held) == 0


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


def test_direct_submits_and_other_requests_may_alternate_on_one_connection(
    hub: RunningHub, alice: Writer, direct: list[SubmitCall]
) -> None:
    """A submit that arrives before aiohttp waits for the next request is left to aiohttp."""
    with talk(hub) as connection:
        for _ in range(100):
            connection.sendall(post(SUBMIT, envelope(alice.next())))
            assert answer_to(connection).status == 200
            if len(direct) == 3:
                return
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n")
            assert answer_to(connection).status == 200
    raise AssertionError(f"only {len(direct)} submits were handled directly")


def test_after_a_request_in_parts_the_next_is_handled_directly_again(
    hub: RunningHub, alice: Writer, direct: list[SubmitCall]
) -> None:
    with talk(hub) as connection:
        in_two(connection, *_split(post(SUBMIT, envelope(alice.next()))))
        assert answer_to(connection).status == 200
        assert direct == []
        for _ in range(100):
            connection.sendall(post(SUBMIT, envelope(alice.next())))
            assert answer_to(connection).status == 200
            if direct:
                return
    raise AssertionError("no submit was handled directly")


def _split(data: bytes) -> tuple[bytes, bytes]:
    end = data.index(b"\r\n\r\n") + 4
    return data[:end], data[end:]


def test_a_request_pipelined_after_a_submit_waits_for_its_answer(hub: RunningHub, alice: Writer) -> None:
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


def test_the_message_of_a_client_that_disconnects_is_kept(start_hub: StartHub) -> None:
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
    monkeypatch.setattr(bounded_connection, "KEEPALIVE_SEC", 0.5)
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


def test_a_stop_answers_direct_submits(start_hub: StartHub) -> None:
    files = SlowSync()
    hub = start_hub(files=files)
    alice = hub.writer()
    files.seconds = 0.3
    with talk(hub) as connection:
        connection.sendall(post(SUBMIT, envelope(alice.next())))
        time.sleep(0.05)
        hub.stop()
        assert answer_to(connection).read(SubmitResponse).receipt.stream_seq == 1


def test_answers_to_a_client_that_does_not_read_are_bounded(
    start_hub: StartHub, direct: list[SubmitCall]
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
    assert len(direct) > 10


def _refused(hub: RunningHub) -> float:
    return hub.hub.metrics.submit_err.labels("E.SIG")._value.get()


def test_a_bug_in_a_direct_submit_is_answered_and_the_connection_stays_open(
    hub: RunningHub, alice: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_call: SubmitCall) -> bytes:
        raise RuntimeError("a bug")

    with talk(hub) as connection:
        with monkeypatch.context() as patch:
            patch.setattr(SubmitCall, "reply", broken)
            connection.sendall(post(SUBMIT, envelope(alice.next())))
            answer = answer_to(connection)
        assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
        connection.sendall(post(SUBMIT, envelope(alice.next())))
        assert answer_to(connection).status == 200


def test_a_bug_in_one_answer_does_not_block_other_clients(hub: RunningHub) -> None:
    told: list[str] = []

    def broken() -> None:
        raise RuntimeError("a bug")

    def settled_together() -> None:
        hub.hub.waiting_room.enter(NEWCOMERS, 1)
        hub.hub.waiting_room.enter(NEWCOMERS, 1)
        refused = ApiError(Code.UNAVAILABLE, "no")
        waiting = [PendingRequest.of([b""], then) for then in (broken, lambda: told.append("other"))]
        hub.hub._intake._deliver([RequestSlice(pending, 0, 1) for pending in waiting], [refused] * 2)

    hub.do(settled_together)
    assert told == ["other"]
