"""Malformed requests to every endpoint, bounded by count and time: no answer may be a 500."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Callable
from typing import Final

from veen_core.api import (
    CheckpointRequest,
    ConsistencyRequest,
    ErrorEnvelope,
    ProofRequest,
    ReceiptRequest,
    StreamRequest,
    SubmitRequest,
    wrap_submit,
)
from veen_core.errors import DecodeError
from veen_core.hashing import H
from veen_core.ids import Coid, StreamSeq
from veen_core.msg import Msg
from veen_core.rejection import HTTP_STATUS, Code
from veen_core.status import LabelRequest
from veen_selftest.fuzz.mutator import FuzzRequest, Mutator
from veen_selftest.hubs.http_hub import CBOR, CBOR_SEQ, JSON, HttpHub
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import Check, ClauseViolation, require, require_equal
from veen_selftest.runner.context import CheckContext

MAPPED: Final = frozenset(HTTP_STATUS.values())
REQUESTS_PER_MESSAGE: Final = 50
"""Malformed requests between two valid messages of another writer, which must be accepted."""
TYPE: Final = (("Content-Type", CBOR),)


def _submits(writer: Writer) -> list[FuzzRequest]:
    wire = writer.message(writer.seq + 1)
    text = SubmitRequest(msg=Msg.decode(wire)).to_json().encode()
    return [
        FuzzRequest("POST", "/v1/submit", wrap_submit(wire), TYPE),
        FuzzRequest("POST", "/v1/submit", wrap_submit(wire) * 3, (("Content-Type", CBOR_SEQ),)),
        FuzzRequest("POST", "/v1/submit", text, (("Content-Type", JSON),)),
    ]


def _reads(writer: Writer) -> list[FuzzRequest]:
    label, one = writer.label, StreamSeq(1)
    questions = {
        "/v1/stream": StreamRequest(label=label, from_seq=one, max_items=2, with_receipts=True),
        "/v1/receipt": ReceiptRequest(label=label, stream_seq=one),
        "/v1/proof": ProofRequest(label=label, stream_seq=one, tree_size=StreamSeq(3)),
        "/v1/consistency": ConsistencyRequest(label=label, from_seq=one, to_seq=StreamSeq(3)),
        "/v1/checkpoint": CheckpointRequest(label=label, upto_seq=StreamSeq(0)),
    }
    as_json = (("Content-Type", JSON), ("Accept", JSON))
    return [
        *(FuzzRequest("POST", path, question.encode(), TYPE) for path, question in questions.items()),
        *(
            FuzzRequest("POST", path, question.to_json().encode(), as_json)
            for path, question in questions.items()
        ),
        FuzzRequest("GET", f"/v1/stream/{label.hex()}?from=1"),
        FuzzRequest("GET", "/v1/checkpoint?epoch_min=0&epoch_max=5"),
        *(FuzzRequest("GET", path) for path in ("/v1/status", "/healthz")),
    ]


def _tooling(writer: Writer) -> list[FuzzRequest]:
    """Return admin requests without a valid signature, so that none changes a running hub."""
    order = LabelRequest(label=writer.label).encode()
    paths = ("/tooling/checkpoint", "/tooling/anchor", "/tooling/retention")
    signed = (*TYPE, ("VEEN-Admin-Ts", "1"), ("VEEN-Admin-Sig", bytes(64).hex()))
    found = [FuzzRequest("POST", path, order, headers) for path in paths for headers in (TYPE, signed)]
    found.append(FuzzRequest("POST", "/tooling/equivocation", b"\xa3\x01\x01\x02\xa0\x03\xa0", TYPE))
    found.append(FuzzRequest("GET", f"/tooling/cap/{bytes(32).hex()}"))
    if writer.hub.admin is not None:
        found.append(FuzzRequest("POST", "/tooling/authorize", writer.token().encode(), TYPE))
    return found


def _attachments(writer: Writer) -> list[FuzzRequest]:
    content = b"an attachment"
    coid = Coid(H(content))
    headers = tuple(writer.attachment_headers(coid).items())
    return [
        FuzzRequest("PUT", f"/v1/attachment/{coid.hex()}", content, headers),
        FuzzRequest("GET", f"/v1/attachment/{coid.hex()}"),
    ]


def ask(hub: HttpHub, request: FuzzRequest) -> tuple[int, str, bytes]:
    """Send a request with exactly its headers; returns status, type and body. A live stream is not read."""
    with contextlib.closing(hub.connection(timeout=20)) as connection:
        connection.putrequest(request.method, hub.prefix + request.path, skip_accept_encoding=True)
        for name, value in (*request.headers, ("Content-Length", str(len(request.body)))):
            connection.putheader(name, value.encode("latin-1"))
        # A hub may answer and close the connection before it has read the whole request. Its answer can be
        # read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.endheaders(request.body)
        with connection.getresponse() as response:
            kind = response.getheader("Content-Type", "")
            endless = kind == CBOR_SEQ and response.status == 200 and "/v1/stream/" in request.path
            return response.status, kind, b"" if endless else response.read()


def check(request: FuzzRequest, status: int, kind: str, body: bytes) -> None:
    """Require success, or an error envelope (core §10.6) whose code H1 maps to this status."""
    require(status != 500, f"status 500 in answer to {request}")
    if status < 400:
        require(status == 200, f"expected status 200, found {status}, in answer to {request}")
        return
    require(
        status in MAPPED, f"status {status}, which RESOLUTIONS H1 does not define, in answer to {request}"
    )
    if request.method == "HEAD":
        return
    try:
        error = ErrorEnvelope.from_json(body) if kind.startswith(JSON) else ErrorEnvelope.decode(body)
    except DecodeError as exc:
        raise ClauseViolation(
            f"status {status} without an error envelope ({exc}) in answer to {request}"
        ) from None
    require_equal(status, HTTP_STATUS[Code(error.code)], f"status of {error.code} in answer to {request}")
    require(error.request_id, f"no request_id in the answer to {request}")
    require(
        "internal error" not in error.message, f"an internal error ({error.message}) in answer to {request}"
    )


def _fuzz(requests_of: Callable[[Writer], list[FuzzRequest]]) -> Callable[[CheckContext], None]:
    def run(context: CheckContext) -> None:
        hub = context.hub_without_pow()
        writer, other = context.writer(hub), context.writer(hub, "bob", on="other")
        hub.accept_many(writer.many(3))
        mutator, valid = Mutator(context.rng), requests_of(writer)
        deadline = time.monotonic() + context.options.fuzz_seconds
        for done in range(1, context.options.fuzz_requests + 1):
            request = mutator.pick(valid)
            try:
                status, kind, body = ask(hub, request)
            except (OSError, http.client.HTTPException) as exc:
                raise ClauseViolation(f"no answer ({exc!r}) to {request}") from exc
            check(request, status, kind, body)
            if done % REQUESTS_PER_MESSAGE == 0:
                hub.accept(other.next())
                context.progress(done, context.options.fuzz_requests)
            if time.monotonic() > deadline:
                break
        hub.accept(other.next())
        if (ready := hub.probe("/readyz")) is not None:
            require_equal(ready.status, 200, "status of /readyz after the malformed requests")

    return run


CHECKS: Final = (
    Check(
        "fuzz.submit",
        "TS0.3, core §8.2",
        _fuzz(_submits),
        "Malformed submits, single, in sequences and in JSON, get an error envelope.",
    ),
    Check(
        "fuzz.read",
        "TS0.3, core §10.6",
        _fuzz(_reads),
        "Malformed reads of pages, receipts, proofs, checkpoints and streams get an error envelope.",
    ),
    Check(
        "fuzz.tooling",
        "TS0.3, H19",
        _fuzz(_tooling),
        "Malformed tokens, evidence and unsigned admin requests get an error envelope.",
    ),
    Check(
        "fuzz.attachment",
        "TS0.3, H17",
        _fuzz(_attachments),
        "Malformed uploads and downloads of attachments get an error envelope.",
    ),
)
