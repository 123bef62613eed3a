"""The data plane: envelopes, versions, pages, sequences, JSON, probes (§10, H1, H14-H16)."""

from __future__ import annotations

import queue
import threading
from typing import Any, Final

from veen_core import cbor
from veen_core.api import (
    ErrorEnvelope,
    ProofRequest,
    ReceiptRequest,
    ReceiptResponse,
    StreamItem,
    StreamRequest,
    StreamResponse,
    SubmitRequest,
    SubmitResponse,
)
from veen_core.ids import Label, StreamSeq
from veen_core.msg import Msg
from veen_core.rejection import HTTP_STATUS, Code
from veen_core.status import Status
from veen_core.wire import Wire
from veen_selftest.core.equivocation import live
from veen_selftest.hubs.http_hub import CBOR_SEQ, JSON, HttpHub, HttpResponse
from veen_selftest.runner.check import Check, ClauseViolation, Skip, require, require_equal
from veen_selftest.runner.context import CheckContext


def check_error(answer: HttpResponse, code: Code, what: str) -> None:
    """Require an error envelope with this code, its HTTP status, and a request id (core §10.6, H1)."""
    error = answer.error
    require_equal(error.code, code, f"code of {what}")
    require_equal(answer.status, HTTP_STATUS[code], f"HTTP status of {what} (H1)")
    require(error.request_id, f"{what} has no request_id (core §10.6)")


def _errors(context: CheckContext) -> None:
    """Requests for absent objects and malformed requests get an error envelope (core §10.6, H1)."""
    hub = context.hub()
    nowhere = Label(context.rng.randbytes(32))
    asked = ReceiptRequest(label=nowhere, stream_seq=StreamSeq(1))
    check_error(hub.post("/v1/receipt", asked), Code.NOT_FOUND, "an empty label")
    check_error(hub.post("/v1/receipt", b"\xff"), Code.BAD_REQUEST, "bytes that are not CBOR")
    check_error(hub.post("/v1/receipt", asked, "text/plain"), Code.BAD_REQUEST, "another Content-Type")
    check_error(hub.get("/v1/nothing"), Code.NOT_FOUND, "an unknown path")
    check_error(hub.get("/v1/stream/xyz"), Code.BAD_REQUEST, "a malformed label")
    check_error(hub.post("/v1/receipt", bytes(200_000)), Code.LIMIT, "a request that is too large")


def _version(context: CheckContext) -> None:
    """Another major version is refused with E.VERSION on every path (core §10.3)."""
    hub = context.hub()
    for path in ("/v2/submit", "/v0/stream", "/v9/status", "/v10/receipt"):
        check_error(hub.post(path, b"\xa0"), Code.VERSION, path)


def _canonical_requests(context: CheckContext) -> None:
    """Requests with unknown, misordered, missing or non-minimal keys are refused (core §10.4, B3, H16)."""
    hub = context.hub()
    writer = context.writer(hub)
    hub.accept(writer.next())
    label = bytes(writer.label)
    wrong: dict[str, bytes] = {
        "an unknown key": cbor.encode({1: 1, 2: label, 3: 1, 9: 1}),
        "keys out of order": cbor.encode({2: label, 1: 1, 3: 1}),
        "a missing key": cbor.encode({1: 1, 2: label}),
        "null for an optional": cbor.encode({1: 1, 2: label, 3: 1, 4: None}),
        "text for a number": cbor.encode({1: 1, 2: label, 3: "1"}),
        "a negative number": cbor.encode({1: 1, 2: label, 3: -1}),
        "a short label": cbor.encode({1: 1, 2: label[:31], 3: 1}),
        "a long integer": b"\xa3\x18\x01\x01\x02\x58\x20" + label + b"\x03\x01",
        "an indefinite map": b"\xbf\x01\x01\x02\x58\x20" + label + b"\x03\x01\xff",
        "bytes after it": cbor.encode({1: 1, 2: label, 3: 1}) + b"\x00",
    }
    for path in ("/v1/receipt", "/v1/proof", "/v1/stream"):
        require(
            hub.post(path, cbor.encode({1: 1, 2: label, 3: 1})).status == 200,
            f"{path} refuses a valid request",
        )
        for name, body in wrong.items():
            check_error(hub.post(path, body), Code.BAD_REQUEST, f"{name} at {path}")


