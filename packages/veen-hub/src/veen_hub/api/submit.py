"""``POST /v1/submit``: one envelope in and one out, or a sequence of them (§10.4.1, H14).

``SubmitCall`` holds every rule of a submit: the prefilter of §8.1 (size, address, proof of work; SH1+ 5.1,
H13), the envelopes, the reply, metrics and log. It is used in two ways. An HTTP/1.1 connection calls it
directly for a request that arrived whole, whatever its headers; the handler ``submit`` calls it for all
others, and for other transports.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
import time
from collections.abc import Callable
from typing import Final

from veen_core import cbor
from veen_core import pow as proof_of_work
from veen_core.api import SubmitRequest, SubmitResponse, envelope_of, split_submits, unwrap_submit
from veen_core.entry import Entry
from veen_core.errors import AdmissionError, ApiError, DecodeError, VeenError
from veen_core.ids import Label
from veen_core.msg import Msg
from veen_core.pow import PowCookie, PowSalt
from veen_core.rejection import CAP_RATE, CBOR_INVALID, PREFILTER_REJECT, Code, Stage
from veen_hub.admission.stateless import DECODING, Submission
from veen_hub.api.content import (
    CBOR,
    CBOR_SEQ,
    JSON,
    announced_length,
    check_body,
    check_length,
    content_type_of,
    over_the_cap,
    read_body,
    reply,
    wants_json,
)
from veen_hub.api.errors import as_api_error, refuse
from veen_hub.api.reply import Headers, Reply
from veen_hub.api.request import ApiRequest
from veen_hub.hub import Hub
from veen_hub.ops.config import Network
from veen_hub.ops.logs import LOGGER, log
from veen_hub.pipeline.failures import internal_error
from veen_hub.pipeline.pending_requests import NEWCOMERS, Outcome, PendingRequest
from veen_hub.version import VERSION

MAX_SEQUENCE_BYTES: Final = 8 * 1_048_576
MAX_SEQUENCE_MESSAGES: Final = 512
_RESPONSE_HEAD: Final = bytes.fromhex("a3010102")  # {1: 1, 2: …
_LABEL_AT: Final = slice(38, 70)
"""Where a MSG in canonical CBOR has its label: after array head, ver, profile_id and the label's head."""
_CLIENT_ID_AT: Final = slice(72, 104)
"""Where the client_id is; it follows the label."""
_RESPONSE_TAIL: Final = b"\x03" + cbor.encode(VERSION)
MAX_ENVELOPE_BYTES: Final = 64
"""Bytes that a submit envelope adds to its MSG, at most."""
JSON_FACTOR: Final = 3
"""A JSON body may be this much longer than CBOR: bytes are hex, and there is punctuation."""


async def submit(request: ApiRequest) -> Reply:
    """Handle a submit whose body may still be arriving."""
    hub = request.hub
    peer = request.peer
    call = SubmitCall(hub, request.headers, peer.remote, request.request_id, source=peer.source)
    try:
        hub.check_room(call.source)
        timeout = hub.config.listen.request_timeout_sec
        body = await read_body(request, call.check_head(), timeout, over_the_cap, call.lease.grow_to)
        settled = asyncio.Event()
        if call.enter(body, settled.set):
            await settled.wait()
        answer = call.reply()
        peer.source = call.source
    except (AdmissionError, ApiError) as exc:
        answer = call.refuse(exc)
    finally:
        call.lease.release()
    call.note()
    return answer


