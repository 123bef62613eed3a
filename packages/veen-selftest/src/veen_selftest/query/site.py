"""A gated hub with recorder events, and a query service over it, as an operator runs them."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from veen_core.cap import mint
from veen_core.ids import HubId
from veen_core.stream import stream_id
from veen_hub.client import Identity, connect
from veen_overlays.recorder.records import RecordEvent, UnixMilliseconds
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.operator import Operator
from veen_selftest.hubs.server_process import ServerProcess
from veen_selftest.runner.check import ClauseViolation, Skip
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HUB_LOG

STREAM: Final = "record/selftest/http"
REQUESTS, RESULTS = "record/query/requests", "record/query/results"
ACCESSES: Final = "record/query/audit/access"
TOKENS: Final = {"auditor": "veenq_selftest-auditor", "other": "veenq_selftest-other"}
PROGRAM: tuple[str, ...] = (sys.executable, "-P", "-c", "from veen_cli.query.serve import main; main()")
"""The program under test; the tests of the suite plant faults in it."""
TIMEOUT_SECONDS: Final = 60
TTL_SECONDS: Final = 3_600


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer of the service."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class QuerySite(Operator):
    """A hub, a service identity with tokens for its record streams, and the service's process."""

    def __init__(self, root: Path, hub: HttpHub) -> None:
        super().__init__(root)
        self.hub = hub
        self.service_id = Identity.generate()
        self.writer = Identity.generate()
        self._process = ServerProcess("the query service", PROGRAM, root / "query.log")
        self.url = ""
        self._write_keys()

    @property
    def hub_id(self) -> HubId:
        return self.hub.known.identity.hub_id

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of commands that read the streams with the service's keys."""
        return ("--hub", self.hub.url, "--trust", self.hub_id.hex(), "--client", "service")

    def _write_keys(self) -> None:
        assert self.hub.admin is not None  # the selftest started the hub
        self.veen("keygen", "--out", "service", "--no-passphrase", "-q")
        self.service_id = Identity.load(self.root / "service")
        streams = [stream_id(name) for name in (REQUESTS, RESULTS, ACCESSES)]
        token = mint(self.hub.admin, self.service_id.client_id, streams, TTL_SECONDS)
        (self.root / "service.cap").write_bytes(token.encode())
        principals = [
            {
                "name": name,
                "identity": bytes([number] * 32).hex(),
                "tokens": [sha256(token.encode()).hexdigest()],
                "streams": [STREAM] if name == "auditor" else ["record/other/*"],
            }
            for number, (name, token) in enumerate(TOKENS.items(), 1)
        ]
        settings = {
            "hub": {"url": self.hub.url, "trust": self.hub_id.hex()},
            "client": "service",
            "tokens": ["service.cap"],
            "streams": [STREAM],
            "principals": principals,
            "listen": {"port": 0},
            "probes": {"port": 0},
        }
        (self.root / "query.yaml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is valid YAML

    # --- what people do

    def emit(self, numbers: Sequence[int]) -> None:
        """Record events, as an application does."""

        async def work() -> None:
            trust, state = self.hub_id.hex(), self.root / "writer"
            async with connect(self.hub.url, self.writer, trust=trust, state=state) as hub:
                assert self.hub.admin is not None
                token = mint(self.hub.admin, self.writer.client_id, [stream_id(STREAM)], TTL_SECONDS)
                await hub.authorize(token)
                events = [self.event(number) for number in numbers]
                async for _ in hub.stream(STREAM, to=self.service_id.recipient).send_many(events):
                    pass

        asyncio.run(work())

    def event(self, number: int) -> RecordEvent:
        return RecordEvent(
            subject_id=f"user:{number % 3}",
            principal_id=self.writer.client_id,
            event_type="login",
            event_time=UnixMilliseconds(number),
            origin="selftest",
            payload={"number": number},
        )

    def start(self) -> None:
        """Start the service."""
        line = self._process.start(
            "veen-query listening on ", "--config", str(self.root / "query.yaml"), "--log-level", "warning"
        )
        self.url = line.partition(", probes on ")[0]

    def kill(self) -> None:
        self._process.kill()

    def ask(self, path: str, body: object = None, who: str | None = "auditor") -> HttpAnswer:
        """Send a request to the service."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data)  # noqa: S310 - the service's own address
        request.add_header("Content-Type", "application/json")
        if who is not None:
            request.add_header("Authorization", f"Bearer {TOKENS[who]}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - as above
                return HttpAnswer(answer.status, answer.read())
        except urllib.error.HTTPError as refused:
            with refused:
                return HttpAnswer(refused.code, refused.read())

    def submit(self, **changes: Any) -> str:
        """Submit a query and return its result_id."""
        answer = self.ask("/api/query/submit", query(**changes))
        if answer.status != 202:
            raise ClauseViolation(f"a valid query is answered with {answer.status}: {answer.body[:200]!r}")
        found: str = answer.json["result_id"]
        return found

    def completed(self, **changes: Any) -> str:
        """Submit a query and wait until it is completed."""
        name = self.submit(**changes)
        self.wait(name)
        return name

    def wait(self, name: str) -> None:
        state = self.ask(f"/api/query/status/{name}?wait=30").json
        if state.get("status") != "completed":
            raise ClauseViolation(f"a query of 20 events ends as {state}")

    def file(self, name: str) -> Path:
        """Fetch the result file."""
        path = self.root / f"{name}.veenq"
        path.write_bytes(self.ask(f"/api/query/evidence/{name}").body)
        return path

    def bodies(self, stream: str) -> list[bytes]:
        """Read and open the messages of a stream with the service's keys."""

        async def work() -> list[bytes]:
            async with connect(self.hub.url, self.service_id, trust=self.hub_id.hex()) as hub:
                return [message.body async for message in hub.stream(stream).read() if message.body]

        return asyncio.run(work())

    def payloads(self, stream: str) -> list[Any]:
        """The JSON payloads of the service's records in a stream."""
        return [json.loads(RecordEvent.decode(body).payload) for body in self.bodies(stream)]


def query(**changes: Any) -> dict[str, Any]:
    """Return a descriptor of one subject's events, with full evidence."""
    return {
        "scope": [STREAM],
        "filter": {"subject_id": "user:1"},
        "projection": ["payload.number", "receipt_id"],
        "evidence": {"mode": "full"},
    } | changes


def require_extra() -> None:
    """Skip where the libraries of the extra ``query`` are missing."""
    if find_spec("duckdb") is None or find_spec("pyarrow") is None:
        raise Skip("needs veen-selftest[query], which brings DuckDB and Arrow")


@contextmanager
def query_site(context: CheckContext) -> Iterator[QuerySite]:
    """Start a hub with 20 events and a service; stop both at the end."""
    require_extra()
    with (
        tempfile.TemporaryDirectory(prefix="veen-selftest-query-") as folder,
        context.own_hub(HUB_LOG).running() as hub,
    ):
        site = QuerySite(Path(folder), hub)
        site.emit(range(20))
        try:
            site.start()
            yield site
        finally:
            site.kill()
