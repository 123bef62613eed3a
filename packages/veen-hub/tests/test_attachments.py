"""Attachments: content-addressed, streamed both ways, signed by their writer, within quotas (H17)."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from veen_core import rejection
from veen_core.cap import resign
from veen_core.hashing import H
from veen_core.ids import Coid
from veen_core.limits import Limits
from veen_core.status import AttachmentResponse

from .conftest import StartHub
from .people import ADMIN, Writer, signing_key
from .serving import PATIENCE, Answer, RunningHub, until
from .test_admission import is_refused_by

CONTENT = bytes(range(256)) * 4_096
"""A megabyte: several parts."""


def put(hub: RunningHub, writer: Writer, content: bytes, **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return hub.call(
        "PUT", f"/v1/attachment/{H(content).hex()}", content, writer.attachment_headers(content, **names)
    )


def kept(hub: RunningHub) -> list[Path]:
    return [path for path in (hub.root / "attachments").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "content", [b"", b"\x00", b"x", CONTENT], ids=["none", "one zero", "one byte", "many"]
)
def test_an_attachment_is_returned_as_it_was_put(hub: RunningHub, alice: Writer, content: bytes) -> None:
    assert put(hub, alice, content).read(AttachmentResponse).stored
    answer = hub.get(f"/v1/attachment/{H(content).hex()}")
    assert (answer.status, answer.body) == (200, content)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-length"] == str(len(content))


def test_putting_an_attachment_again_changes_nothing(hub: RunningHub, alice: Writer) -> None:
    assert put(hub, alice, CONTENT).read(AttachmentResponse).stored
    assert not put(hub, alice, CONTENT).read(AttachmentResponse).stored
    assert len(kept(hub)) == 1
    assert hub.metric("veen_attachments_total") == 1
    assert hub.metric("veen_attachment_bytes_total") == len(CONTENT)


def test_a_chunked_put_needs_no_length(hub: RunningHub, alice: Writer) -> None:
    def parts() -> Iterator[bytes]:
        for at in range(0, len(CONTENT), 50_000):
            yield CONTENT[at : at + 50_000]

    path = f"/v1/attachment/{H(CONTENT).hex()}"
    answer = hub.call("PUT", path, parts(), alice.attachment_headers(CONTENT))
    assert answer.read(AttachmentResponse).stored
    assert hub.get(path).body == CONTENT


def test_content_whose_hash_is_not_its_coid_is_refused(hub: RunningHub, alice: Writer) -> None:
    path = f"/v1/attachment/{H(CONTENT).hex()}"
    answer = hub.call("PUT", path, CONTENT[:-1], alice.attachment_headers(CONTENT))
    assert (answer.status, answer.error.code) == (400, "E.BAD_REQUEST")
    assert kept(hub) == []
    assert hub.get(path).error.code == "E.NOT_FOUND"


def test_an_attachment_too_large_is_refused_however_it_is_sent(start_hub: StartHub) -> None:
    hub = start_hub(limits=Limits(max_attachment_bytes=1_000))
    alice = hub.writer()
    large = bytes(1_001)
    is_refused_by(rejection.SIZE_PREFILTER, put(hub, alice, large))
    path = f"/v1/attachment/{H(large).hex()}"
    chunked = hub.call("PUT", path, iter([large[:600], large[600:]]), alice.attachment_headers(large))
    assert (chunked.status, chunked.error.code) == (413, "E.LIMIT")
    assert kept(hub) == []
    assert put(hub, alice, bytes(1_000)).status == 200


def test_a_put_passes_the_auth_stage_of_a_message(hub: RunningHub, alice: Writer) -> None:
    bob = signing_key("bob")
    is_refused_by(rejection.SIG_INVALID, put(hub, alice, b"x", VEEN_Sig="00" * 64))
    stranger = Writer("stranger", hub.hub_id)
    is_refused_by(rejection.CAP_MISSING, put(hub, stranger, b"x"))
    stranger.auth_ref = alice.auth_ref
    is_refused_by(rejection.AUTH_REF, put(hub, stranger, b"x"))
    elsewhere = Writer("alice", hub.hub_id, to="elsewhere", auth_ref=alice.auth_ref)
    is_refused_by(rejection.CAP_SCOPE, put(hub, elsewhere, b"x"))
    is_refused_by(rejection.SIG_INVALID, put(hub, alice, b"x", VEEN_Client=bob.public.hex()))
    assert kept(hub) == []


def test_a_put_without_its_headers_is_unauthorized(hub: RunningHub, alice: Writer) -> None:
    path, headers = f"/v1/attachment/{H(b'x').hex()}", alice.attachment_headers(b"x")
    for name in ("VEEN-Label", "VEEN-Client", "VEEN-Sig"):
        fewer = {key: value for key, value in headers.items() if key != name}
        answer = hub.call("PUT", path, b"x", fewer)
        assert (answer.status, answer.error.code) == (401, "E.UNAUTHORIZED")
        broken = hub.call("PUT", path, b"x", headers | {name: "zz"})
        assert (broken.status, broken.error.code) == (400, "E.BAD_REQUEST")


def test_a_denied_address_cannot_put(start_hub: StartHub) -> None:
    hub = start_hub(network__deny=["127.0.0.0/8"])
    is_refused_by(rejection.PREFILTER_REJECT, put(hub, hub.writer(), b"x"))


def test_an_attachment_that_was_never_put_is_not_found(hub: RunningHub) -> None:
    assert hub.get("/v1/attachment/" + "ab" * 32).error.code == "E.NOT_FOUND"
    for coid in ("ab", "AB" * 32, "zz" * 32, "ab" * 33):
        assert hub.get(f"/v1/attachment/{coid}").error.code == "E.BAD_REQUEST"


def test_a_lost_attachment_is_not_found_and_the_error_says_why(hub: RunningHub, alice: Writer) -> None:
    """Nothing to try again for: it does not come back by itself."""
    put(hub, alice, CONTENT)
    (path,) = kept(hub)
    path.unlink()
    answer = hub.get(f"/v1/attachment/{H(CONTENT).hex()}")
    assert (answer.status, answer.error.code) == (404, "E.NOT_FOUND")
    assert "lost on this hub: upload it again" in answer.error.message
    assert "retry-after" not in answer.headers
    assert put(hub, alice, CONTENT).read(AttachmentResponse).stored
    assert hub.get(f"/v1/attachment/{H(CONTENT).hex()}").body == CONTENT


def raw_put(hub: RunningHub, writer: Writer, content: bytes, sent: int) -> socket.socket:
    """A put of which only so many bytes were sent."""
    headers = writer.attachment_headers(content) | {"Content-Length": str(len(content)), "Host": "hub"}
    head = f"PUT /v1/attachment/{H(content).hex()} HTTP/1.1\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    connection = socket.create_connection(("127.0.0.1", hub.port), timeout=PATIENCE)
    connection.sendall(head.encode() + content[:sent])
    return connection


def test_an_interrupted_put_stores_nothing(hub: RunningHub, alice: Writer) -> None:
    connection = raw_put(hub, alice, CONTENT, 700_000)
    until(lambda: kept(hub), "the hub begins to write")
    connection.close()
    until(lambda: not kept(hub), "nothing of it is left")
    assert put(hub, alice, CONTENT).read(AttachmentResponse).stored


def test_a_put_that_stalls_is_refused(start_hub: StartHub) -> None:
    hub = start_hub(listen__request_timeout_sec=1)
    alice = hub.writer()
    connection = raw_put(hub, alice, CONTENT, 700_000)
    response = http.client.HTTPResponse(connection)
    response.begin()
    assert response.status == 400
    response.close()
    connection.close()
    until(lambda: not kept(hub), "nothing of it is left")


def test_an_upload_in_progress_is_refused_when_the_hub_stops(
    hub: RunningHub, alice: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the disk is slow: what is sent meanwhile is thrown away, and not taken for a head."""
    begun, disk = threading.Event(), threading.Event()

    def slowly(_coid: Coid, parts: Iterator[bytes]) -> bool:
        next(parts)
        begun.set()
        disk.wait(PATIENCE)
        return any(parts)

    monkeypatch.setattr(hub.store.attachments, "put", slowly)
    with raw_put(hub, alice, CONTENT, 1_000) as connection, ThreadPoolExecutor(1) as pool:
        assert begun.wait(PATIENCE)
        server: Any = hub.server._api_runner.server
        (served,) = server.connections
        stopping = pool.submit(hub.stop)
        until(lambda: served._close, "the hub wants no more of it")
        for at in range(1_000, 200_000, 10_000):
            connection.sendall(CONTENT[at : at + 10_000])
            time.sleep(0.005)
        disk.set()
        assert connection.recv(64).startswith(b"HTTP/1.1 503")
        stopping.result(PATIENCE)


