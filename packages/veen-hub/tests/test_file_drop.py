"""Drop folders (DR0): files in order, once each, whatever the link and the machine do."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from veen_core.api import ReceiptRequest, SubmitResponse
from veen_core.errors import ConfigError, StateError
from veen_core.hashing import H
from veen_core.ids import HubId, StreamSeq
from veen_hub.client import BadRequest, Refused, Retry, Timeouts, Unreachable, connect
from veen_hub.client.wire.file_transport import FileTransport, Spool
from veen_hub.file_drop import answered
from veen_hub.file_drop.answered import AnsweredRequests
from veen_hub.file_drop.envelopes import DropName, DroppedReply, DroppedRequest, digest_of
from veen_hub.file_drop.files import write_file
from veen_hub.ops import config as configuration

from .client_fixtures import person, run
from .conftest import StartHub
from .over_files import ask, with_files
from .people import envelope
from .serving import CBOR, CBOR_SEQ, PATIENCE, RunningHub, until

READER = person("alice").dh_keys[0].public
ONCE = Retry(max_attempts=1)
HASTY = Retry(deadline=0.1)


def submit(wire: bytes) -> DroppedRequest:
    return DroppedRequest("POST", "/v1/submit", (("Content-Type", CBOR),), envelope(wire))


def drop(spool: Path, number: int, request: DroppedRequest, sender: str = "ab" * 8) -> DropName:
    """Drop a request as any program may."""
    content = request.encode()
    name = DropName(sender, number, digest_of(content))
    write_file(spool / "out", name.file_name(".request"), content)
    return name


def reply_to(spool: Path, name: DropName) -> DroppedReply:
    file = spool / "in" / name.file_name(".reply")
    until(file.exists, "the reply is there")
    return DroppedReply.decode(file.read_bytes())


def receipt_in(reply: DroppedReply) -> Any:
    assert reply.status == 200, reply
    return SubmitResponse.decode(reply.body).receipt


def said(hub: RunningHub) -> set[str]:
    """What the hub has complained about."""
    assert hub.server.files is not None
    return hub.server.files._logged


@pytest.fixture
def spool(place: Path) -> Path:
    return place / "spool"


def test_the_client_sends_and_reads_over_files(start_hub: StartHub, place: Path, spool: Path) -> None:
    hub = with_files(start_hub, place, gating=False)

    async def work() -> None:
        async with connect(f"file://{spool}", person("alice"), trust=hub.hub_id, state=place / "s") as alice:
            stream = alice.stream("orders", to=READER)
            assert (await stream.send("one")).stream_seq == 1
            assert len([one async for one in stream.send_many(["two", "three"])]) == 2
            assert [message.text async for message in stream.read()] == ["one", "two", "three"]
            with pytest.raises(Refused, match="HTTP"):
                await stream.send("x", attachments=[b"file"])
            with pytest.raises(BadRequest, match="http"):
                await anext(stream.follow())

    run(work())
    assert not list((spool / "out").iterdir())


def test_requests_are_answered_in_the_order_of_their_numbers(
    start_hub: StartHub, place: Path, spool: Path
) -> None:
    hub = with_files(start_hub, place)
    alice = hub.writer()
    requests = [submit(alice.next()) for _ in range(4)]
    late = [drop(spool, number, requests[number - 1]) for number in (4, 2, 3)]
    other = drop(spool, 1, submit(hub.writer("bob", to="invoices").next()), "cd" * 8)
    assert receipt_in(reply_to(spool, other)).stream_seq == 1, "a gap holds up its own sender only"
    assert hub.store.read.head(alice.label) is None
    first = drop(spool, 1, requests[0])
    found = [receipt_in(reply_to(spool, name)).stream_seq for name in (first, late[1], late[2], late[0])]
    assert found == [1, 2, 3, 4]


def test_a_receipt_survives_a_crash_between_commit_and_reply(
    start_hub: StartHub, place: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = with_files(start_hub, place)
    alice = hub.writer()
    hub.accept(alice.next())
    crashed: list[DropName] = []

    def crash(_sender: AnsweredRequests, name: DropName, _reply: bytes) -> None:
        crashed.append(name)
        raise OSError("the machine stops here")

    with monkeypatch.context() as patch:
        patch.setattr(AnsweredRequests, "end", crash)
        name = drop(spool, 1, submit(alice.next()))
        until(lambda: crashed, "it is committed")
        hub.stop()
    hub = with_files(start_hub, place)
    receipt = receipt_in(reply_to(spool, name))
    assert receipt == hub.store.read.receipt(alice.label, StreamSeq(2))
    assert hub.store.read.head(alice.label).stream_seq == 2  # type: ignore[union-attr]
    until(lambda: not (spool / "out" / name.file_name(".request")).exists(), "the request is removed")


def test_a_message_that_was_sent_over_another_transport_is_a_duplicate(
    start_hub: StartHub, place: Path, spool: Path
) -> None:
    hub = with_files(start_hub, place)
    alice = hub.writer()
    wire = alice.next()
    hub.accept(wire)
    reply = reply_to(spool, drop(spool, 1, submit(wire)))
    assert (reply.status, b"DUPLICATE" in reply.body) == (409, True)


def test_a_repeated_request_gets_the_reply_that_the_link_has_lost(
    start_hub: StartHub, place: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answered, "MAX_KEPT_REPLIES", 2)
    hub = with_files(start_hub, place)
    alice = hub.writer()
    requests = [submit(alice.next()) for _ in range(3)]
    replies = []
    for number, request in enumerate(requests, 1):
        name = drop(spool, number, request)
        replies.append(reply_to(spool, name))
        until(lambda name=name: not (spool / "out" / name.file_name(".request")).exists(), "it is done")
        (spool / "in" / name.file_name(".reply")).unlink()
    assert reply_to(spool, drop(spool, 3, requests[2])) == replies[2]
    assert reply_to(spool, drop(spool, 1, requests[0])).status == 409, "its reply is not kept any more"
    assert reply_to(spool, drop(spool, 2, submit(alice.next()))).status == 409, "another request had 2"


def test_damaged_and_foreign_files_are_neither_read_nor_skipped(
    start_hub: StartHub, place: Path, spool: Path
) -> None:
    hub = with_files(start_hub, place, file__max_senders=1)
    alice = hub.writer()
    request = submit(alice.next())
    content = request.encode()
    name = DropName("ab" * 8, 1, digest_of(content))
    file = spool / "out" / name.file_name(".request")
    (spool / "out" / "notes.txt").write_text("not for the hub")
    write_file(spool / "out", name.file_name(".request"), content[:-1] + b"x")
    second = drop(spool, 2, submit(alice.next()))
    until(lambda: said(hub), "it has complained")
    assert hub.store.read.head(alice.label) is None
    file.unlink()
    (place / "elsewhere").write_bytes(content)
    file.symlink_to(place / "elsewhere")
    drop(spool, 1, submit(hub.writer("bob", to="b").next()), "cd" * 8)
    until(lambda: name.file_name(".request") in said(hub), "it has complained of the link")
    assert hub.store.read.head(alice.label) is None
    drop(spool, 1, request)
    assert receipt_in(reply_to(spool, second)).stream_seq == 2
    assert (spool / "out" / "notes.txt").exists()
    assert len(list((spool / "out").glob("cdcd*"))) == 1, "a second sender waits"


def test_no_file_keeps_other_senders_waiting(
    start_hub: StartHub, place: Path, spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder in place of a request, a pipe where the reply is written, an outbox that is away."""
    hub = with_files(start_hub, place)
    alice = hub.writer()
    (spool / "out" / DropName("00" * 8, 0, "00" * 16).file_name(".request")).mkdir()
    write_file(spool / "out", DropName("aa" * 8, 1, "00" * 16).file_name(".request"), b"damaged")
    drop(spool, 2, submit(hub.writer("bob", to="b").next()), "aa" * 8)
    for number in (1, 2):
        request = submit(alice.next())
        name = DropName("ab" * 8, number, digest_of(request.encode()))
        os.mkfifo(spool / "in" / name.file_name(".reply.part"))
        if number == 2:
            (spool / "in").rename(spool / "away")
        drop(spool, number, request)
        if number == 2:
            until(lambda name=name: name.file_name(".request") in said(hub), "it has complained")
            (spool / "away").rename(spool / "in")
        assert receipt_in(reply_to(spool, name)).stream_seq == number
        reply = spool / "in" / name.file_name(".reply")
        assert reply.stat().st_mode & 0o777 == 0o640, "its group may carry it"
    until(lambda name=name: name.file_name(".request") not in said(hub), "the trouble is over")
    assert caplog.messages.count("file_damaged") == 2, "each is logged once"
    assert "file_gap" not in caplog.messages, "behind a damaged file is no gap"


