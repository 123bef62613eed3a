"""``POST /v1/submit``: one envelope in, one out; or a sequence of them (§10.4.1, H14).

The prefilter of §8.1 is here: addresses, sizes while reading, proof of work (SH1+ 5.1, H13).
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
import time
from collections.abc import Callable, Sequence

from aiohttp import web

from veen_core import cbor
from veen_core import pow as proof_of_work
from veen_core.api import SubmitRequest, SubmitResponse, envelope_of, split_submits, unwrap_submit
from veen_core.entry import Entry
from veen_core.errors import AdmissionError, ApiError, DecodeError, VeenError
from veen_core.msg import Msg
from veen_core.pow import PowCookie
from veen_core.rejection import CAP_RATE, CBOR_INVALID, PREFILTER_REJECT, Code, Stage
from veen_hub.admission.stateless import DECODING, Submission
from veen_hub.http.content import CBOR, CBOR_SEQ, JSON, check_length, over_the_cap, read_body, wants_json
from veen_hub.http.errors import as_api_error, refuse
from veen_hub.http.keys import REQUEST_ID, hub_of
from veen_hub.hub import Hub
from veen_hub.ops.logs import LOGGER, log
from veen_hub.pipeline.body_budget import Body
from veen_hub.pipeline.intake import Outcome, Pending
from veen_hub.version import VERSION

MAX_SEQUENCE = 8 * 1_048_576
MAX_MESSAGES = 512
"""Of one sequence: whoever has more sends another."""
_RESPONSE_HEAD = bytes.fromhex("a3010102")  # {1: 1, 2: …
_RESPONSE_TAIL = b"\x03" + cbor.encode(VERSION)
ENVELOPE = 64
"""What a submit envelope adds to its MSG, generously."""


async def submit(request: web.Request) -> web.Response:
    with Body(hub_of(request).bodies) as body:
        return await _submit(request, body)


async def _submit(request: web.Request, held: Body) -> web.Response:
    started = time.perf_counter()
    hub = hub_of(request)
    try:
        difficulty = hub.pow_difficulty()
        body = await receive(hub, request, difficulty, held)
        items = unwrap(hub, request, body)
        if difficulty:
            items = worked_for(hub, request, items, difficulty)
        wires = [item for item in items if isinstance(item, bytes)]
        settled = asyncio.Event()
        pending = hub.enter(wires, settled.set) if wires else None
        if pending is not None:
            await settled.wait()
    except (AdmissionError, ApiError) as exc:
        note_refusal(hub, request[REQUEST_ID], exc, bytes_in=request.content_length or 0)
        raise
    receipts = iter(pending.settled if pending is not None else ())
    outcomes = [next(receipts) if isinstance(item, bytes) else item for item in items]
    request_id = request[REQUEST_ID]
    note(hub, request_id, items, outcomes, pending, total=time.perf_counter() - started)
    if request.content_type == CBOR_SEQ:
        return web.Response(body=b"".join(encode(o, request_id) for o in outcomes), content_type=CBOR_SEQ)
    outcome = outcomes[0]
    if isinstance(outcome, VeenError):
        return refuse(request, as_api_error(outcome))
    if wants_json(request):
        answer = SubmitResponse(receipt=outcome.receipt, server_version=VERSION)
        return web.Response(text=answer.to_json(), content_type=JSON)
    return web.Response(body=encode(outcome, request_id), content_type=CBOR)


async def receive(hub: Hub, request: web.Request, difficulty: int, held: Body) -> bytes:
    """The body, past the prefilter's rows in their order: size, address, work (§8.2, SH1+ 5.1)."""
    most = MAX_SEQUENCE if request.content_type == CBOR_SEQ else most_of_one(hub)
    if request.content_type == JSON:
        most *= 3  # hex, and room for punctuation
    check_length(request, most, over_the_cap)
    check_address(hub, request)
    if difficulty and "VEEN-PoW" not in request.headers:
        raise AdmissionError(
            PREFILTER_REJECT, f"proof of work of difficulty {difficulty} is needed: header VEEN-PoW"
        )
    timeout = hub.config.listen.request_timeout_sec
    return await read_body(request, most, timeout, over_the_cap, held.has_grown_to)


def most_of_one(hub: Hub) -> int:
    """Bytes of one envelope."""
    return hub.limits.max_msg_bytes + ENVELOPE


def unwrap(hub: Hub, request: web.Request, body: bytes) -> list[bytes | AdmissionError]:
    """The encoded MSGs of a request, and in its place the refusal of an envelope that is not one."""
    match request.content_type:
        case "application/cbor":
            return [_unwrapped(unwrap_submit, body)]
        case "application/cbor-seq":
            most = most_of_one(hub)
            return [
                _unwrapped(unwrap_submit, item)
                if len(item) <= most
                else over_the_cap(f"{len(item)} bytes exceed {most}")
                for item in split(body, min(MAX_MESSAGES, hub.config.max_waiting))
            ]
        case "application/json":
            return [_unwrapped(lambda text: SubmitRequest.from_json(text).msg.encode(), body)]
    raise ApiError(
        Code.BAD_REQUEST, f"Content-Type {request.content_type}: send {CBOR}, {CBOR_SEQ} or {JSON}"
    )


def split(body: bytes, most: int) -> list[bytes]:
    """The items of a sequence, counted while splitting: beyond ``most`` nothing is looked at."""
    try:
        items = list(itertools.islice(split_submits(body), most + 1))
    except DecodeError as exc:  # where an item ends is not known: none of them counts
        raise AdmissionError(CBOR_INVALID, str(exc)) from None
    if len(items) > most:
        raise over_the_cap(f"a sequence of more than {most} messages: send it in parts")
    return items


