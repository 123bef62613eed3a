"""The hub as a NATS service (DR0): the same answers as over HTTP, with a real server that is killed too."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from veen_core import pow as proof_of_work
from veen_core.api import (
    CheckpointRequest,
    ConsistencyRequest,
    ProofRequest,
    ReceiptRequest,
    StreamRequest,
    SubmitResponse,
)
from veen_core.errors import ConfigError
from veen_core.hashing import H
from veen_core.ids import StreamSeq
from veen_core.status import Status
from veen_hub.client import Refused, Tls, TooLarge, Unreachable, connect
from veen_hub.nats import flow, service
from veen_hub.nats.connection import Error, open_nats
from veen_hub.nats.parts import FLOW_SUBJECT, STATUS
from veen_hub.nats.subjects import below
from veen_hub.ops import config as configuration
from veen_storage import Files
from veen_testing.nats_server import NatsServer

from . import serving
from .certificates import Certificates
from .client_fixtures import QUICK, person, run
from .conftest import StartHub
from .other_transports import comparable
from .over_nats import ask, served, url_of, with_nats
from .people import envelope
from .serving import CBOR, CBOR_SEQ, RunningHub, until


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    yield server
    server.kill()


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A server that the test may kill."""
    server = NatsServer(tmp_path / "nats")
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def _short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """All hubs of these tests answer within milliseconds."""
    monkeypatch.setattr(service, "LOOK_SEC", 0.1)
    monkeypatch.setattr(service, "RETRY_SEC", 0.05)


# --- the same answers


def test_every_subject_answers_with_the_bytes_of_its_endpoint(start_hub: StartHub, nats: NatsServer) -> None:
    hub = with_nats(start_hub, nats)
    alice = hub.writer()
    for _ in range(3):
        hub.accept(alice.next())
    hub.admin("/tooling/checkpoint")
    label, one, three = alice.label, StreamSeq(1), StreamSeq(3)
    questions = {
        "/v1/stream": StreamRequest(label=label, from_seq=one, with_receipts=True, with_mmr_proof=True),
        "/v1/receipt": ReceiptRequest(label=label, stream_seq=one),
        "/v1/proof": ProofRequest(label=label, stream_seq=one, tree_size=three),
        "/v1/consistency": ConsistencyRequest(label=label, from_seq=one, to_seq=three),
        "/v1/checkpoint": CheckpointRequest(label=label, upto_seq=StreamSeq(0)),
        "/v1/hublog/proof": ReceiptRequest(label=label, stream_seq=one),
        "/v2/receipt": ReceiptRequest(label=label, stream_seq=one),
        "/v1/nothing": ReceiptRequest(label=label, stream_seq=one),
    }
    headers = {"Content-Type": CBOR}
    for path, question in questions.items():
        by_nats = ask(url_of(hub), "POST", path, question.encode(), headers)
        assert comparable(by_nats) == comparable(hub.post(path, question)), path
    for path in (
        "/log/checkpoint",
        "/log/tile/0/000.p/1",
        "/log/tile/x",
        "/v1/checkpoint?epoch_max=9",
        "/healthz",
    ):
        assert comparable(ask(url_of(hub), "GET", path)) == comparable(hub.get(path)), path
    assert ask(url_of(hub), "GET", "/v1/status").read(Status).identity == hub.status().identity


def test_a_sequence_of_several_labels_is_admitted_as_over_http(start_hub: StartHub, nats: NatsServer) -> None:
    hub = with_nats(start_hub, nats)
    alice, bob = hub.writer(), hub.writer("bob", to="invoices")
    body = b"".join(envelope(one) for one in (alice.next(), bob.next(), alice.next(sig=bytes(64))))
    answer = ask(url_of(hub), "POST", "/v1/submit", body, {"Content-Type": CBOR_SEQ})
    assert (answer.status, answer.headers["content-type"]) == (200, CBOR_SEQ)
    assert hub.metric("veen_submit_ok_total") == 2