def _json(context: CheckContext) -> None:
    """Requests and responses have the same content in JSON and in CBOR (core §10.3, B17)."""
    hub = context.hub()
    writer = context.writer(hub)
    wire = writer.next()
    text = SubmitRequest(msg=Msg.decode(wire)).to_json().encode()
    receipt = hub.post("/v1/submit", text, JSON, work=[wire]).read(SubmitResponse).receipt
    questions: tuple[tuple[str, Wire, type[Wire]], ...] = (
        ("/v1/receipt", ReceiptRequest(label=writer.label, stream_seq=StreamSeq(1)), ReceiptResponse),
        (
            "/v1/stream",
            StreamRequest(label=writer.label, from_seq=StreamSeq(1), with_receipts=True),
            StreamResponse,
        ),
    )
    for path, question, kind in questions:
        as_cbor = hub.post(path, question).read(kind)
        as_json = hub.post(path, question.to_json().encode(), JSON, Accept=JSON)
        require(
            as_json.headers["content-type"].startswith(JSON), f"{path} does not answer in JSON when asked"
        )
        require_equal(as_json.read(kind), as_cbor, f"{path} in JSON and in CBOR")
    asked = ReceiptRequest(label=writer.label, stream_seq=StreamSeq(1))
    require_equal(
        hub.ask("/v1/receipt", asked, ReceiptResponse).receipt, receipt, "the receipt of a message in JSON"
    )
    status = hub.get("/v1/status", Accept=JSON).read(Status)
    require_equal(status.identity, hub.known.identity, "the identity in JSON")


def _pages(context: CheckContext) -> None:
    """Page bounds are inclusive, cursor overrides from_seq, next_cursor is set while more follows."""
    hub = context.hub()
    writer = context.writer(hub)
    hub.accept_many(writer.many(10))

    def page(**asked: Any) -> tuple[list[int], int | None]:
        question = StreamRequest(label=writer.label, **{"from_seq": StreamSeq(1), **asked})
        found = hub.ask("/v1/stream", question, StreamResponse)
        require(
            all(item.receipt is None for item in found.items),
            "the page has receipts that were not asked for (core §10.4.2)",
        )
        return [item.stream_seq for item in found.items], found.next_cursor

    most = hub.known.max_page_items

    def wanted(start: int, end: int, items: int) -> tuple[list[int], int | None]:
        shown = list(range(start, end + 1))[: min(items, most)]
        return shown, shown[-1] + 1 if shown and shown[-1] < end else None

    require_equal(page(), wanted(1, 10, most), "the first page")
    require_equal(
        page(from_seq=StreamSeq(4), to_seq=StreamSeq(6)), wanted(4, 6, most), "the page from 4 to 6"
    )
    require_equal(page(max_items=3), wanted(1, 10, 3), "a page of 3 of 10 entries")
    require_equal(
        page(cursor=StreamSeq(8), max_items=2), wanted(8, 10, 2), "a page of 2 entries from cursor 8"
    )
    require_equal(page(cursor=StreamSeq(10)), ([10], None), "the page of the last entry")
    require_equal(
        page(to_seq=StreamSeq(5), max_items=5), wanted(1, 5, 5), "a page whose range has max_items entries"
    )
    require_equal(page(from_seq=StreamSeq(11)), ([], None), "a page beyond the end")


def _sequence(context: CheckContext) -> None:
    """Each message of a sequence is admitted or refused by itself, and answers are in order (H14)."""
    hub = context.hub()
    writer = context.writer(hub)
    wires = [
        writer.message(1),
        writer.message(2, sig=bytes(64)),
        b"\x80",
        writer.message(2),
        writer.message(2),
        writer.message(3),
    ]
    found = hub.submit_many(wires)
    codes = [outcome.code if isinstance(outcome, ErrorEnvelope) else "ok" for outcome in found]
    require_equal(codes, ["ok", "E.SIG", "E.FORMAT", "ok", "E.SEQ", "ok"], "outcomes of a sequence")
    whole = hub.post("/v1/submit", b"\xff", CBOR_SEQ)
    require(whole.status != 200, "a malformed sequence was accepted")


