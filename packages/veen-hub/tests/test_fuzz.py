"""Mutated requests to every route: each answer is an envelope with a mapped status, and never a 500.

Seeded, so that a failure can be played again: ``VEEN_FUZZ_SEED``; ``VEEN_FUZZ_SECONDS`` for longer runs.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import string
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import cbor2
import pytest

from veen_core.api import (
    CheckpointRequest,
    ConsistencyRequest,
    ErrorEnvelope,
    ProofRequest,
    ReceiptRequest,
    StreamRequest,
    SubmitRequest,
)
from veen_core.hashing import H
from veen_core.hub_log import HubConsistencyRequest, HubProofRequest
from veen_core.ids import StreamSeq
from veen_core.msg import Msg
from veen_core.rejection import HTTP_STATUS, Code
from veen_core.status import HandoverRequest, LabelRequest
from veen_hub.api.submit import SubmitCall

from .people import Writer, admin_headers, envelope
from .serving import CBOR, CBOR_SEQ, JSON, InOnePiece, RunningHub

SECONDS = float(os.environ.get("VEEN_FUZZ_SECONDS", "10"))
SEED = int(os.environ.get("VEEN_FUZZ_SEED", "20260101"))
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"]
KINDS = [CBOR, CBOR_SEQ, JSON, "text/plain", "", "application/cbor; x=y", "multipart/form-data"]
MAPPED = set(HTTP_STATUS.values())


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def good_requests(hub: RunningHub, alice: Writer) -> list[Request]:
    """One for every route that the hub has; the handover lacks the admin's signature, for it ends the hub."""
    label, one = alice.label, StreamSeq(1)
    submit = SubmitRequest(msg=Msg.decode(alice.message(1)))
    cbor, as_json = (("Content-Type", CBOR),), (("Content-Type", JSON),)
    put = tuple(alice.attachment_headers(b"x").items())
    posts = {
        "/v1/submit": submit,
        "/v1/stream": StreamRequest(label=label, from_seq=one, with_receipts=True, with_mmr_proof=True),
        "/v1/receipt": ReceiptRequest(label=label, stream_seq=one),
        "/v1/proof": ProofRequest(label=label, stream_seq=one, tree_size=StreamSeq(2)),
        "/v1/consistency": ConsistencyRequest(label=label, from_seq=one, to_seq=StreamSeq(2)),
        "/v1/checkpoint": CheckpointRequest(label=label, upto_seq=StreamSeq(0)),
        "/v1/hublog/proof": HubProofRequest(label=label, stream_seq=one),
        "/v1/hublog/consistency": HubConsistencyRequest(old_size=1, new_size=1),
        "/tooling/authorize": alice.token(),
    }
    admin = [
        Request("POST", path, LabelRequest(label=label).encode(), tuple(headers.items()))
        for path in ("/tooling/checkpoint", "/tooling/anchor", "/tooling/retention")
        for headers in [admin_headers(hub.hub_id, path, LabelRequest(label=label).encode(), hub.clock.time)]
    ]
    sequence = b"".join(envelope(alice.message(n)) for n in range(1, 4))
    return [
        *(Request("POST", path, asked.encode(), cbor) for path, asked in posts.items()),
        *(Request("POST", path, asked.to_json().encode(), as_json) for path, asked in posts.items()),
        Request("POST", "/v1/submit", sequence, (("Content-Type", CBOR_SEQ),)),
        Request("GET", f"/v1/stream/{label.hex()}?from=1"),
        Request("GET", "/v1/checkpoint?epoch_min=0&epoch_max=9"),
        Request("PUT", f"/v1/attachment/{H(b'x').hex()}", b"x", put),
        Request("GET", f"/v1/attachment/{H(b'x').hex()}"),
        Request("POST", "/tooling/equivocation", b"\xa3\x01\x01\x02\xa0\x03\xa0", cbor),
        Request("GET", f"/tooling/cap/{'00' * 32}"),
        *(Request("GET", path) for path in ("/v1/status", "/healthz", "/log/checkpoint")),
        *(Request("GET", f"/v1/replica/{path}") for path in ("journal?after=0", "snapshot")),
        *(Request("GET", f"/log/tile/{path}") for path in ("0/000.p/1", "entries/000.p/1")),
        *admin,
        Request("POST", "/tooling/handover", HandoverRequest(new_hub=hub.hub_id, url="").encode(), cbor),
    ]


