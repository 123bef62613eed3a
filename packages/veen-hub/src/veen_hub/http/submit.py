"""``POST /v1/submit``: one envelope in, one out; or a sequence of them (§10.4.1, H14).

The prefilter of §8.1 is here: addresses, sizes while reading, proof of work (SH1+ 5.1, H13).
"""

from __future__ import annotations

import ipaddress
import logging
import time

from aiohttp import web

from veen_core import cbor
from veen_core import pow as proof_of_work
from veen_core.api import SubmitRequest, SubmitResponse, envelope_of, unwrap_submit
from veen_core.errors import AdmissionError, ApiError, DecodeError, VeenError
from veen_core.pow import PowCookie
from veen_core.receipt import Receipt
from veen_core.rejection import CAP_RATE, CBOR_INVALID, PREFILTER_REJECT, Code
from veen_hub.http.content import CBOR, CBOR_SEQ, JSON, read_body, wants_json
from veen_hub.http.errors import as_api_error, refuse
from veen_hub.http.keys import REQUEST_ID, hub_of
from veen_hub.hub import Hub
from veen_hub.logs import log
from veen_hub.version import VERSION

MAX_SEQUENCE = 8 * 1_048_576
ENVELOPE = 64
"""What a submit envelope adds to its MSG, generously."""


async def submit(request: web.Request) -> web.Response:
    started = time.perf_counter()
    hub = hub_of(request)
    check_address(hub, request)
    most = MAX_SEQUENCE if request.content_type == CBOR_SEQ else hub.limits.max_msg_bytes + ENVELOPE
    if request.content_type == JSON:
        most *= 3  # hex, and room for punctuation
    body = await read_body(request, most, hub.config.listen.request_timeout_sec)
    wires = unwrap(request, body)
    for wire in wires:
        check_work(hub, request, wire)
    pending = await hub.submit(wires)
    outcomes = await pending.done
    elapsed = time.perf_counter() - started
    note(hub, request, outcomes, verify=pending.verify_seconds, total=elapsed, size=len(body))
    if request.content_type == CBOR_SEQ:
        return web.Response(body=b"".join(encode(o, request) for o in outcomes), content_type=CBOR_SEQ)
    outcome = outcomes[0]
    if isinstance(outcome, VeenError):
        return refuse(request, as_api_error(outcome))
    if wants_json(request):
        answer = SubmitResponse(receipt=outcome, server_version=VERSION)
        return web.Response(text=answer.to_json(), content_type=JSON)
    return web.Response(body=encode(outcome, request), content_type=CBOR)


def unwrap(request: web.Request, body: bytes) -> list[bytes]:
    """The encoded MSGs of a request; an envelope that is not one is refused whole."""
    try:
        match request.content_type:
            case "application/cbor":
                return [unwrap_submit(body)]
            case "application/cbor-seq":
                return [unwrap_submit(item) for item in cbor.split_sequence(body)]
            case "application/json":
                return [SubmitRequest.from_json(body).msg.encode()]
    except DecodeError as exc:
        raise AdmissionError(CBOR_INVALID, str(exc)) from None
    raise ApiError(
        Code.BAD_REQUEST, f"Content-Type {request.content_type}: send {CBOR}, {CBOR_SEQ} or {JSON}"
    )


def encode(outcome: Receipt | VeenError, request: web.Request) -> bytes:
    """One answer of a sequence: a response, or the error envelope in its place (H14)."""
    if isinstance(outcome, VeenError):
        return envelope_of(as_api_error(outcome), request[REQUEST_ID]).encode()
    return SubmitResponse(receipt=outcome, server_version=VERSION).encode()


def check_address(hub: Hub, request: web.Request) -> None:
    """IP allow and deny lists (SH1+ 5.1); a denied range wins."""
    settings = hub.config.network
    if not settings.allow and not settings.deny:
        return
    address = ipaddress.ip_address(request.remote or "0.0.0.0")  # noqa: S104 - not bound to, only compared
    denied = any(address in ipaddress.ip_network(text) for text in settings.deny)
    allowed = not settings.allow or any(address in ipaddress.ip_network(text) for text in settings.allow)
    if denied or not allowed:
        raise AdmissionError(PREFILTER_REJECT, "this address may not submit here")


def check_work(hub: Hub, request: web.Request, wire: bytes) -> None:
    """A cookie for this very message, if the hub asks for work now (H13)."""
    difficulty = hub.pow_difficulty()
    if difficulty == 0:
        return
    header = request.headers.get("VEEN-PoW")
    if header is None:
        raise AdmissionError(
            PREFILTER_REJECT, f"proof of work of difficulty {difficulty} is needed: header VEEN-PoW"
        )
    salts = proof_of_work.accepted_salts(hub.identity.hub_id, hub.status().hub_ts)
    try:
        cookie = PowCookie.decode(bytes.fromhex(header))
        expected = [proof_of_work.challenge(salt, wire) for salt in salts]
        wanted = cookie.challenge if cookie.challenge in expected else expected[0]
        proof_of_work.verify_cookie(cookie, wanted, difficulty)
    except (ValueError, VeenError) as exc:
        raise AdmissionError(PREFILTER_REJECT, f"proof of work: {exc}") from None


def note(
    hub: Hub,
    request: web.Request,
    outcomes: list[Receipt | VeenError],
    *,
    verify: float,
    total: float,
    size: int,
) -> None:
    """Metrics and a log line per message (OBS0); identifiers and sizes, never content."""
    metrics = hub.metrics
    metrics.verify_ms.observe(verify / max(1, len(outcomes)) * 1_000)
    metrics.end_to_end_ms.observe(total * 1_000)
    accepted = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
    if accepted:
        metrics.submit_ok.inc(len(accepted))
        metrics.stage.labels("accepted").inc(len(accepted))
    for outcome in outcomes:
        if isinstance(outcome, VeenError):
            error = as_api_error(outcome)
            code = error.rejection.code if isinstance(error, AdmissionError) else error.code
            metrics.submit_err.labels(code.value).inc()
            if isinstance(error, AdmissionError) and error.rejection is CAP_RATE:
                metrics.rate_limited.inc()
            log(logging.INFO, "refused", code=code.value, why=str(error), request_id=request[REQUEST_ID])
        else:
            log(
                logging.DEBUG,
                "accepted",
                label=outcome.label.hex(),
                stream_seq=outcome.stream_seq,
                leaf_hash_prefix=outcome.leaf_hash.hex()[:8],
                bytes_in=size,
                verify_ms=round(verify * 1_000, 3),
                commit_ms=round((total - verify) * 1_000, 3),
            )