class SubmitCall:
    """One submit request, from its head to its reply: ``check_head``, ``enter``, ``reply``, ``note``."""

    __slots__ = (
        "_content_type",
        "_difficulty",
        "_headers",
        "_hub",
        "_items",
        "_label",
        "_outcomes",
        "_pending",
        "_remote",
        "_request_id",
        "_seconds",
        "_started",
        "lease",
        "source",
    )

    def __init__(
        self,
        hub: Hub,
        headers: Headers,
        remote: str | None,
        request_id: str,
        *,
        label: Label | None = None,
        source: bytes = NEWCOMERS,
    ) -> None:
        """``label``: the only label that messages may have, if the transport's address names one.

        ``source``: the writer whose message the hub accepted last over this connection.
        """
        self._hub = hub
        self._headers = headers
        self._content_type = content_type_of(headers)
        self._remote = remote
        self._label = label
        self._request_id = request_id
        self._difficulty = hub.status_report.pow_difficulty()
        self._items: list[bytes | AdmissionError] = []
        """The encoded MSGs, and the refusal in place of an envelope that is not valid."""
        self._pending: PendingRequest | None = None
        self._outcomes: list[Outcome] = []
        self._started = time.perf_counter()
        self._seconds = 0.0
        self.source = source
        self.lease = hub.body_budget.lease()

    def check_head(self) -> int:
        """Run the prefilter's rows that need no body, and return the most bytes the body may have (§8.2)."""
        max_bytes = MAX_SEQUENCE_BYTES if self._content_type == CBOR_SEQ else self._max_one()
        if self._content_type == JSON:
            max_bytes *= JSON_FACTOR
        check_length(self._headers, max_bytes, over_the_cap)
        check_address(self._hub.config.network, self._remote)
        if self._difficulty and "VEEN-PoW" not in self._headers:
            raise AdmissionError(
                PREFILTER_REJECT,
                f"proof of work of difficulty {self._difficulty} is required in header VEEN-PoW",
            )
        return max_bytes

    def enter(self, body: bytes, on_settled: Callable[[], None]) -> bool:
        """Send the messages of the body through the pipeline.

        Returns whether at least one entered; ``on_settled`` is called once all that entered have an outcome.
        """
        self._items = self._unwrap(body)
        if self._label is not None:
            _check_label(self._items, self._label)
        if self._difficulty:
            self._items = self._check_work()
        wires = [item for item in self._items if isinstance(item, bytes)]
        if wires:
            self._pending = self._hub.enter(wires, on_settled, self.source)
        return bool(wires)

    def run(self, body: bytes, send: Callable[[Reply], None]) -> None:
        """Carry out a submit whose body is whole; ``send`` gets the reply, perhaps later."""

        def settled() -> None:
            self.lease.release()
            try:
                answer = self.reply()
            except Exception:  # noqa: BLE001 - logged; a bug is answered too
                LOGGER.exception("answer_failed")
                answer = self.refuse(internal_error())
            send(answer)
            self.note()

        try:
            self._hub.check_room(self.source)
            check_body(body, self.check_head(), over_the_cap)
            self.lease.grow_to(len(body))
            if not self.enter(body, settled):
                settled()
        except (AdmissionError, ApiError) as exc:
            self.lease.release()
            send(self.refuse(exc))

    def reply(self) -> Reply:
        """Encode the outcomes."""
        receipts = iter(self._pending.settled if self._pending is not None else ())
        self._outcomes = [next(receipts) if isinstance(item, bytes) else item for item in self._items]
        self._seconds = time.perf_counter() - self._started
        self._note_source()
        headers = {"VEEN-Request-Id": self._request_id}
        if self._content_type == CBOR_SEQ:
            body = b"".join(encode(outcome, self._request_id) for outcome in self._outcomes)
            return Reply(200, body, CBOR_SEQ, headers)
        outcome = self._outcomes[0]
        if isinstance(outcome, VeenError):
            return refuse(self._headers, as_api_error(outcome), self._request_id)
        if wants_json(self._headers):
            answer = reply(self._headers, SubmitResponse(receipt=outcome.receipt, server_version=VERSION))
            answer.headers |= headers
            return answer
        return Reply(200, encode(outcome, self._request_id), CBOR, headers)

    def refuse(self, error: AdmissionError | ApiError) -> Reply:
        """Answer a request that did not enter the pipeline."""
        self._note_refusal(error, bytes_in=announced_length(self._headers) or 0)
        return refuse(self._headers, error, self._request_id)

    def _note_source(self) -> None:
        """From now on, the connection's messages are those of the writer whose message was accepted."""
        for outcome in self._outcomes:
            if isinstance(outcome, Entry):
                self.source = outcome.msg_bytes[_CLIENT_ID_AT]
                return

    # --- the body

    def _max_one(self) -> int:
        return self._hub.limits.max_msg_bytes + MAX_ENVELOPE_BYTES

    def _unwrap(self, body: bytes) -> list[bytes | AdmissionError]:
        match self._content_type:
            case "application/cbor":
                return [_unwrap_one(unwrap_submit, body)]
            case "application/cbor-seq":
                max_bytes = self._max_one()
                return [
                    _unwrap_one(unwrap_submit, item)
                    if len(item) <= max_bytes
                    else over_the_cap(f"{len(item)} bytes exceed {max_bytes}")
                    for item in split(body, min(MAX_SEQUENCE_MESSAGES, self._hub.config.max_waiting))
                ]
            case "application/json":
                return [_unwrap_one(lambda text: SubmitRequest.from_json(text).msg.encode(), body)]
        raise ApiError(
            Code.BAD_REQUEST,
            f"Content-Type {self._content_type} is not accepted: send {CBOR}, {CBOR_SEQ} or {JSON}",
        )

    def _check_work(self) -> list[bytes | AdmissionError]:
        """Replace each message for which the request has no valid cookie by its refusal (H13)."""
        hub = self._hub
        salts = proof_of_work.accepted_salts(hub.identity.hub_id, hub.hub_ts)
        cookies: dict[bytes, PowCookie] = {}
        for header in self._headers.getall("VEEN-PoW"):
            try:
                cookie = PowCookie.decode(bytes.fromhex(header))
            except (ValueError, VeenError) as exc:
                raise AdmissionError(PREFILTER_REJECT, f"proof of work: {exc}") from None
            cookies[cookie.challenge] = cookie
        return [
            item if isinstance(item, AdmissionError) else self._check_cookie(item, salts, cookies)
            for item in self._items
        ]

    def _check_cookie(
        self, wire: bytes, salts: tuple[PowSalt, ...], cookies: dict[bytes, PowCookie]
    ) -> bytes | AdmissionError:
        expected = [proof_of_work.challenge(salt, wire) for salt in salts]
        cookie = next((cookies[one] for one in expected if one in cookies), next(iter(cookies.values())))
        wanted = cookie.challenge if cookie.challenge in expected else expected[0]
        try:
            proof_of_work.verify_cookie(cookie, wanted, self._difficulty)
        except VeenError as exc:
            return AdmissionError(PREFILTER_REJECT, f"proof of work: {exc}")
        return wire

    # --- metrics and log

    def note(self) -> None:
        """Update metrics, and log each message at debug level: ids and sizes, never content (OBS0)."""
        pending, outcomes, metrics = self._pending, self._outcomes, self._hub.metrics
        if not outcomes:
            return
        verify = pending.verify_seconds if pending is not None else 0.0
        metrics.verify_ms.observe(verify / len(outcomes) * 1_000)
        metrics.end_to_end_ms.observe(self._seconds * 1_000)
        accepted = sum(isinstance(outcome, Entry) for outcome in outcomes)
        if accepted:
            metrics.submit_ok.inc(accepted)
        if accepted == len(outcomes) and not LOGGER.isEnabledFor(logging.DEBUG):
            return
        times = {
            "verify_ms": round(verify * 1_000, 3),
            "commit_ms": round((self._seconds - verify) * 1_000, 3),
        }
        verdicts = iter(pending.verdicts if pending is not None else ())
        for item, outcome in zip(self._items, outcomes, strict=True):
            size, verdict = (len(item), next(verdicts)) if isinstance(item, bytes) else (0, None)
            if isinstance(outcome, VeenError):
                sizes = {"bytes_in": size, "bytes_out": len(encode(outcome, self._request_id))}
                self._note_refusal(as_api_error(outcome), item, **sizes, **times)
            elif isinstance(verdict, Submission):
                _log_accepted(outcome, verdict, bytes_in=size, **times)

    def _note_refusal(
        self, error: AdmissionError | ApiError, item: bytes | AdmissionError = b"", **fields: float
    ) -> None:
        row = error.rejection if isinstance(error, AdmissionError) else None
        code = error.rejection.code if isinstance(error, AdmissionError) else error.code
        metrics = self._hub.metrics
        metrics.submit_err.labels(code.value).inc()
        if row is CAP_RATE:
            metrics.rate_limited.inc()
        if not LOGGER.isEnabledFor(logging.DEBUG):
            return
        about = {"detail": row.detail} if row is not None else {}
        if row is not None and row.stage in (Stage.AUTH, Stage.COMMIT):
            about["why"] = str(error)  # the reasons of earlier stages may quote the message
            about |= _sender_of(item)
        log(logging.DEBUG, "refused", code=code.value, request_id=self._request_id, **about, **fields)