def test_a_busy_hub_leaves_the_request_for_later(start_hub: StartHub, place: Path, spool: Path) -> None:
    hub = with_files(start_hub, place, max_waiting=1)
    alice = hub.writer()
    hub.do(lambda: setattr(hub.hub.waiting_room, "waiting", 1))
    name = drop(spool, 1, submit(alice.next()))
    begun = hub.store.layout.view("file") / name.sender / "begun"
    until(begun.exists, "it has been tried")
    assert not (spool / "in" / name.file_name(".reply")).exists()
    hub.do(lambda: setattr(hub.hub.waiting_room, "waiting", 0))
    assert receipt_in(reply_to(spool, name)).stream_seq == 1


def test_the_status_is_written_again_after_it_could_not_be_made(
    start_hub: StartHub, place: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as while a clock extension fails."""
    hub = with_files(start_hub, place, file__status_sec=1)
    failed = threading.Event()

    def fails() -> None:
        failed.set()
        raise RuntimeError("the time server is gone")

    with monkeypatch.context() as patched:
        patched.setattr(hub.hub, "status", fails)
        assert failed.wait(PATIENCE)
        (spool / "in" / "status.reply").unlink()
    until((spool / "in" / "status.reply").exists, "the status is there again")


def test_what_a_file_cannot_carry_is_refused(start_hub: StartHub, place: Path, spool: Path) -> None:
    hub = with_files(start_hub, place)
    alice = hub.writer()
    sequence = DroppedRequest("POST", "/v1/submit", (("Content-Type", CBOR_SEQ),), envelope(alice.next()))
    attachment = DroppedRequest("PUT", f"/v1/attachment/{H(b'').hex()}", (), b"")
    live = DroppedRequest("GET", f"/v1/stream/{alice.label.hex()}", (), b"")
    long = DroppedRequest("GET", "/v1/status", (("a", "b"),) * 10_000, b"")
    nowhere = DroppedRequest("GET", "//[", (), b"")
    for number, request in enumerate((sequence, attachment, live, long, nowhere), 1):
        assert reply_to(spool, drop(spool, number, request)).status == (404 if request is nowhere else 400)
    content = b"\xff"
    name = DropName("ab" * 8, 6, digest_of(content))
    write_file(spool / "out", name.file_name(".request"), content)
    assert reply_to(spool, name).status == 400
    asked = ReceiptRequest(label=alice.label, stream_seq=StreamSeq(1))
    assert ask(spool, "POST", "/v1/receipt", asked.encode(), {"Content-Type": CBOR}).status == 404


# --- the client's folder


def test_a_reply_that_comes_late_settles_the_pending_message(start_hub: StartHub, place: Path) -> None:
    """The link carries files only when the test says so."""
    client, far = place / "client", place / "far"
    for folder in ("in", "out"):
        (far / folder).mkdir(parents=True)
    hub = start_hub(file__inbox=far / "out", file__outbox=far / "in", file__poll_ms=5, gating=False)
    Spool(client)

    def carry(way: str) -> None:
        source, target = (client, far) if way == "out" else (far, client)
        for file in sorted((source / way).iterdir()):
            if not file.name.endswith(".part"):
                file.rename(target / way / file.name)

    until((far / "in" / "status.reply").exists, "the hub has written its status")
    carry("in")

    async def send(text: str, seconds: float) -> Any:
        about: dict[str, Any] = {"trust": hub.hub_id, "state": place / "s", "retry": ONCE}
        timeouts = Timeouts(request=seconds)
        async with connect(f"file://{client}", person("alice"), timeouts=timeouts, **about) as alice:
            sending = asyncio.create_task(alice.stream("orders", to=READER).send(text))
            while not sending.done():
                if seconds > 1:
                    carry("out")
                    carry("in")
                await asyncio.sleep(0.02)
            return await sending

    for _turn in range(2):
        with pytest.raises(Unreachable, match="stays in the folder"):
            run(send("hello", 0.1))
    receipt = run(send("again", 30))
    head = hub.store.read.head(receipt.label)
    assert head is not None
    assert (receipt.stream_seq, head.stream_seq) == (2, 2), "each message once"


@pytest.mark.parametrize(("scheme", "action"), [("file", "stays in the folder"), ("h3", "UDP reaches it")])
def test_silence_is_said_with_what_to_do_over_this_transport(place: Path, scheme: str, action: str) -> None:
    url = f"file://{place}/client" if scheme == "file" else "h3://127.0.0.1:9"

    async def work() -> None:
        async with connect(url, person("alice"), trust=HubId(bytes(32)), retry=HASTY) as alice:
            await alice.stream("orders", to=READER).send("hello")

    with pytest.raises(Unreachable, match=action):
        run(work())


def test_numbers_have_no_gap_after_a_crash_while_dropping(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(place / "spool")
    one = spool.drop(DroppedRequest("POST", "/a", (), b"1"))
    steps: list[str] = []

    def crash(folder: Path, name: str, content: bytes) -> None:
        write_file(folder, name, content)
        steps.append(name)
        raise OSError("the machine stops here")

    with monkeypatch.context() as patch:
        patch.setattr("veen_hub.client.wire.file_transport.write_file", crash)
        with pytest.raises(OSError, match="stops"):
            spool.drop(DroppedRequest("POST", "/a", (), b"2"))
    assert len(steps) == 1
    again = Spool(place / "spool")
    three = again.drop(DroppedRequest("POST", "/a", (), b"3"))
    names = sorted(os.listdir(place / "spool" / "out"))
    assert [DropName.parse(name, ".request").number for name in names] == [1, 2, 3]  # type: ignore[union-attr]
    assert (one.sender, one.number, three.number) == (three.sender, 1, 3)
    assert again.drop(DroppedRequest("POST", "/a", (), b"3")) == three, "the same request has the same name"


def test_a_damaged_copy_is_reported(place: Path) -> None:
    spool = Spool(place / "spool")
    name = spool.drop(DroppedRequest("POST", "/a", (), b"1"))
    (place / "spool" / "kept" / name.file_name(".request")).write_bytes(b"x")
    with pytest.raises(StateError, match="damaged"):
        Spool(place / "spool")


@pytest.mark.parametrize("url", ["file://host/x", "file:x"], ids=["host", "relative"])
def test_addresses_that_are_no_folder_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="file:///folder"):
        FileTransport(url, tls=None, timeouts=Timeouts())


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    certificates = {"tls.cert": "c", "tls.key": "k", "tls.client_ca": "a"}
    (tmp_path / "in").mkdir()
    for settings, words in (
        ({"file.inbox": tmp_path}, "file.outbox: missing"),
        ({"file.inbox": tmp_path / "absent", "file.outbox": tmp_path}, "does not exist"),
        ({"file.inbox": tmp_path, "file.outbox": tmp_path}, "is the inbox"),
        ({"file.inbox": tmp_path, "file.outbox": tmp_path / "in", **certificates}, "without_certificates"),
    ):
        with pytest.raises(ConfigError, match=words):
            configuration.load(None, {key: str(value) for key, value in settings.items()})
