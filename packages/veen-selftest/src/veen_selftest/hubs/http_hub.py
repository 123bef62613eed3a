"""A hub as anybody sees it: its URL, one request at a time, on a connection of its own (§10).

Nothing is believed here and nothing is tried again: whether an answer holds is for the checks to say.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar
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
from veen_core.ids import Epoch, Label, StreamId, StreamSeq
from veen_core.keys import SigningKey
from veen_core.receipt import Receipt
from veen_core.rejection import HTTP_STATUS, Rejection
from veen_core.status import AuthorizeResponse, Status, admin_digest
from veen_core.wire import Wire
from veen_hub.client import Tls
from veen_selftest.runner.check import Skip, Violation, require, same

W = TypeVar("W", bound=Wire)

CBOR: Final = "application/cbor"
CBOR_SEQ: Final = "application/cbor-seq"
JSON: Final = "application/json"
TIMEOUT: Final = 30.0
"""Seconds without a byte after which a hub does not answer."""
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
"""Rows that may refuse a check's good messages, with the words by which a hub announces that it does."""
COOKIES: Final = 64
"""Proofs of work in one request: each is a header."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def read(self, kind: type[W]) -> W:
        """The body as the envelope it must be, canonical (§10.4, B3)."""
        if self.status != 200:
            raise Violation(f"want a {kind.codec.name}, found status {self.status}: {self.words}")
        return self._decode(kind)

    @property
    def error(self) -> ErrorEnvelope:
        require(self.status >= 400, f"want a refusal, found status {self.status}")
        return self._decode(ErrorEnvelope)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def _decode(self, kind: type[W]) -> W:
        found = self.headers.get("content-type", "").split(";", maxsplit=1)[0]
        require(found in (CBOR, JSON), f"want {CBOR} or {JSON}, found Content-Type {found!r}")
        return kind.from_json(self.body) if found == JSON else kind.decode(self.body)

    @property
    def words(self) -> str:
        """Of a refusal, for a person."""
        with contextlib.suppress(DecodeError, Violation):
            error = self._decode(ErrorEnvelope)
            detail = f" / {error.detail.detail_enum}" if error.detail and error.detail.detail_enum else ""
            return f"{error.code}{detail}: {error.message}"
        return f"{len(self.body)} bytes that are no error envelope (§10.6)"


def refused_by(row: Rejection, answer: Answer) -> None:
    """Exactly this row of the table, with everything that §8.2, §10.6 and H1 say of it."""
    require(answer.status != 200, f"accepted what {row.detail} refuses: {row.means}")
    error = answer.error
    found = error.detail.detail_enum if error.detail is not None else None
    same(found, row.detail, f"detail_enum ({error.message})")
    same(error.code, row.code.value, f"code of {row.detail}")
    same(error.detail.stage if error.detail is not None else None, row.stage, f"stage of {row.detail}")
    same(answer.status, HTTP_STATUS[row.code], f"HTTP status of {row.detail} (H1)")


class Hub:
    """One hub at one address; ``admin`` is the key whose tokens and orders it takes, if at hand."""

    def __init__(
        self, url: str, admin: SigningKey | None = None, tls: Tls | None = None, *, others: bool = False
    ) -> None:
        self.url = url.rstrip("/")
        self.others = others
        """Whether somebody else chose its settings."""
        self.admin = admin
        self.tls = tls
        self._parts = urlsplit(self.url)
        self.prefix = self._parts.path
        """What the hub's paths begin with, behind a proxy that serves it below a folder."""
        self._stamp = 0

    # --- requests

    @property
    def address(self) -> tuple[str, int]:
        default = 443 if self._parts.scheme == "https" else 80
        return self._parts.hostname or "127.0.0.1", self._parts.port or default

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        return (self.tls or Tls()).context() if self._parts.scheme == "https" else None

    def connection(self, timeout: float = TIMEOUT) -> http.client.HTTPConnection:
        if self.context is not None:
            return http.client.HTTPSConnection(*self.address, timeout=timeout, context=self.context)
        return http.client.HTTPConnection(*self.address, timeout=timeout)

    def probes_connection(self) -> http.client.HTTPConnection:
        """Connect to the listener of /readyz and /metrics: the port after the API's, or else the API's."""
        host, port = self.address
        connection = http.client.HTTPConnection(host, port + 1, timeout=TIMEOUT)
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
    ) -> Answer:
        """A header with several values is sent once for each; as many bytes are announced as are there."""
        announced = {"Content-Length": str(len(body))} if method != "GET" else {}
        probes = path in ("/readyz", "/metrics")
        with contextlib.closing(self.probes_connection() if probes else self.connection()) as connection:
            connection.putrequest(method, path if probes else self.prefix + path)
            for name, values in {**announced, **(headers or {})}.items():
                for value in [values] if isinstance(values, str) else values:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            answer = Answer(response.status, found, response.read())
        if path == "/v1/submit" and (answer.status != 200 or found.get("content-type") == CBOR_SEQ):
            self.excuse(answer.body)
        return answer

    def excuse(self, refusal: bytes) -> None:
        """Another's hub is not blamed for refusing by a row that it announced (``status.enforces``)."""
        for row, (announced, remedy) in ANNOUNCED.items() if self.others else ():
            if row.detail.encode() in refusal and any(announced in words for words in self.known.enforces):
                raise Skip(f"this hub announces that it enforces {announced}, and refuses by that: {remedy}")

    def post(
        self, path: str, body: Wire | bytes, kind: str = CBOR, *, work: Iterable[bytes] = (), **headers: str
    ) -> Answer:
        """As keywords, headers have an underscore for each dash; ``work`` are messages to do it for."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes) else body.encode()
        return self.call("POST", path, content, {"Content-Type": kind, **self.worked(work), **named})

    def get(self, path: str, **headers: str) -> Answer:
        return self.call(
            "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )

    def ask(self, path: str, question: Wire, kind: type[W]) -> W:
        return self.post(path, question).read(kind)

    # --- what it says of itself

    def status(self) -> Status:
        return self.get("/v1/status").read(Status)

    @cached_property
    def known(self) -> Status:
        """As it was at first; identity, profile, limits and gating do not change while it runs."""
        return self.status()

    def label(self, stream_id: StreamId, epoch: int | None = None) -> Label:
        """Of the current epoch, unless another is named (§2)."""
        when = self.status().epoch if epoch is None and self.known.profile.epoch_sec else epoch or 0
        return stream.label(stream.routing_key(self.known.identity.hub_id), stream_id, Epoch(when))

    def rate(self, per_sec: int, burst: int) -> Rate:
        """One that a token may name here: a hub may have lower limits (§14.1)."""
        limits = self.known.limits
        return Rate(
            per_sec=min(per_sec, limits.max_cap_rate_per_sec), burst=min(burst, limits.max_cap_rate_burst)
        )

    # --- submitting

    def cookie(self, wire: bytes, less: int = 0) -> str:
        """Proof of work for one message, or ``less`` of it than is asked for (H13)."""
        status = self.status()
        challenge = proof_of_work.challenge(status.pow_salt, wire)
        return proof_of_work.solve(challenge, max(0, status.pow_difficulty - less)).encode().hex()

    def worked(self, wires: Iterable[bytes]) -> dict[str, list[str]]:
        """The header with a cookie for each, if the hub asks for that."""
        return {"VEEN-PoW": [self.cookie(wire) for wire in wires]} if self.known.pow_difficulty else {}

    def submit(self, wire: bytes, **headers: str) -> Answer:
        return self.post("/v1/submit", wrap_submit(wire), work=[wire], **headers)

    def accept(self, wire: bytes) -> Receipt:
        return self.submit(wire).read(SubmitResponse).receipt

    def submit_many(self, wires: Sequence[bytes]) -> list[Receipt | ErrorEnvelope]:
        """One request with all of them; an outcome each, in order (H14)."""
        if self.known.pow_difficulty and len(wires) > COOKIES:
            return [*self.submit_many(wires[:COOKIES]), *self.submit_many(wires[COOKIES:])]
        answer = self.post("/v1/submit", b"".join(map(wrap_submit, wires)), CBOR_SEQ, work=wires)
        require(answer.status == 200, f"a sequence was answered with {answer.status}")
        same(answer.headers.get("content-type"), CBOR_SEQ, "Content-Type of a sequence (H14)")
        outcomes = [outcome_of(item) for item in cbor.split_sequence(answer.body)]
        same(len(outcomes), len(wires), "answers to a sequence (H14)")
        return outcomes

    def accept_many(self, wires: Sequence[bytes], together: int = 256) -> list[Receipt]:
        receipts: list[Receipt] = []
        for start in range(0, len(wires), together):
            for outcome in self.submit_many(wires[start : start + together]):
                if isinstance(outcome, ErrorEnvelope):
                    raise Violation(f"a good message was refused: {outcome.code}: {outcome.message}")
                receipts.append(outcome)
        return receipts

    # --- reading

    def page(self, label: Label, start: int = 1, **asked: Any) -> StreamResponse:
        question = StreamRequest(label=label, from_seq=StreamSeq(start), with_receipts=True, **asked)
        return self.ask("/v1/stream", question, StreamResponse)

    def read_all(self, label: Label, start: int = 1) -> Iterator[StreamItem]:
        """Every entry by pages, as §10.5 says to go on."""
        cursor: int | None = start
        while cursor is not None:
            page = self.page(label, 1, cursor=StreamSeq(cursor))
            yield from page.items
            require(
                page.next_cursor is None or page.next_cursor > cursor,
                f"next_cursor {page.next_cursor} does not go on from {cursor} (§10.5)",
            )
            cursor = page.next_cursor

    # --- tooling

    def authorize(self, token: CapToken) -> AuthorizeResponse:
        return self.post("/tooling/authorize", token).read(AuthorizeResponse)

    def order(self, path: str, body: bytes = b"") -> Answer:
        """A request signed by the admin; a signature counts once, so its time is never used twice (H19)."""
        if self.admin is None:
            raise Skip("it takes an order signed by the hub's admin: give --admin-key")
        self._stamp = max(self._stamp + 1, self.status().hub_ts)
        return self.call("POST", path, body, self.signed(path, body, self._stamp, self.admin))

    def signed(self, path: str, body: bytes, at: int, by: SigningKey) -> dict[str, str]:
        signature = by.sign(admin_digest(self.status().identity.hub_id, "POST", path, body, at))  # type: ignore[arg-type]  # a UnixTime
        return {"Content-Type": CBOR, "VEEN-Admin-Ts": str(at), "VEEN-Admin-Sig": signature.hex()}


def outcome_of(item: bytes) -> Receipt | ErrorEnvelope:
    """One item of the answer to a sequence (H14)."""
    try:
        return SubmitResponse.decode(item).receipt
    except DecodeError:
        return ErrorEnvelope.decode(item)