def split(body: bytes, max_messages: int) -> list[bytes]:
    """Split a sequence into its envelopes; stops counting at ``max_messages``."""
    try:
        items = list(itertools.islice(split_submits(body), max_messages + 1))
    except DecodeError as exc:  # the end of an item is unknown, so none of them is accepted
        raise AdmissionError(CBOR_INVALID, str(exc)) from None
    if len(items) > max_messages:
        raise over_the_cap(f"a sequence may have at most {max_messages} messages: send it in parts")
    return items


def _check_label(items: list[bytes | AdmissionError], label: Label) -> None:
    """Refuse messages of another label than the address names: the right to use it may be limited.

    Bytes that are no message are left to admission, which names the fault.
    """
    for item in items:
        if isinstance(item, AdmissionError) or item[_LABEL_AT] == label:
            continue
        try:
            found = Msg.decode(item).label
        except DecodeError:
            continue
        raise ApiError(Code.BAD_REQUEST, f"a message has label {found.hex()}, the subject names another")


def _unwrap_one(unwrap: Callable[[bytes], bytes], envelope: bytes) -> bytes | AdmissionError:
    try:
        return unwrap(envelope)
    except DecodeError as exc:
        return AdmissionError(DECODING[exc.fault], str(exc))


def encode(outcome: Outcome, request_id: str) -> bytes:
    """Encode one item of a reply: a response, or the error envelope in its place (H14)."""
    if isinstance(outcome, VeenError):
        return envelope_of(as_api_error(outcome), request_id).encode()
    return (
        _RESPONSE_HEAD + outcome.receipt_bytes + _RESPONSE_TAIL
    )  # the receipt's bytes are canonical already


