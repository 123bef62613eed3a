"""A hub as any client sees it: a URL, and one request at a time, each on its own connection (§10).

Nothing is verified or retried here; the checks verify the responses.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import urlsplit

from veen_core import cbor, rejection, stream
from veen_core import pow as proof_of_work
from veen_core.api import (
    ErrorEnvelope,
    StreamItem,
    StreamRequest,
    StreamResponse,
    SubmitResponse,
    wrap_submit,
)
from veen_core.cap import CapToken, Rate
from veen_core.errors import DecodeError
from veen_core.ids import Epoch, HubId, Label, StreamId, StreamSeq, UnixTime
from veen_core.keys import SigningKey
from veen_core.receipt import Receipt
from veen_core.rejection import HTTP_STATUS, Rejection
from veen_core.status import AuthorizeResponse, Status, admin_digest
from veen_core.wire import Wire
from veen_hub.client import Tls
from veen_selftest.hubs.other_transport import OtherTransport, is_other_transport
from veen_selftest.runner.check import ClauseViolation, Skip, require, require_equal

W = TypeVar("W", bound=Wire)

CBOR: Final = "application/cbor"
CBOR_SEQ: Final = "application/cbor-seq"
JSON: Final = "application/json"
MAX_SILENCE_SECONDS: Final = 30.0
"""Seconds without a byte after which the hub counts as silent."""
ANNOUNCED: Final = {
    rejection.CLIENT_BOUNDS: (
        "client key bounds",
        "raise client_keys in its hub.yaml for the run (KEX1+ 4.1)",
    ),
    rejection.PADDING: (
        "padding",
        "take the selftest's streams out of its label classes for the run (LCLASS0)",
    ),
}
"""Rows that may refuse a check's valid messages: the words that announce them in the status, and a remedy."""
SECOND_ADDRESS: Final = "127.0.0.2"
"""Address of the second client of a hub at 127.0.0.1."""
MAX_COOKIES: Final = 64
"""Proofs of work per request; each is one header."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response of the hub."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def read(self, kind: type[W]) -> W:
        """Decode the body of a 200 response, which must be canonical (core §10.4, B3)."""
        if self.status != 200:
            raise ClauseViolation(f"expected a {kind.codec.name}, found status {self.status}: {self.reason}")
        return self._decode(kind)

    @property
    def error(self) -> ErrorEnvelope:
        """The error envelope of a refusal."""
        require(self.status >= 400, f"expected a refusal, found status {self.status}")
        return self._decode(ErrorEnvelope)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def _decode(self, kind: type[W]) -> W:
        found = self.headers.get("content-type", "").split(";", maxsplit=1)[0]
        require(found in (CBOR, JSON), f"expected {CBOR} or {JSON}, found Content-Type {found!r}")
        return kind.from_json(self.body) if found == JSON else kind.decode(self.body)

    @property
    def reason(self) -> str:
        """The reason of a refusal, as text."""
        with contextlib.suppress(DecodeError, ClauseViolation):
            error = self._decode(ErrorEnvelope)
            detail = f" / {error.detail.detail_enum}" if error.detail and error.detail.detail_enum else ""
            return f"{error.code}{detail}: {error.message}"
        return f"{len(self.body)} bytes that are not an error envelope (core §10.6)"


def require_refused_by(row: Rejection, answer: HttpResponse) -> None:
    """Require a refusal by exactly this row: detail, code, stage and HTTP status (core §8.2, §10.6, H1)."""
    require(answer.status != 200, f"the hub accepted what {row.detail} refuses: {row.means}")
    error = answer.error
    found = error.detail.detail_enum if error.detail is not None else None
    require_equal(found, row.detail, f"detail_enum ({error.message})")
    require_equal(error.code, row.code.value, f"code of {row.detail}")
    require_equal(
        error.detail.stage if error.detail is not None else None, row.stage, f"stage of {row.detail}"
    )
    require_equal(answer.status, HTTP_STATUS[row.code], f"HTTP status of {row.detail} (H1)")


class HttpHub:
    """One hub at one address. ``admin`` is the key of its admin, if known."""

    _admin_stamps: ClassVar[dict[HubId, int]] = {}
    """Time of the newest admin request per hub. A copy of a hub has the replay guard of its original."""

    def __init__(
        self,
        url: str,
        admin: SigningKey | None = None,
        tls: Tls | None = None,
        *,
        foreign: bool = False,
        probes_url: str | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.probes_url = probes_url
        """Address of /readyz and /metrics; None if it is not known."""
        self.foreign = foreign
        """Whether the hub was configured by its operator, not by the selftest."""
        self.admin = admin
        self.tls = tls
        self._source: tuple[str, int] | None = None
        self._agent: dict[str, str] = {}
        self._parts = urlsplit(self.url)
        self.other_transport = (
            OtherTransport(self.url, tls, MAX_SILENCE_SECONDS) if is_other_transport(self.url) else None
        )
        """Another transport than HTTP/1.1, if the address names one."""
        self.prefix = self._parts.path
        """Path prefix, if a proxy serves the hub below a folder."""

    def second_client(self) -> HttpHub:
        """Return the hub as another client: with a User-Agent and, on one machine, another address."""
        other = HttpHub(self.url, self.admin, self.tls, foreign=self.foreign, probes_url=self.probes_url)
        other._agent = {"User-Agent": "veen-selftest second client"}
        if self.address[0] == "127.0.0.1" and _is_local(SECOND_ADDRESS):
            other._source = (SECOND_ADDRESS, 0)
        return other

    # --- requests

    @property
    def address(self) -> tuple[str, int]:
        default = 443 if self._parts.scheme == "https" else 80
        return self._parts.hostname or "127.0.0.1", self._parts.port or default

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        return (self.tls or Tls()).context() if self._parts.scheme == "https" else None

    def connection(self, timeout: float = MAX_SILENCE_SECONDS) -> http.client.HTTPConnection:
        if self.context is not None:
            return http.client.HTTPSConnection(
                *self.address, timeout=timeout, context=self.context, source_address=self._source
            )
        return http.client.HTTPConnection(*self.address, timeout=timeout, source_address=self._source)

    @property
    def carries_attachments(self) -> bool:
        """Whether attachments travel over this transport: NATS has single messages only (DR0)."""
        return self._parts.scheme not in ("nats", "tls")

    def probes_connection(self) -> http.client.HTTPConnection:
        """Connect to the listener of /readyz and /metrics.

        If its address is not known, try the port after the API's (the default), then the API's own.
        """
        host, port = self.address
        probes = urlsplit(self.probes_url or f"http://{host}:{port + 1}")
        connection = http.client.HTTPConnection(
            probes.hostname or host, probes.port, timeout=MAX_SILENCE_SECONDS
        )
        try:
            connection.connect()
        except OSError:
            return self.connection()
        return connection

    def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str | Sequence[str]] | None = None,
    ) -> HttpResponse:
        """Send a request; a header with several values is sent once per value."""
        answer = self._answer(method, path, body, headers or {})
        sequence = answer.headers.get("content-type") == CBOR_SEQ
        if path == "/v1/submit" and (answer.status != 200 or sequence):
            self.skip_if_announced(answer.body)
        return answer

    def _answer(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str | Sequence[str]]
    ) -> HttpResponse:
        announced = {"Content-Length": str(len(body))} if method != "GET" else {}
        probes = path in ("/readyz", "/metrics")
        if self.other_transport is not None and not probes:
            found = self.other_transport.exchange(method, path, body, {**self._agent, **headers})
            return HttpResponse(found.status, found.headers, found.body)
        if self.other_transport is not None and self.probes_url is None:
            return HttpResponse(404, {}, b"")  # the probes are served only at their own address
        with contextlib.closing(self.probes_connection() if probes else self.connection()) as connection:
            connection.putrequest(method, path if probes else self.prefix + path)
            for name, values in {**self._agent, **announced, **headers}.items():
                for value in [values] if isinstance(values, str) else values:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return HttpResponse(response.status, named, response.read())

    def probe(self, path: str) -> HttpResponse | None:
        """GET /readyz or /metrics; None if a running hub serves them at an address that is not known."""
        answer = self.get(path)
        return None if self.foreign and self.probes_url is None and answer.status == 404 else answer

    def skip_if_announced(self, refusal: bytes) -> None:
        """Skip the check if a running hub refuses by a row that its status announces (``enforces``)."""
        for row, (announced, remedy) in ANNOUNCED.items() if self.foreign else ():
            if row.detail.encode() in refusal and any(announced in words for words in self.known.enforces):
                raise Skip(f"the hub enforces {announced}, as its status announces: {remedy}")

    def post(
        self, path: str, body: Wire | bytes, kind: str = CBOR, *, work: Iterable[bytes] = (), **headers: str
    ) -> HttpResponse:
        """POST a body. Keyword headers have underscores for dashes. ``work``: messages that need a cookie."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes) else body.encode()
        return self.call("POST", path, content, {"Content-Type": kind, **self.pow_headers(work), **named})

    def get(self, path: str, **headers: str) -> HttpResponse:
        return self.call(
            "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )

    def ask(self, path: str, question: Wire, kind: type[W]) -> W:
        return self.post(path, question).read(kind)

    # --- status

    def status(self) -> Status:
        return self.get("/v1/status").read(Status)

    @cached_property
    def known(self) -> Status:
        """The first status; identity, profile, limits and gating do not change while the hub runs."""
        return self.status()

    def label(self, stream_id: StreamId, epoch: int | None = None) -> Label:
        """Return the label of a stream, by default of the current epoch (core §2)."""
        when = self.status().epoch if epoch is None and self.known.profile.epoch_sec else epoch or 0
        return stream.label(stream.routing_key(self.known.identity.hub_id), stream_id, Epoch(when))

    def rate(self, per_sec: int, burst: int) -> Rate:
        """Return a rate within this hub's limits (core §14.1)."""
        limits = self.known.limits
        return Rate(
            per_sec=min(per_sec, limits.max_cap_rate_per_sec), burst=min(burst, limits.max_cap_rate_burst)
        )

    # --- submitting

    def cookie(self, wire: bytes, less: int = 0) -> str:
        """Solve the proof of work for a message, ``less`` bits below the difficulty (H13)."""
        status = self.status()
        challenge = proof_of_work.challenge(status.pow_salt, wire)
        return proof_of_work.solve(challenge, max(0, status.pow_difficulty - less)).encode().hex()

    def pow_headers(self, wires: Iterable[bytes]) -> dict[str, list[str]]:
        """Return the header with a cookie per message, if the hub asks for work."""
        return {"VEEN-PoW": [self.cookie(wire) for wire in wires]} if self.known.pow_difficulty else {}

    def submit(self, wire: bytes, **headers: str) -> HttpResponse:
        return self.post("/v1/submit", wrap_submit(wire), work=[wire], **headers)

    def accept(self, wire: bytes) -> Receipt:
        return self.submit(wire).read(SubmitResponse).receipt

    def submit_many(self, wires: Sequence[bytes]) -> list[Receipt | ErrorEnvelope]:
        """Submit messages in one request; returns an outcome for each, in order (H14)."""
        if self.known.pow_difficulty and len(wires) > MAX_COOKIES:
            return [*self.submit_many(wires[:MAX_COOKIES]), *self.submit_many(wires[MAX_COOKIES:])]
        answer = self.post("/v1/submit", b"".join(map(wrap_submit, wires)), CBOR_SEQ, work=wires)
        require(answer.status == 200, f"a sequence was answered with status {answer.status}")
        require_equal(answer.headers.get("content-type"), CBOR_SEQ, "Content-Type of a sequence (H14)")
        outcomes = [outcome_of(item) for item in cbor.split_sequence(answer.body)]
        require_equal(len(outcomes), len(wires), "answers to a sequence (H14)")
        return outcomes

    def accept_many(self, wires: Sequence[bytes], per_request: int = 256) -> list[Receipt]:
        receipts: list[Receipt] = []
        for start in range(0, len(wires), per_request):
            for outcome in self.submit_many(wires[start : start + per_request]):
                if isinstance(outcome, ErrorEnvelope):
                    raise ClauseViolation(f"a valid message was refused: {outcome.code}: {outcome.message}")
                receipts.append(outcome)
        return receipts

    # --- reading

    def page(self, label: Label, start: int = 1, **asked: Any) -> StreamResponse:
        question = StreamRequest(label=label, from_seq=StreamSeq(start), with_receipts=True, **asked)
        return self.ask("/v1/stream", question, StreamResponse)

    def read_all(self, label: Label, start: int = 1) -> Iterator[StreamItem]:
        """Yield every entry, page by page, by next_cursor (core §10.5)."""
        cursor: int | None = start
        while cursor is not None:
            page = self.page(label, 1, cursor=StreamSeq(cursor))
            yield from page.items
            require(
                page.next_cursor is None or page.next_cursor > cursor,
                f"next_cursor {page.next_cursor} is not after {cursor} (core §10.5)",
            )
            cursor = page.next_cursor

    # --- tooling

    def authorize(self, token: CapToken) -> AuthorizeResponse:
        return self.post("/tooling/authorize", token).read(AuthorizeResponse)

    def admin_post(self, path: str, body: bytes = b"") -> HttpResponse:
        """Send a request signed by the admin, with a fresh time: a signature is valid once (H19)."""
        if self.admin is None:
            raise Skip("needs a request signed by the hub's admin: give --admin-key")
        hub_id = self.known.identity.hub_id
        stamp = max(self._admin_stamps.get(hub_id, 0) + 1, self.status().hub_ts)
        self._admin_stamps[hub_id] = stamp
        return self.call("POST", path, body, self.signed(path, body, stamp, self.admin))

    def signed(
        self, path: str, body: bytes, at: int, by: SigningKey, hub_id: HubId | None = None
    ) -> dict[str, str]:
        """Return the headers of an admin request, by default signed for this hub (H19)."""
        named = hub_id or self.known.identity.hub_id
        signature = by.sign(admin_digest(named, "POST", path, body, UnixTime(at)))
        return {"Content-Type": CBOR, "VEEN-Admin-Ts": str(at), "VEEN-Admin-Sig": signature.hex()}


def _is_local(address: str) -> bool:
    """Return whether this machine has an address; not every system has all of 127.0.0.0/8."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind((address, 0))
        return True
    return False


def outcome_of(item: bytes) -> Receipt | ErrorEnvelope:
    """Decode one item of the answer to a sequence (H14)."""
    try:
        return SubmitResponse.decode(item).receipt
    except DecodeError:
        return ErrorEnvelope.decode(item)