def test_attachments_and_copies_are_refused_with_an_error_that_names_http(
    start_hub: StartHub, nats: NatsServer
) -> None:
    hub = with_nats(start_hub, nats)
    coid = H(b"file").hex()
    for method, path in (
        ("PUT", f"/v1/attachment/{coid}"),
        ("GET", f"/v1/attachment/{coid}"),
        ("GET", "/v1/replica/snapshot"),
    ):
        refused = ask(url_of(hub), method, path, b"file" if method == "PUT" else None)
        assert (refused.status, refused.error.code) == (400, "E.BAD_REQUEST")
        assert "HTTP" in refused.error.message


def publish(hub: RunningHub, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> Any:
    """One request as any NATS client sends it."""

    async def talk() -> Any:
        assert hub.server.nats is not None
        server = url_of(hub).rpartition("/")[0]
        client = await open_nats(server, name="test", tls=None, on_closed=lambda: None)
        try:
            return await client.request(
                below(hub.server.nats.prefix, subject), payload, timeout=10, headers=headers
            )
        finally:
            await client.close()

    return asyncio.run(talk())


def cookie_for(hub: RunningHub, wire: bytes) -> str:
    status = hub.status()
    challenge = proof_of_work.challenge(status.pow_salt, wire)
    return proof_of_work.solve(challenge, status.pow_difficulty).encode().hex()


def test_a_plain_nats_client_submits_to_the_subject_of_dr0(start_hub: StartHub, nats: NatsServer) -> None:
    hub = with_nats(start_hub, nats, nats__prefix="", pow__difficulty=4)
    alice = hub.writer()
    wire = alice.next()
    subject = f"submit.{alice.label.hex()}"
    refused = publish(hub, subject, envelope(wire))
    assert refused.headers[STATUS] == "403"
    cookies = f"00, {cookie_for(hub, wire)}"
    assert publish(hub, subject, envelope(wire), {"VEEN-PoW": cookies}).headers[STATUS] == "403", "one is bad"
    accepted = publish(hub, subject, envelope(wire), {"VEEN-PoW": cookie_for(hub, wire)})
    assert SubmitResponse.decode(accepted.data).receipt.stream_seq == 1


def test_a_subject_accepts_messages_of_its_label_only(start_hub: StartHub, nats: NatsServer) -> None:
    hub = with_nats(start_hub, nats)
    alice, bob = hub.writer(), hub.writer("bob", to="invoices")
    for payload, kind in (
        (envelope(bob.next()), CBOR),
        (envelope(alice.next()) + envelope(bob.message(1)), CBOR_SEQ),
    ):
        refused = publish(hub, f"submit.{alice.label.hex()}", payload, {"Content-Type": kind})
        assert refused.headers[STATUS] == "400"
    assert publish(hub, "submit.ff", envelope(alice.message(1))).headers[STATUS] == "400"
    assert hub.metric("veen_submit_ok_total") == 0


# --- the client


def client_of(hub: RunningHub, **options: Any) -> Any:
    url = options.pop("url", url_of(hub))
    return connect(url, person("alice"), **{"trust": hub.hub_id, "retry": QUICK, **options})


def test_the_client_sends_reads_and_follows_over_nats(start_hub: StartHub, nats: NatsServer) -> None:
    hub = with_nats(start_hub, nats, gating=False)

    async def work() -> None:
        async with client_of(hub) as alice:
            stream = alice.stream("orders", to=person("alice").dh_keys[0].public)
            await stream.send("one")
            sent = [one async for one in stream.send_many([f"{n}" * 40_000 for n in range(30)])]
            assert len(sent) == 30
            texts = [message.text async for message in stream.read()]
            assert len(texts) == 31
            seen = []
            async for message in stream.follow():
                seen.append(message.text)
                if len(seen) == 31:
                    await stream.send("more")
                if len(seen) == 32:
                    break
            assert seen == [*texts, "more"]
            with pytest.raises(Refused, match="HTTP"):
                await alice.fetch(H(b"absent"))

    run(work())


def test_a_message_too_large_for_the_server_names_its_limit(start_hub: StartHub, tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "small", max_payload=65_536)
    try:
        hub = with_nats(start_hub, server, gating=False)

        async def work() -> None:
            async with client_of(hub) as alice:
                stream = alice.stream("orders", to=person("alice").dh_keys[0].public)
                with pytest.raises(TooLarge, match="max_payload"):
                    await stream.send("x" * 70_000)
                assert len([one async for one in stream.send_many(["y" * 30_000] * 7)]) == 7
                assert len([one async for one in stream.read()]) == 7

        run(work())
    finally:
        server.kill()


class HeldSync(Files):
    """A disk whose next sync waits for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self.begun, self.go = threading.Event(), threading.Event()

    def sync(self, fd: int) -> None:
        super().sync(fd)
        if self.armed:
            self.armed = False
            self.begun.set()
            self.go.wait(serving.PATIENCE)


def test_a_reply_lost_after_the_commit_is_recovered_with_the_same_receipt(
    start_hub: StartHub, own_nats: NatsServer
) -> None:
    files = HeldSync()
    hub = with_nats(start_hub, own_nats, gating=False, files=files)

    async def work() -> None:
        async with client_of(hub) as alice:
            stream = alice.stream("orders", to=person("alice").dh_keys[0].public)
            await stream.send("first")
            files.armed = True
            sending = asyncio.create_task(stream.send("second"))
            await asyncio.to_thread(files.begun.wait, serving.PATIENCE)
            own_nats.kill()
            files.go.set()
            await asyncio.to_thread(
                until, lambda: hub.hub.metrics.submit_ok._value.get() == 2, "it is durable"
            )
            own_nats.start()
            receipt = await sending
            assert receipt.stream_seq == 2
            assert receipt == hub.store.read.receipt(receipt.label, StreamSeq(2))
            assert hub.store.read.head(receipt.label).stream_seq == 2  # type: ignore[union-attr]

    run(work())


def test_a_follower_resumes_after_the_server_was_killed_and_over_another_transport(
    start_hub: StartHub, own_nats: NatsServer, tmp_path: Path
) -> None:
    hub = with_nats(start_hub, own_nats, gating=False)

    async def writes(*texts: str) -> None:
        async with client_of(hub, url=hub.url, state=tmp_path / "writer") as alice:
            for text in texts:
                await alice.stream("orders", to=person("alice").dh_keys[0].public).send(text)

    async def follow(url: str, start: int, count: int, during: Any = None) -> list[tuple[int, str]]:
        seen: list[tuple[int, str]] = []
        async with client_of(hub, url=url, state=tmp_path / "reader") as reader:
            async for message in reader.stream("orders").follow(start):
                seen.append((message.stream_seq, message.text))
                if during is not None:
                    await during()
                    during = None
                if len(seen) == count:
                    break
        return seen

    async def interrupt() -> None:
        own_nats.kill()
        await writes("b", "c")
        own_nats.start()

    async def work() -> None:
        await writes("a")
        assert await follow(url_of(hub), 1, 3, interrupt) == [(1, "a"), (2, "b"), (3, "c")]
        await writes("d")
        assert await follow(hub.url, 4, 1) == [(4, "d")]
        await writes("e")
        assert await follow(url_of(hub), 5, 1) == [(5, "e")]

    run(work())


# --- several hubs in one account


def test_a_bug_ends_neither_the_road_nor_the_replies(
    start_hub: StartHub, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    def once(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def fails(*args: Any) -> Any:
            if name not in failed:
                failed.append(name)
                raise RuntimeError("a bug")
            return real(*args)

        return fails

    monkeypatch.setattr(service.NatsService, "_serve", once(service.NatsService._serve, "serve"))
    monkeypatch.setattr(service, "split_reply", once(service.split_reply, "reply"))
    hub = with_nats(start_hub, nats)
    assert ask(url_of(hub), "GET", "/v1/status").status == 200
    assert failed == ["serve", "reply"]


def test_hubs_in_one_account_do_not_collide(start_hub: StartHub, nats: NatsServer) -> None:
    hub = with_nats(start_hub, nats, nats__prefix="one")
    second = with_nats(start_hub, nats, "second", nats__prefix="two")
    alice = hub.writer()
    assert (
        ask(url_of(hub), "POST", "/v1/submit", envelope(alice.next()), {"Content-Type": CBOR}).status == 200
    )
    assert (hub.metric("veen_submit_ok_total"), second.metric("veen_submit_ok_total")) == (1, 0)


def test_a_hub_waits_until_another_has_left_its_subjects(
    start_hub: StartHub, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []

    def is_own(name: str) -> bool:
        """The two share a process here, and so the beginning of their request ids."""
        refused.append(name)
        return False

    first = with_nats(start_hub, nats, nats__prefix="shared")
    monkeypatch.setattr(service, "is_own", is_own)
    second = start_hub("second", nats__servers=[nats.url], nats__prefix="shared")
    assert second.server.nats is not None
    until(lambda: refused, "it has looked")
    assert not second.server.nats.serving.is_set()
    first.stop()
    monkeypatch.setattr(service, "is_own", lambda _name: True)
    served(second)


def test_nobody_listening_is_said_with_the_prefix(nats: NatsServer) -> None:
    with pytest.raises(Unreachable, match="no hub listens") as raised:
        ask(f"{nats.url}/veen.nobody", "GET", "/v1/status")
    assert "prefix" in str(raised.value.action)


# --- TLS and passwords


@pytest.fixture
def tls_nats(tmp_path: Path, certificates: Certificates) -> Iterator[NatsServer]:
    cert, key = certificates.hub
    server = NatsServer(
        tmp_path / "nats",
        tls={"cert_file": str(cert), "key_file": str(key)},
        authorization={"users": [{"user": "hub", "password": "a b:c"}]},
    )
    yield server
    server.kill()


def test_hub_and_client_talk_over_tls_with_a_password(
    start_hub: StartHub,
    tls_nats: NatsServer,
    certificates: Certificates,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a b:c\n")
    server = tls_nats.url.replace("nats://", "tls://")
    settings = {"nats__servers": [server], "nats__ca": certificates.authority, "nats__user": "hub"}
    hub = served(start_hub(**settings, nats__secret_file=secret))
    tls = Tls(ca=certificates.authority)
    url = url_of(hub).replace("://", "://hub:a%20b%3Ac@")
    assert ask(url, "GET", "/v1/status", tls=tls).read(Status).identity == hub.status().identity
    for wrong in (Tls(ca=certificates.hub[0]), None):
        with pytest.raises(Unreachable) as raised:
            ask(url, "GET", "/v1/status", tls=wrong)
        assert "a%20b" not in str(raised.value), "no password in an error"
    assert "eof_received" not in caplog.text, "asyncio has nothing to complain about"


def user(name: str, publish: list[str], subscribe: list[str]) -> dict[str, Any]:
    return {
        "user": name,
        "password": "w",
        "permissions": {"publish": publish, "subscribe": subscribe},
    }


def test_the_permissions_of_the_guide_are_enough_and_missing_ones_are_said(
    start_hub: StartHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("w")
    calls = ["status", "stream", "receipt", "submit.*", "follow.*", "flow.*"]
    users = [
        user("hub", ["p.>", "_INBOX.>"], ["p.>"]),
        user("mute", ["_INBOX.>"], ["p.>"]),
        user("client", [f"p.{call}" for call in calls], ["_INBOX.>"]),
    ]
    server = NatsServer(tmp_path / "nats", authorization={"users": users})
    about = {"nats__servers": [server.url], "nats__secret_file": secret, "nats__prefix": "p"}
    try:
        mute = start_hub("mute", nats__user="mute", **about)
        until(lambda: "nats_refused" in caplog.messages, "the hub says what it may not")
        assert mute.server.nats is not None
        assert not mute.server.nats.serving.is_set()
        mute.stop()
        hub = served(start_hub(nats__user="hub", gating=False, **about))
        url = url_of(hub).replace("://", "://client:w@")

        async def work() -> None:
            async with connect(url, person("alice"), trust=hub.hub_id, retry=QUICK) as alice:
                stream = alice.stream("orders", to=person("alice").dh_keys[0].public)
                await stream.send("1")
                followed = stream.follow()
                for text in "234":
                    await anext(followed)
                    await stream.send(text)
                assert (await anext(followed)).text == "4"

        run(work())
        with pytest.raises(Unreachable, match=r"refuses.*p\.checkpoint.*ask the operator of NATS"):
            ask(url, "POST", "/v1/checkpoint", b"", {"Content-Type": CBOR})
        with pytest.raises(Unreachable, match="refuses the login"):
            ask(url.replace(":w@", ":x@"), "GET", "/v1/status")
    finally:
        server.kill()


def test_tls_is_never_left_out_because_the_server_does_not_offer_it(nats: NatsServer) -> None:
    async def talk() -> None:
        with pytest.raises(Error, match="does not require TLS"):
            await open_nats(nats.url, name="x", tls=Tls().context(), on_closed=lambda: None, secret="word")

    run(talk())


# --- rude clients and servers


def with_headers(subject: str, headers: bytes) -> bytes:
    """A message as it travels, with headers that no client library would write."""
    block = b"NATS/1.0" + headers
    return b"HPUB %s in.x %d %d\r\n%s\r\n" % (subject.encode(), len(block), len(block), block)


@pytest.mark.parametrize(
    "message",
    [
        lambda prefix: f"PUB {prefix}.flow.".encode() + b"\xff 1\r\n1\r\n",
        lambda prefix: f"PUB {prefix}.status in.".encode() + b"\xff 0\r\n\r\n",
        lambda prefix: f"PUB {prefix}.submit.a\vb in.x 0\r\n\r\n".encode(),
        lambda prefix: f"PUB {prefix}.status in.a\fb 0\r\n\r\n".encode(),
        lambda prefix: with_headers(f"{prefix}.status", b" \xff\xff\xff\r\n\r\n"),
        lambda prefix: with_headers(f"{prefix}.status", b""),
        lambda prefix: with_headers(f"{prefix}.submit", b"\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n"),
    ],
    ids=["subject", "reply", "tab in subject", "tab in reply", "status", "no headers", "length"],
)
def test_no_message_makes_the_hub_deaf_or_ends_its_connection(
    start_hub: StartHub, nats: NatsServer, message: Callable[[str], bytes]
) -> None:
    """Every client of the account may send it; nats-py alone stops reading or disconnects."""
    hub = with_nats(start_hub, nats)
    service = hub.server.nats
    assert service is not None
    connection = service._client
    with socket.create_connection(("127.0.0.1", nats.port)) as rude, rude.makefile("rb") as answers:
        rude.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n' + message(service.prefix) + b"PING\r\n")
        until(lambda: answers.readline() == b"PONG\r\n", "the server has the message")
        assert ask(url_of(hub), "GET", "/v1/status").status == 200
    assert service._client is connection
    until(lambda: service._open == 0, "no request is left")


@pytest.mark.parametrize("greeting", [b"INFO []\r\n", b"x" * 200_000], ids=["list", "long line"])
def test_a_server_that_does_not_speak_nats_is_said_and_tried_again(
    start_hub: StartHub, greeting: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(serving.PATIENCE)

        def greet() -> None:
            accepted, _ = listening.accept()
            with accepted, contextlib.suppress(ConnectionError):
                accepted.sendall(greeting)

        server = f"nats://127.0.0.1:{listening.getsockname()[1]}"
        hub = start_hub(nats__servers=[server])
        for _ in range(2):
            greet()
        hub.stop()
        with ThreadPoolExecutor() as threads:
            threads.submit(greet)
            with pytest.raises(Unreachable, match="does not speak NATS"):
                ask(f"{server}/p", "GET", "/v1/status")


# --- bounds


def test_requests_beyond_the_bound_are_answered_with_retry_after(
    start_hub: StartHub, nats: NatsServer
) -> None:
    hub = with_nats(start_hub, nats, nats__max_requests=1)
    hub.do(lambda: setattr(hub.server.nats, "_open", 1))
    refused = ask(url_of(hub), "GET", "/v1/status")
    assert (refused.status, refused.error.code) == (503, "E.UNAVAILABLE")
    assert refused.headers["retry-after"] == "1"
    hub.do(lambda: setattr(hub.server.nats, "_open", 0))
    assert ask(url_of(hub), "GET", "/v1/status").status == 200


def raw_follow(hub: RunningHub, label: Any, during: Any) -> list[Any]:
    """A follower that never says what it has read."""
    found: list[Any] = []

    async def talk() -> None:
        assert hub.server.nats is not None
        server = url_of(hub).rpartition("/")[0]
        client = await open_nats(server, name="test", tls=None, on_closed=lambda: None)
        inbox = await client.subscribe(client.new_inbox())
        subject = below(hub.server.nats.prefix, f"follow.{label.hex()}")
        await client.publish(subject, b"", reply=inbox.subject)
        found.append(await inbox.next_msg(timeout=10))
        await asyncio.to_thread(during)
        while inbox.pending_msgs:
            found.append(await inbox.next_msg(timeout=1))
        await client.close()

    asyncio.run(talk())
    return found


def test_a_follower_that_does_not_read_is_dropped_and_gets_no_more_than_the_window(
    start_hub: StartHub, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "MAX_UNREAD_PARTS", 3)
    hub = with_nats(start_hub, nats, listen__follower_timeout_sec=1)
    alice = hub.writer()

    def during() -> None:
        for _ in range(12):
            hub.accept(alice.next())
        until(lambda: hub.metric("veen_followers_dropped_total") == 1, "the follower is dropped")

    found = raw_follow(hub, alice.label, during)
    assert found[0].headers[FLOW_SUBJECT]
    assert len(found) <= 1 + 3
    assert hub.metric("veen_followers") == 0


def test_a_silent_follower_is_forgotten(
    start_hub: StartHub, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "MAX_SILENT_SEC", 0.2)
    hub = with_nats(start_hub, nats)
    alice = hub.writer()
    hub.accept(alice.next())
    raw_follow(hub, alice.label, lambda: until(lambda: not hub.hub.feed.followers, "it is forgotten"))


def test_a_stopping_hub_answers_and_ends_its_live_streams(start_hub: StartHub, nats: NatsServer) -> None:
    hub = with_nats(start_hub, nats)
    alice = hub.writer()
    hub.accept(alice.next())
    found = raw_follow(hub, alice.label, hub.stop)
    assert "VEEN-End" in found[-1].headers


# --- configuration


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"nats.servers": []}, "nats.servers: missing"),
        ({"nats.servers": ["http://x"]}, "must be nats://"),
        ({"nats.servers": ["nats://u:secret@x"]}, "nats.user"),
        ({"nats.servers": ["nats://x"], "nats.prefix": "a.*"}, "nats.prefix"),
        ({"nats.servers": ["nats://x"], "nats.ca": "ca.pem"}, "nats.ca"),
        ({"nats.servers": ["nats://x"], "nats.user": "u"}, "nats.secret_file"),
        (
            {"nats.servers": ["nats://x"], "tls.cert": "c", "tls.key": "k", "tls.client_ca": "a"},
            "nats.without_certificates",
        ),
    ],
    ids=["no server", "scheme", "password", "prefix", "ca", "user", "certificates"],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")) as raised:
        configuration.load(None, settings)
    assert "u:secret" not in str(raised.value)


def test_a_hub_that_admits_by_address_refuses_what_has_none(start_hub: StartHub, nats: NatsServer) -> None:
    hub = with_nats(start_hub, nats, network__deny=["10.0.0.0/8"])
    alice = hub.writer()
    refused = ask(url_of(hub), "POST", "/v1/submit", envelope(alice.next()), {"Content-Type": CBOR})
    assert refused.detail == "PREFILTER_REJECT"
    assert hub.submit(alice.message(1)).status == 200