def _unwrapped(unwrapping: Callable[[bytes], bytes], envelope: bytes) -> bytes | AdmissionError:
    try:
        return unwrapping(envelope)
    except DecodeError as exc:
        return AdmissionError(DECODING[exc.fault], str(exc))


def worked_for(
    hub: Hub, request: web.Request, items: list[bytes | AdmissionError], difficulty: int
) -> list[bytes | AdmissionError]:
    """Each as it is, or its refusal if none of the cookies that came is its own (H13)."""
    salts = proof_of_work.accepted_salts(hub.identity.hub_id, hub.hub_ts)
    cookies: dict[bytes, PowCookie] = {}
    for header in request.headers.getall("VEEN-PoW"):
        try:
            cookie = PowCookie.decode(bytes.fromhex(header))
        except (ValueError, VeenError) as exc:
            raise AdmissionError(PREFILTER_REJECT, f"proof of work: {exc}") from None
        cookies[cookie.challenge] = cookie

    def judged(item: bytes | AdmissionError) -> bytes | AdmissionError:
        if isinstance(item, AdmissionError):
            return item
        expected = [proof_of_work.challenge(salt, item) for salt in salts]
        cookie = next((cookies[one] for one in expected if one in cookies), next(iter(cookies.values())))
        try:
            wanted = cookie.challenge if cookie.challenge in expected else expected[0]
            proof_of_work.verify_cookie(cookie, wanted, difficulty)
        except VeenError as exc:
            return AdmissionError(PREFILTER_REJECT, f"proof of work: {exc}")
        return item

    return [judged(item) for item in items]


def encode(outcome: Outcome, request_id: str) -> bytes:
    """One answer of a sequence: a response, or the error envelope in its place (H14)."""
    if isinstance(outcome, VeenError):
        return envelope_of(as_api_error(outcome), request_id).encode()
    return _RESPONSE_HEAD + outcome.receipt_bytes + _RESPONSE_TAIL  # canonical already: not encoded again


def check_address(hub: Hub, request: web.Request) -> None:
    """IP allow and deny lists (SH1+ 5.1); a denied range wins."""
    settings = hub.config.network
    if not settings.allow and not settings.deny:
        return
    address = ipaddress.ip_address(request.remote or "0.0.0.0")  # noqa: S104 - not bound to, only compared
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # a socket for both families names IPv4 clients so
    denied = any(address in ipaddress.ip_network(text) for text in settings.deny)
    allowed = not settings.allow or any(address in ipaddress.ip_network(text) for text in settings.allow)
    if denied or not allowed:
        raise AdmissionError(PREFILTER_REJECT, "this address may not submit here")


def note(
    hub: Hub,
    request_id: str,
    items: Sequence[bytes | AdmissionError],
    outcomes: list[Outcome],
    pending: Pending | None,
    *,
    total: float,
) -> None:
    """Metrics, and a log line per message (OBS0.1, OBS0.2); identifiers and sizes, never content."""
    metrics = hub.metrics
    verify = pending.verify_seconds if pending is not None else 0.0
    metrics.verify_ms.observe(verify / max(1, len(outcomes)) * 1_000)
    metrics.end_to_end_ms.observe(total * 1_000)
    accepted = sum(isinstance(outcome, Entry) for outcome in outcomes)
    if accepted:
        metrics.submit_ok.inc(accepted)
    if accepted == len(outcomes) and not LOGGER.isEnabledFor(logging.INFO):
        return
    times = {"verify_ms": round(verify * 1_000, 3), "commit_ms": round((total - verify) * 1_000, 3)}
    verdicts = iter(pending.verdicts if pending is not None else ())
    for item, outcome in zip(items, outcomes, strict=True):
        size, verdict = (len(item), next(verdicts)) if isinstance(item, bytes) else (0, None)
        if isinstance(outcome, VeenError):
            about = {"bytes_in": size, "bytes_out": len(encode(outcome, request_id))} | times
            note_refusal(hub, request_id, as_api_error(outcome), wire=item, **about)
        elif isinstance(verdict, Submission):
            _log_accepted(outcome, verdict, bytes_in=size, **times)


def note_refusal(
    hub: Hub,
    request_id: str,
    error: AdmissionError | ApiError,
    *,
    wire: bytes | AdmissionError = b"",
    **fields: float,
) -> None:
    code = error.rejection.code if isinstance(error, AdmissionError) else error.code
    hub.metrics.submit_err.labels(code.value).inc()
    row = error.rejection if isinstance(error, AdmissionError) else None
    if row is CAP_RATE:
        hub.metrics.rate_limited.inc()
    if not LOGGER.isEnabledFor(logging.INFO):
        return
    about = {"detail": row.detail} if row is not None else {}
    if row is not None and row.stage in (Stage.AUTH, Stage.COMMIT):
        about["why"] = str(error)  # of earlier stages it may quote what was sent
        about |= _whose(wire)
    log(logging.INFO, "refused", code=code.value, request_id=request_id, **about, **fields)


def _whose(wire: bytes | AdmissionError) -> dict[str, str]:
    try:
        msg = Msg.decode(wire if isinstance(wire, bytes) else b"")
    except DecodeError:
        return {}
    return {"label": msg.label.hex(), "client_id_prefix": msg.client_id.hex()[:8]}


def _log_accepted(entry: Entry, submission: Submission, **fields: float) -> None:
    log(
        logging.INFO,
        "accepted",
        label=entry.label.hex(),
        client_id_prefix=submission.client_id[:4].hex(),
        stream_seq=entry.stream_seq,
        leaf_hash_prefix=submission.leaf[:4].hex(),
        bytes_out=len(entry.receipt_bytes),
        **fields,
    )