def test_damage_on_disk_aborts_the_answer(hub: RunningHub, alice: Writer) -> None:
    """Too late for another status: the client sees that its bytes are not what the coid names."""
    put(hub, alice, CONTENT)
    (path,) = kept(hub)
    path.write_bytes(CONTENT[:-1] + b"\x00")
    answer: bytes | None = None
    with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
        answer = hub.get(f"/v1/attachment/{H(CONTENT).hex()}").body
    assert answer is None or H(answer) != H(CONTENT)
    assert hub.get("/healthz").status == 200


# --- quotas


def test_a_token_may_store_only_so_many_bytes_and_make_only_so_many_puts(start_hub: StartHub) -> None:
    hub = start_hub(attachments__max_bytes_per_token=25, attachments__max_puts_per_token=3)
    alice, bob = hub.writer("alice"), hub.writer("bob")
    assert put(hub, alice, b"a" * 10).status == 200
    assert put(hub, alice, b"b" * 10).status == 200
    refused = put(hub, alice, b"c" * 10)
    assert (refused.status, refused.error.code) == (413, "E.LIMIT")
    assert "attachments.max_bytes_per_token" in refused.error.message
    assert put(hub, bob, b"c" * 10).status == 200, "another token has its own quota"
    assert put(hub, alice, b"a" * 3).status == 200
    assert "max_puts_per_token" in put(hub, alice, b"x").error.message
    assert hub.metric("veen_attachment_puts_total") == 4
    assert hub.metric("veen_attachment_quota_refused_total") == 2