class Mutator:
    """Takes a good request and makes something else of it."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def pick(self, choices: list[Request]) -> Request:
        request = self._chance.choice(choices)
        for _ in range(self._chance.choice([0, 1, 1, 1, 2, 3])):
            request = self._chance.choice(
                [
                    self._bytes,
                    self._bytes,
                    self._structure,
                    self._structure,
                    self._path,
                    self._headers,
                    self._method,
                ]
            )(request)
        return request

    def _bytes(self, request: Request) -> Request:
        chance, body = self._chance, bytearray(request.body)
        match chance.randrange(6):
            case 0 if body:
                body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
            case 1:
                del body[chance.randrange(len(body) + 1) :]
            case 2:
                at = chance.randrange(len(body) + 1)
                body[at:at] = chance.randbytes(chance.choice([1, 2, 8, 64]))
            case 3:
                body *= 2
            case 4:
                body = bytearray(chance.randbytes(chance.choice([0, 1, 10, 300, 70_000])))
            case _:
                body += b"\x00"
        return replace(request, body=bytes(body))

    def _structure(self, request: Request) -> Request:
        try:
            item = cbor2.loads(request.body)
            return replace(request, body=cbor2.dumps(self._changed(item)))
        except (cbor2.CBORError, ValueError, TypeError, OverflowError, RecursionError):
            return self._bytes(request)

    def _changed(self, item: Any) -> Any:
        chance = self._chance
        if isinstance(item, dict) and item and chance.random() < 0.8:
            key = chance.choice(list(item))
            match chance.randrange(4):
                case 0:
                    return {k: v for k, v in item.items() if k != key}
                case 1:
                    return item | {chance.choice([0, 9, 99, "x", b"y"]): self._value()}
                case _:
                    return item | {key: self._changed(item[key])}
        if isinstance(item, list) and item and chance.random() < 0.8:
            at = chance.randrange(len(item))
            return [*item[:at], self._changed(item[at]), *item[at + chance.choice([0, 1, 1, 1]) :]]
        return self._value()

    def _value(self) -> Any:
        chance = self._chance
        return chance.choice(
            [
                0,
                1,
                -1,
                2**63,
                2**64 - 1,
                2**64,
                1.5,
                float("nan"),
                None,
                True,
                b"",
                bytes(31),
                bytes(32),
                bytes(64),
                "text",
                "\ud800" if chance.random() < 0 else "x",
                [],
                {},
                [[[[]]]],
                cbor2.CBORTag(1, 0),
                chance.randbytes(32),
            ]
        )

    def _path(self, request: Request) -> Request:
        chance, path = self._chance, request.path
        word = "".join(
            chance.choices(string.ascii_letters + string.digits + "%/.?=&-_~", k=chance.choice([1, 5, 70]))
        )
        return replace(
            request,
            path=chance.choice(
                [
                    path + word,
                    path[:-1] or "/",
                    path.replace("v1", f"v{chance.randrange(5)}"),
                    path.upper(),
                    path + "/",
                    "/" + word,
                    path + "?from=" + word,
                    path.replace("/", "//"),
                    path + "%00",
                    path + "/../../etc/passwd",
                ]
            ),
        )

    def _headers(self, request: Request) -> Request:
        chance, headers = self._chance, list(request.headers)
        match chance.randrange(5):
            case 0 if headers:
                headers.pop(chance.randrange(len(headers)))
            case 1:
                headers.append(("Content-Type", chance.choice(KINDS)))
            case 2:
                headers.append(("Accept", chance.choice([JSON, CBOR, "*/*", "text/html", "\xe9", ""])))
            case 3 if headers:
                name, value = headers[chance.randrange(len(headers))]
                headers.append(
                    (name, value[: chance.randrange(len(value) + 1)] + chance.choice(["", "0", "zz"]))
                )
            case _:
                headers.append(
                    chance.choice(
                        [
                            ("Content-Encoding", "gzip"),
                            ("Expect", "100-continue"),
                            ("Expect", "200-maybe"),
                            ("Range", "bytes=0-1"),
                            ("VEEN-PoW", "a0"),
                            ("VEEN-Admin-Ts", "1"),
                            ("Connection", "close"),
                            ("If-Modified-Since", "yesterday"),
                            ("Upgrade", "websocket"),
                            ("X-Long", "x" * 4_000),
                        ]
                    )
                )
        return replace(request, headers=tuple(headers))

    def _method(self, request: Request) -> Request:
        return replace(request, method=self._chance.choice(METHODS))


def ask(
    port: int, request: Request, way: type[http.client.HTTPConnection] = InOnePiece
) -> tuple[int, str, bytes]:
    """Status, type and body; of a live stream only that it began."""
    connection = way("127.0.0.1", port, timeout=10)
    try:
        connection.putrequest(request.method, request.path, skip_accept_encoding=True)
        for name, value in request.headers:
            connection.putheader(name, value.encode("latin-1"))
        connection.putheader("Content-Length", str(len(request.body)))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.endheaders(request.body)  # refused before it was all there; the answer may have come
        response = connection.getresponse()
        kind = response.getheader("Content-Type") or ""
        endless = request.path.startswith(("/v1/stream/", "/v1/replica/journal"))
        live = response.status == 200 and kind == CBOR_SEQ and endless
        body = b"" if live else response.read()
        response.close()
        return response.status, kind, body
    finally:
        connection.close()


def check(request: Request, status: int, kind: str, body: bytes) -> None:
    assert status != 500, request
    if status < 400:
        assert status == 200, (status, request)
        return
    assert status in MAPPED, (status, request)
    if request.method == "HEAD":
        return
    assert kind.split(";", maxsplit=1)[0] in (CBOR, JSON), (kind, request)
    error = ErrorEnvelope.from_json(body) if kind.startswith(JSON) else ErrorEnvelope.decode(body)
    assert HTTP_STATUS[Code(error.code)] == status, (error, request)
    assert error.request_id, request
    assert "internal error" not in error.message, (error, request)


@pytest.mark.parametrize("way", [http.client.HTTPConnection, InOnePiece], ids=["in parts", "in one piece"])
def test_whatever_is_asked_the_answer_is_an_envelope_and_the_next_user_is_served(
    hub: RunningHub, direct: list[SubmitCall], way: type[http.client.HTTPConnection]
) -> None:
    alice, bob = hub.writer("alice"), hub.writer("bob", to="bob's")
    for _ in range(3):
        hub.accept(alice.next())
    mutator, routes = Mutator(SEED), good_requests(hub, alice)
    seen: Counter[int] = Counter()
    deadline = time.monotonic() + SECONDS / 2
    while time.monotonic() < deadline:
        for _ in range(50):
            request = mutator.pick(routes)
            try:
                status, kind, body = ask(hub.port, request, way)
            except (http.client.HTTPException, ConnectionError) as exc:
                raise AssertionError(f"no answer to {request}: {exc!r}") from exc
            check(request, status, kind, body)
            seen[status] += 1
        assert hub.submit(bob.next()).status == 200
    assert hub.get("/readyz").status == 200
    assert seen[200] > 0
    assert way is not InOnePiece or direct
    assert sum(count for status, count in seen.items() if status >= 400) > seen[200] / 4
    assert hub.do(lambda: hub.hub._intake.waiting) == 0


def test_every_route_of_the_application_is_fuzzed(hub: RunningHub, alice: Writer) -> None:
    routes = {
        (route.method, route.resource.canonical)
        for route in hub.server._api_runner.app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    asked = {(request.method, request.path.split("?")[0]) for request in good_requests(hub, alice)}
    for method, canonical in routes:
        start = canonical.split("{")[0]
        assert any(m == method and path.startswith(start) for m, path in asked), (method, canonical)
