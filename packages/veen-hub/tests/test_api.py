"""The API: envelopes in CBOR and JSON, versions, errors, status and health (§10, §12)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from veen_core import hub_identity, stream
from veen_core import pow as proof_of_work
from veen_core.api import (
    CheckpointRequest,
    CheckpointResponse,
    ConsistencyRequest,
    ConsistencyResponse,
    ErrorEnvelope,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamRequest,
    StreamResponse,
    SubmitRequest,
    SubmitResponse,
)
from veen_core.hashing import H
from veen_core.ids import StreamSeq
from veen_core.msg import Msg
from veen_core.profile import PROFILES
from veen_core.rejection import HTTP_STATUS, Code
from veen_core.status import CapStatus, Status
from veen_core.wire import Wire
from veen_hub.version import VERSION

from .conftest import StartHub
from .following import Follower
from .people import Writer
from .serving import CBOR, JSON, RunningHub
from .test_robustness import talk

ONE = StreamSeq(1)
TWO = StreamSeq(2)


@pytest.fixture
def filled(hub: RunningHub, alice: Writer) -> Writer:
    """Three entries and a checkpoint of them."""
    for _ in range(3):
        hub.accept(alice.next())
    assert hub.admin("/tooling/checkpoint").status == 200
    return alice


def questions(alice: Writer) -> dict[str, tuple[Wire, type[Wire]]]:
    label = alice.label
    return {
        "/v1/submit": (SubmitRequest(msg=Msg.decode(alice.message(4))), SubmitResponse),
        "/v1/stream": (StreamRequest(label=label, from_seq=ONE, with_receipts=True), StreamResponse),
        "/v1/receipt": (ReceiptRequest(label=label, stream_seq=TWO), ReceiptResponse),
        "/v1/proof": (ProofRequest(label=label, stream_seq=TWO), ProofResponse),
        "/v1/consistency": (ConsistencyRequest(label=label, from_seq=ONE, to_seq=TWO), ConsistencyResponse),
        "/v1/checkpoint": (CheckpointRequest(label=label, upto_seq=StreamSeq(3)), CheckpointResponse),
    }


PATHS = ["/v1/submit", "/v1/stream", "/v1/receipt", "/v1/proof", "/v1/consistency", "/v1/checkpoint"]


@pytest.mark.parametrize("path", PATHS)
def test_cbor_and_json_are_two_forms_of_one_answer(hub: RunningHub, filled: Writer, path: str) -> None:
    question, kind = questions(filled)[path]
    text = question.to_json().encode()
    if path == "/v1/submit":
        in_json = hub.post(path, text, JSON)
        assert in_json.headers["content-type"].startswith(JSON)
        assert in_json.read(kind) == SubmitResponse(
            receipt=hub.ask(
                "/v1/receipt", ReceiptRequest(label=filled.label, stream_seq=StreamSeq(4)), ReceiptResponse
            ).receipt,
            server_version=VERSION,
        )
        return
    in_cbor = hub.post(path, question)
    assert in_cbor.headers["content-type"] == CBOR
    for answer in (
        hub.post(path, text, JSON),
        hub.post(path, text, JSON, Accept="*/*"),
        hub.post(path, question, Accept=JSON),
    ):
        assert answer.headers["content-type"].startswith(JSON)
        assert answer.read(kind) == in_cbor.read(kind)
    assert hub.post(path, text, JSON, Accept=CBOR).body == in_cbor.body
    assert hub.post(path, question, Accept=f"{JSON}, {CBOR}").body == in_cbor.body


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_is_canonical_and_names_the_servers_version(
    hub: RunningHub, filled: Writer, path: str
) -> None:
    question, kind = questions(filled)[path]
    answer = hub.post(path, question)
    assert answer.read(kind).encode() == answer.body
    assert answer.read(kind).server_version == VERSION  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", PATHS[1:])
def test_an_unknown_key_is_a_bad_request(hub: RunningHub, filled: Writer, path: str) -> None:
    question, _kind = questions(filled)[path]
    body = question.encode()
    longer = bytes([body[0] + 1]) + body[1:] + b"\x18\x63\x01"
    text = question.to_json()[:-1] + ',"more":1}'
    for answer in (hub.post(path, longer), hub.post(path, text.encode(), JSON)):
        assert (answer.status, answer.error.code) == (400, "E.BAD_REQUEST")


@pytest.mark.parametrize("path", PATHS[1:])
@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"\xa0", b"\x80", bytes(100)],
    ids=["none", "not CBOR", "empty map", "array", "zeros"],
)
def test_a_body_that_is_not_an_envelope_is_a_bad_request(hub: RunningHub, path: str, body: bytes) -> None:
    assert hub.post(path, body).error.code == "E.BAD_REQUEST"
    assert hub.post(path, body, JSON).error.code == "E.BAD_REQUEST"


@pytest.mark.parametrize("path", PATHS)
def test_another_content_type_is_a_bad_request(hub: RunningHub, filled: Writer, path: str) -> None:
    question, _kind = questions(filled)[path]
    for kind in ("text/plain", "application/octet-stream", "application/x-www-form-urlencoded"):
        assert hub.post(path, question, kind).error.code == "E.BAD_REQUEST"


@pytest.mark.parametrize("path", PATHS[1:])
def test_a_request_that_is_too_large_is_refused_by_limit(hub: RunningHub, path: str) -> None:
    answer = hub.post(path, bytes(70_000))
    assert (answer.status, answer.error.code) == (413, "E.LIMIT")


@pytest.mark.parametrize("path", ["/v2/submit", "/v0/status", "/v99/stream/ab", "/v2"])
def test_an_unknown_version_of_the_api_is_named_so(hub: RunningHub, path: str) -> None:
    for method in ("GET", "POST"):
        answer = hub.call(method, path)
        assert (answer.status, answer.error.code) == (400, "E.VERSION")


def test_an_unknown_path_is_not_found_and_a_wrong_method_is_a_bad_request(hub: RunningHub) -> None:
    for path in ("/", "/v1", "/v1/nothing", "/tooling", "/version1/submit", "/vx/submit", "//"):
        assert (hub.get(path).status, hub.get(path).error.code) == (404, "E.NOT_FOUND"), path
    for method, path in (("GET", "/v1/submit"), ("DELETE", "/v1/status"), ("POST", "/healthz")):
        answer = hub.call(method, path)
        assert (answer.status, answer.error.code) == (400, "E.BAD_REQUEST")


def test_every_error_has_a_request_id_of_its_own_in_the_form_that_was_asked_for(
    hub: RunningHub, alice: Writer
) -> None:
    refused = [
        hub.get("/nowhere"),
        hub.get("/v2/status"),
        hub.get("/nowhere", Accept=JSON),
        hub.post("/v1/submit", b""),
        hub.submit(alice.message(9)),
        hub.post("/v1/receipt", ReceiptRequest(label=alice.label, stream_seq=ONE)),
        hub.call("POST", "/tooling/checkpoint"),
        hub.get("/v1/attachment/" + "00" * 32),
        hub.call("POST", "/v1/submit", b"", {"Content-Encoding": "gzip"}),
    ]
    ids = [answer.error.request_id for answer in refused]
    assert None not in ids
    assert len(set(ids)) == len(ids)
    assert [answer.headers["veen-request-id"] for answer in refused] == ids
    assert refused[2].headers["content-type"].startswith(JSON)
    for answer in refused:
        assert answer.status == HTTP_STATUS[Code(answer.error.code)]


def test_an_error_in_json_is_semantically_the_one_in_cbor(hub: RunningHub, alice: Writer) -> None:
    wire = alice.message(9)
    in_cbor = hub.submit(wire).error
    in_json = json.loads(hub.submit(wire, Accept=JSON).body)
    assert in_json["code"] == in_cbor.code == "E.SEQ"
    assert in_json["detail"] == {"stage": "commit", "detail_enum": "CLIENT_SEQ"}
    assert ErrorEnvelope.from_json(json.dumps(in_json)).message == in_cbor.message


# --- what the hub says of itself


def test_the_status_has_all_that_a_client_needs_to_start(hub: RunningHub) -> None:
    status = hub.status()
    hub_identity.verify_identity(status.identity, pinned=hub.hub_id)
    hub_identity.verify_identity_signature(status.identity, status.identity_sig)
    assert status.profile == hub.profile
    assert status.limits == hub.hub.limits
    assert (status.hub_ts, status.epoch) == (hub.clock.time, 0)
    assert status.control_label == stream.control_label(stream.routing_key(hub.hub_id))
    assert status.pow_salt == proof_of_work.pow_salt(hub.hub_id, status.hub_ts)
    assert (status.pow_difficulty, status.max_page_items) == (0, 1_000)
    assert (status.level, status.server_version) == ("core", VERSION)


def test_a_gated_hub_says_what_it_enforces_and_what_it_cannot(hub: RunningHub) -> None:
    status = hub.status()
    assert status.gating
    assert {"cap tokens", "stream scope", "ttl", "rate"} <= set(status.enforces)
    assert any(what.startswith("att_root") for what in status.cannot_enforce)
    assert not any("stream scope" in what for what in status.cannot_enforce)


def test_an_open_hub_says_that_it_is_open(start_hub: StartHub) -> None:
    """H4, H20: gating off, and that labels of unknown streams are opaque."""
    status = start_hub(gating=False).status()
    assert not status.gating
    assert "cap tokens" not in status.enforces
    assert any("gating is off" in what and "opaque" in what for what in status.cannot_enforce)


def test_the_status_has_the_epoch_of_hub_ts(start_hub: StartHub) -> None:
    hub = start_hub(profile=PROFILES["rotating"])
    assert hub.status().epoch == hub.clock.time // 60
    hub.clock.time += 60
    assert hub.status().epoch == hub.clock.time // 60


def test_status_and_cap_status_speak_json_too(hub: RunningHub, alice: Writer) -> None:
    assert hub.get("/v1/status", Accept=JSON).read(Status) == hub.status()
    assert alice.auth_ref is not None
    path = f"/tooling/cap/{alice.auth_ref.hex()}"
    assert hub.get(path, Accept=JSON).read(CapStatus) == hub.get(path).read(CapStatus)


def test_healthz_names_the_newest_entry(hub: RunningHub, alice: Writer) -> None:
    before: dict[str, Any] = hub.get("/healthz").json
    assert before["ok"] is True
    assert before["profile_id"] == hub.profile.profile_id.hex()
    receipts = [hub.accept(alice.next()) for _ in range(3)]
    after = hub.get("/healthz").json
    assert after["last_stream_seq"] == 3
    assert after["last_mmr_root"] == receipts[-1].mmr_root.hex()
    assert after["peaks_count"] == 2


def test_readyz_is_green_when_the_directory_and_the_index_answer(hub: RunningHub) -> None:
    assert (hub.get("/readyz").status, hub.get("/readyz").json) == (200, {"ok": True})


def test_head_answers_like_get_without_a_body(hub: RunningHub, alice: Writer) -> None:
    """Byte for byte: what comes after the head would be taken for the next answer."""
    hub.accept(alice.next())
    content = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfalse"
    attachment = f"/v1/attachment/{H(content).hex()}"
    assert hub.call("PUT", attachment, content, alice.attachment_headers(content)).status == 200
    for path in ("/healthz", "/v1/status", "/v1/checkpoint", attachment):
        head = f"HEAD {path} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n".encode()
        with talk(hub) as connection, connection.makefile("rb") as answer:
            connection.sendall(head)
            found = answer.read()
        assert found.startswith(b"HTTP/1.1 200 OK\r\n"), path
        assert found.index(b"\r\n\r\n") == len(found) - 4, path
    assert hub.call("HEAD", attachment).headers["content-length"] == str(len(content))


def test_a_live_stream_has_no_head(hub: RunningHub, alice: Writer) -> None:
    hub.accept(alice.next())
    answer = hub.call("HEAD", f"/v1/stream/{alice.label.hex()}")
    assert (answer.status, answer.body) == (400, b"")


def test_an_answer_that_is_streamed_has_a_request_id_too(hub: RunningHub, alice: Writer) -> None:
    content = b"sealed"
    attachment = f"/v1/attachment/{H(content).hex()}"
    hub.call("PUT", attachment, content, alice.attachment_headers(content))
    assert hub.get(attachment).headers["veen-request-id"]
    with Follower(hub.port, alice.label) as follower:
        assert follower.request_id
