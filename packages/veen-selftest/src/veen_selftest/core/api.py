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
from veen_selftest.hubs.http_hub import CBOR_SEQ, JSON, Answer, Hub
from veen_selftest.runner.check import Check, Violation, require, same
from veen_selftest.runner.context import Bench


def check_error(answer: Answer, code: Code, what: str) -> None:
    """§10.6's envelope with this code, H1's status, and a request id."""
    error = answer.error
    same(error.code, code, f"code of {what}")
    same(answer.status, HTTP_STATUS[code], f"HTTP status of {what} (H1)")
    require(error.request_id, f"{what} has no request_id (§10.6)")


def _errors(bench: Bench) -> None:
    """What is not there, not asked right or not of this version is refused in an envelope (§10.6, H1)."""
    hub = bench.hub()
    nowhere = Label(bench.chance.randbytes(32))
    asked = ReceiptRequest(label=nowhere, stream_seq=StreamSeq(1))
    check_error(hub.post("/v1/receipt", asked), Code.NOT_FOUND, "a label that holds nothing")
    check_error(hub.post("/v1/receipt", b"\xff"), Code.BAD_REQUEST, "bytes that are no CBOR")
    check_error(hub.post("/v1/receipt", asked, "text/plain"), Code.BAD_REQUEST, "another Content-Type")
    check_error(hub.get("/v1/nothing"), Code.NOT_FOUND, "a path that is not there")
    check_error(hub.get("/v1/stream/xyz"), Code.BAD_REQUEST, "a label that is none")
    check_error(hub.post("/v1/receipt", bytes(200_000)), Code.LIMIT, "a request that is too large")


def _version(bench: Bench) -> None:
    """Another major version is E.VERSION, wherever it is asked for (§10.3)."""
    hub = bench.hub()
    for path in ("/v2/submit", "/v0/stream", "/v9/status", "/v10/receipt"):
        check_error(hub.post(path, b"\xa0"), Code.VERSION, path)


def _canonical_requests(bench: Bench) -> None:
    """Unknown, misordered, missing and long-form keys are refused in requests too (§10.4, B3, H16)."""
    hub = bench.hub()
    writer = bench.writer(hub)
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
            hub.post(path, cbor.encode({1: 1, 2: label, 3: 1})).status == 200, f"{path} refuses what is right"
        )
        for name, body in wrong.items():
            check_error(hub.post(path, body), Code.BAD_REQUEST, f"{name} at {path}")


def _json(bench: Bench) -> None:
    """JSON says the same as CBOR, in and out (§10.3, B17)."""
    hub = bench.hub()
    writer = bench.writer(hub)
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
        same(as_json.read(kind), as_cbor, f"{path} in JSON and in CBOR")
    asked = ReceiptRequest(label=writer.label, stream_seq=StreamSeq(1))
    same(hub.ask("/v1/receipt", asked, ReceiptResponse).receipt, receipt, "what was submitted in JSON")
    status = hub.get("/v1/status", Accept=JSON).read(Status)
    same(status.identity, hub.known.identity, "the identity in JSON")


def _pages(bench: Bench) -> None:
    """Pages: bounds inclusive, cursor before from_seq, next_cursor exactly while there is more (§10.5)."""
    hub = bench.hub()
    writer = bench.writer(hub)
    hub.accept_many(writer.many(10))

    def page(**asked: Any) -> tuple[list[int], int | None]:
        question = StreamRequest(label=writer.label, **{"from_seq": StreamSeq(1), **asked})
        found = hub.ask("/v1/stream", question, StreamResponse)
        require(all(item.receipt is None for item in found.items), "receipts that nobody asked for (§10.4.2)")
        return [item.stream_seq for item in found.items], found.next_cursor

    most = hub.known.max_page_items

    def wanted(start: int, end: int, items: int) -> tuple[list[int], int | None]:
        shown = list(range(start, end + 1))[: min(items, most)]
        return shown, shown[-1] + 1 if shown and shown[-1] < end else None

    same(page(), wanted(1, 10, most), "all of it, or a page")
    same(page(from_seq=StreamSeq(4), to_seq=StreamSeq(6)), wanted(4, 6, most), "from 4 to 6")
    same(page(max_items=3), wanted(1, 10, 3), "three of ten")
    same(page(cursor=StreamSeq(8), max_items=2), wanted(8, 10, 2), "two from the cursor")
    same(page(cursor=StreamSeq(10)), ([10], None), "the last one")
    same(page(to_seq=StreamSeq(5), max_items=5), wanted(1, 5, 5), "a range that a page just holds")
    same(page(from_seq=StreamSeq(11)), ([], None), "beyond the end")


def _sequence(bench: Bench) -> None:
    """In a sequence each message is judged by itself, and answers come in order (H14)."""
    hub = bench.hub()
    writer = bench.writer(hub)
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
    same(codes, ["ok", "E.SIG", "E.FORMAT", "ok", "E.SEQ", "ok"], "outcomes of a sequence")
    whole = hub.post("/v1/submit", b"\xff", CBOR_SEQ)
    require(whole.status != 200, "a sequence that cannot be split was taken")


def _follow(bench: Bench) -> None:
    """A follower gets what is there and then what comes, each once and in order (H15)."""
    hub = bench.hub()
    writer = bench.writer(hub)
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
            raise Violation("a follower does not get what is there, or what comes (H15)") from None

    same([item.stream_seq for item in arrived(2)], [2, 3], "what a follower gets of what is there")
    receipts = hub.accept_many(writer.many(4))
    came = arrived(4)
    last = hub.accept(writer.next())
    came += arrived(1)
    same([item.stream_seq for item in came], [4, 5, 6, 7, 8], "what a follower gets as it comes")
    same([item.receipt for item in came], [*receipts, last], "the receipts that it gets")


def _probes(bench: Bench) -> None:
    """Alive, ready, and metrics under their names (OBS0, spec-4 §10)."""
    hub = bench.hub()
    for path in ("/healthz", "/readyz"):
        answer = hub.get(path)
        require(answer.status == 200 and answer.json["ok"] is True, f"{path}: {answer.status}")
    writer = bench.writer(hub)
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


def _replies(bench: Bench) -> None:
    """Answers of every endpoint are canonical, and every refusal has a request id of its own (B3, §10.6)."""
    hub = bench.hub()
    writer = bench.writer(hub)
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
        same(answer.status, 200, "status")
        cbor.decode(answer.body)  # raises unless canonical
    named = {_id_of(hub) for _ in range(4)}
    same(len(named), 4, "request ids of four refusals")


def _id_of(hub: Hub) -> str:
    answer = hub.post("/v1/receipt", b"\xff")
    same(answer.headers.get("veen-request-id"), answer.error.request_id, "the request id in header and body")
    return str(answer.error.request_id)


CHECKS: Final = (
    Check("api.errors", "§10.6, H1", _errors),
    Check("api.version", "§10.3", _version),
    Check("api.requests", "§10.4, B3, H16", _canonical_requests),
    Check("api.answers", "B3, §10.6", _replies),
    Check("api.json", "§10.3, B17", _json),
    Check("api.pages", "§10.5", _pages),
    Check("api.sequence", "H14", _sequence),
    Check("api.follow", "H15", _follow),
    Check("api.probes", "OBS0, spec-4 §10", _probes),
)