def test_quota_usage_survives_a_restart_and_a_shortened_chain(start_hub: StartHub) -> None:
    settings = {"attachments__max_bytes_per_token": 25}
    hub = start_hub(**settings)
    alice = Writer("alice", hub.hub_id)
    short = alice.token()
    alice.auth_ref = hub.authorize(resign(ADMIN, short)).auth_ref
    assert put(hub, alice, b"a" * 20).status == 200
    hub.stop()
    hub = start_hub(**settings)
    alice.auth_ref = hub.authorize(short).auth_ref
    assert put(hub, alice, b"b" * 20).error.code == "E.LIMIT"


def test_a_hub_stores_only_so_many_bytes(start_hub: StartHub) -> None:
    hub = start_hub(attachments__max_bytes=25)
    assert put(hub, hub.writer("alice"), b"a" * 20).status == 200
    refused = put(hub, hub.writer("bob"), b"b" * 20)
    assert "attachments.max_bytes" in refused.error.message
    assert put(hub, hub.writer("carol"), b"a" * 5).status == 200


def test_a_hub_stores_only_so_many_attachments_however_small(start_hub: StartHub) -> None:
    hub = start_hub(attachments__max_count=2)
    for name in ("alice", "bob"):
        assert put(hub, hub.writer(name), name.encode()).status == 200
    hub.stop()
    hub = start_hub(attachments__max_count=2)
    refused = put(hub, hub.writer("carol"), b"")
    assert (refused.status, refused.error.code) == (413, "E.LIMIT")
    assert "attachments.max_count" in refused.error.message


def test_an_upload_that_fails_gives_its_room_back(start_hub: StartHub) -> None:
    hub = start_hub(attachments__max_bytes_per_token=25)
    alice = hub.writer()
    path = f"/v1/attachment/{H(b'other').hex()}"
    wrong = hub.call("PUT", path, b"a" * 20, alice.attachment_headers(b"other"))
    assert wrong.status == 400
    assert put(hub, alice, b"a" * 20).status == 200