def _follow(context: CheckContext) -> None:
    """A follower gets existing entries and then new ones, each once and in order (H15)."""
    hub = context.hub()
    writer = context.writer(hub)
    hub.accept_many(writer.many(3))
    found: queue.Queue[StreamItem] = queue.Queue()

    def follow() -> None:
        for item in live(hub, writer.label, 2, 7):
            found.put(item)

    threading.Thread(target=follow, daemon=True).start()

    def arrived(count: int) -> list[StreamItem]:
        try:
            return [found.get(timeout=10) for _ in range(count)]
        except queue.Empty:
            raise ClauseViolation("a follower does not get all entries (RESOLUTIONS H15)") from None

    require_equal([item.stream_seq for item in arrived(2)], [2, 3], "existing entries that a follower gets")
    receipts = hub.accept_many(writer.many(4))
    came = arrived(4)
    last = hub.accept(writer.next())
    came += arrived(1)
    require_equal([item.stream_seq for item in came], [4, 5, 6, 7, 8], "new entries that a follower gets")
    require_equal([item.receipt for item in came], [*receipts, last], "receipts that a follower gets")


def _probes(context: CheckContext) -> None:
    """The probes answer, and the metrics have their names (OBS0, spec-4 §10)."""
    hub = context.hub()
    healthz, readyz = hub.get("/healthz"), hub.probe("/readyz")
    if readyz is None:
        raise Skip("needs the address of /readyz and /metrics: give --probes")
    for path, answer in (("/healthz", healthz), ("/readyz", readyz)):
        require_equal((answer.status, answer.json.get("ok")), (200, True), f"status and ok of {path}")
    writer = context.writer(hub)
    hub.accept(writer.next())
    hub.submit(writer.message(1))
    text = hub.get("/metrics").body.decode()
    for name in (
        "veen_submit_ok_total",
        "veen_submit_err_total",
        "veen_verify_latency_ms",
        "veen_commit_latency_ms",
    ):
        require(name in text, f"/metrics lacks {name} (OBS0.1)")


def _replies(context: CheckContext) -> None:
    """Responses of every endpoint are canonical, and every refusal has its own request id."""
    hub = context.hub()
    writer = context.writer(hub)
    hub.accept_many(writer.many(3))
    one = ReceiptRequest(label=writer.label, stream_seq=StreamSeq(2)).encode()
    page = StreamRequest(label=writer.label, from_seq=StreamSeq(1), with_receipts=True, with_mmr_proof=True)
    proof = ProofRequest(label=writer.label, stream_seq=StreamSeq(2), tree_size=StreamSeq(3))
    answers = [
        hub.post("/v1/receipt", one),
        hub.post("/v1/stream", page),
        hub.post("/v1/proof", proof),
        hub.get("/v1/status"),
        hub.submit(writer.next()),
    ]
    for answer in answers:
        require_equal(answer.status, 200, "status")
        cbor.decode(answer.body)  # raises unless canonical
    named = {_id_of(hub) for _ in range(4)}
    require_equal(len(named), 4, "request ids of four refusals")


def _id_of(hub: HttpHub) -> str:
    answer = hub.post("/v1/receipt", b"\xff")
    require_equal(
        answer.headers.get("veen-request-id"), answer.error.request_id, "the request id in header and body"
    )
    return str(answer.error.request_id)


CHECKS: Final = (
    Check("api.errors", "core §10.6, H1", _errors),
    Check("api.version", "core §10.3", _version),
    Check("api.requests", "core §10.4, B3, H16", _canonical_requests),
    Check("api.answers", "B3, core §10.6", _replies),
    Check("api.json", "core §10.3, B17", _json),
    Check("api.pages", "core §10.5", _pages),
    Check("api.sequence", "H14", _sequence),
    Check("api.follow", "H15", _follow),
    Check("api.probes", "OBS0, spec-4 §10", _probes),
)
