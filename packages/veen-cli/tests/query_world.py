"""A real hub with recorder events, and a real query service process that reads them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from veen_hub.client import Identity, connect
from veen_overlays.live.query_service.principals import hash_of_token
from veen_overlays.recorder.records import QueryAudit, RecordEvent, UnixMilliseconds

from .running import SCRIPTS, environment, veen

STREAM = "record/app/http"
REQUESTS, RESULTS = "record/query/requests", "record/query/results"
ACCESSES = "record/query/audit/access"
AUDITOR, OPERATOR = "veenq_auditor-token", "veenq_operator-token"
VICTIM = Path(__file__).parent / "query_victim.py"


def event(who: Identity, number: int) -> RecordEvent:
    failed = number % 3 != 0
    return RecordEvent(
        subject_id=f"user:{number % 5}",
        principal_id=who.client_id,
        event_type="login.failed" if failed else "login.ok",
        event_time=UnixMilliseconds(1_763_400_000_000 + 1_000 * number),
        origin="api-1",
        payload={"status": 401 if failed else 200, "path": f"/p/{number % 4}", "number": number},
    )


def emit(root: Path, url: str, hub_id: str, numbers: Sequence[int], stream: str = STREAM) -> list[bytes]:
    """Record events that the service can open; return their receipts."""

    async def work() -> list[bytes]:
        alice, reader = Identity.load(root / "alice"), Identity.load(root / "service")
        async with connect(url, alice, trust=hub_id, state=root / "alice/state") as hub:
            sent = hub.stream(stream, to=reader.recipient).send_many(event(alice, n) for n in numbers)
            return [receipt.encode() async for receipt in sent]

    return asyncio.run(work())


@dataclass
class Answered:
    """The answer to one HTTP request."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Service:
    """A ``veen-query`` process."""

    process: subprocess.Popen[str]
    url: str
    probes: str
    log: Path

    def ask(self, path: str, body: Any = None, *, token: str | None = AUDITOR, **headers: str) -> Answered:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return Answered(answer.status, answer.read(), dict(answer.headers))
        except urllib.error.HTTPError as refused:
            with refused:
                return Answered(refused.code, refused.read(), dict(refused.headers))

    def completed(self, item: dict[str, Any], **options: Any) -> str:
        """Submit a query, wait until it is completed, and return its result_id."""
        accepted = self.ask("/api/query/submit", item, **options)
        assert accepted.status == 202, accepted.body
        name: str = accepted.json["result_id"]
        state = self.wait(name, **options)
        assert state["status"] == "completed", state
        return name

    def wait(self, name: str, **options: Any) -> Any:
        return self.ask(f"/api/query/status/{name}?wait=30", **options).json

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@dataclass
class World:
    """A hub with 60 events, the identities, and the services that were started."""

    root: Path
    url: str
    hub_id: str
    receipts: list[bytes] = field(default_factory=list)
    started: list[Service] = field(default_factory=list)

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--hub", self.url, "--trust", self.hub_id, "--client", str(self.root / "service"))

    def config(self, name: str = "query", **changes: Any) -> Path:
        """Write a configuration file; JSON is valid YAML."""
        settings: dict[str, Any] = {
            "hub": {"url": self.url, "trust": self.hub_id},
            "client": "service",
            "streams": [STREAM, REQUESTS, RESULTS, "record/other"],
            "state": f"{name}-state",
            "listen": {"port": 0},
            "probes": {"port": 0},
            "principals": [
                {
                    "name": "auditor",
                    "identity": "aa" * 32,
                    "tokens": [hash_of_token(AUDITOR).hex()],
                    "streams": ["record/app/*"],
                },
                {
                    "name": "operator",
                    "identity": "bb" * 32,
                    "tokens": [hash_of_token(OPERATOR).hex()],
                    "streams": ["*"],
                    "results": "all",
                    "limits": {"max_rows": 5, "max_page_rows": 2},
                },
            ],
        }
        path = self.root / f"{name}.yaml"
        path.write_text(json.dumps(settings | changes))
        return path

    def serve(self, config: Path, *, die_at: int | None = None, rebuild: bool = False) -> Service:
        """Start the service; with ``die_at`` it kills itself at that durable step."""
        program = [SCRIPTS / "veen-query"] if die_at is None else [sys.executable, VICTIM, str(die_at)]
        log = config.with_suffix(".log")
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [*program, "--config", config, "--json", *(["--rebuild"] if rebuild else [])],
                env=environment(self.root / ".config"),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()[-2_000:]
        said = json.loads(line)
        service = Service(process, said["url"], said["probes_url"], log)
        self.started.append(service)
        return service

    def accesses(self) -> list[QueryAudit]:
        """Return the audit records of all services."""
        return [QueryAudit.decode(body) for body in self._bodies(ACCESSES)]

    def recorded(self, stream: str, matches: Callable[[RecordEvent], bool]) -> list[RecordEvent]:
        """Return the events of a stream that match."""

        return [event for event in map(RecordEvent.decode, self._bodies(stream)) if matches(event)]

    def _bodies(self, stream: str) -> list[bytes]:
        async def work() -> list[bytes]:
            service = Identity.load(self.root / "service")
            async with connect(self.url, service, trust=self.hub_id) as hub:
                return [message.body async for message in hub.stream(stream).read() if message.body]

        return asyncio.run(work())


def make_world(root: Path) -> World:
    for name in ("admin", "alice", "service"):
        veen("keygen", "--out", root / name, "--no-passphrase").ok()
    data = ("--data-dir", root / "hub")
    made = veen("hub", "init", *data, "--admin", root / "admin", "--json").json
    started = veen(
        "hub", "start", *data, "--port", "0", "--open", "--detach", "--log-level", "error", "--json"
    ).json
    world = World(root, started["url"], made["hub_id"])
    world.receipts = emit(root, world.url, world.hub_id, range(60))
    return world


def query(**changes: Any) -> dict[str, Any]:
    """Return a descriptor of user:3's events with full evidence."""
    return {
        "scope": [STREAM],
        "filter": {"subject_id": "user:3"},
        "projection": ["event_type", "payload.status", "payload.number", "receipt_id"],
        "evidence": {"mode": "full"},
    } | changes


def environment_rounds(default: int) -> int:
    return int(os.environ.get("VEEN_CRASH_ROUNDS", default))