def check_address(network: Network, remote: str | None) -> None:
    """Refuse an address that is denied or not allowed (SH1+ 5.1); a denied range wins."""
    if not network.allow and not network.deny:
        return
    if remote is None:
        raise AdmissionError(
            PREFILTER_REJECT,
            "the client's address is not known over this transport, and this hub admits by address: use HTTP",
        )
    address = ipaddress.ip_address(remote)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # how a socket for both families reports IPv4 clients
    denied = any(address in range_ for range_ in network.deny)
    allowed = not network.allow or any(address in range_ for range_ in network.allow)
    if denied or not allowed:
        raise AdmissionError(
            PREFILTER_REJECT, "the client's address may not submit here (network in hub.yaml)"
        )


def _sender_of(item: bytes | AdmissionError) -> dict[str, str]:
    try:
        msg = Msg.decode(item if isinstance(item, bytes) else b"")
    except DecodeError:
        return {}
    return {"label": msg.label.hex(), "client_id_prefix": msg.client_id.hex()[:8]}


def _log_accepted(entry: Entry, submission: Submission, **fields: float) -> None:
    log(
        logging.DEBUG,
        "accepted",
        label=entry.label.hex(),
        client_id_prefix=submission.client_id[:4].hex(),
        stream_seq=entry.stream_seq,
        leaf_hash_prefix=submission.leaf[:4].hex(),
        bytes_out=len(entry.receipt_bytes),
        **fields,
    )
