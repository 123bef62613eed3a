"""Hubs that tests talk to: one in this process on a real socket, and a real ``veen-hub`` process."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import multiprocessing
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from veen_core import cbor
from veen_core.api import ErrorEnvelope, SubmitResponse
from veen_core.cap import CapToken
from veen_core.ids import HubId, UnixTime
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.profile import DEFAULT_PROFILE, Profile
from veen_core.receipt import Receipt
from veen_core.status import AuthorizeResponse, Status
from veen_core.wire import Wire
from veen_hub.admission.policy import AdmissionPolicy
from veen_hub.hub import Hub
from veen_hub.ops import config as configuration
from veen_hub.ops.anchors import AnchorBackend
from veen_hub.pipeline.worker_process import WorkerProcess
from veen_hub.server import Server
from veen_storage import Files, Store, create

from .people import ADMIN, BORN, HUB_KEY, Writer, admin_headers, envelope

W = TypeVar("W", bound=Wire)
T = TypeVar("T")

CBOR = "application/cbor"
CBOR_SEQ = "application/cbor-seq"
JSON = "application/json"
PATIENCE = 60.0
"""Longer than anything here takes: a test that waits so long has failed."""


def until(holds: Callable[[], object], what: str) -> None:
    """Wait for something that nobody announces."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.002)


def processes_of(pid: int, module: bytes) -> list[int]:
    """A process's children that run ``module``; it may have others."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    return [int(one) for one in children if module in Path(f"/proc/{one}/cmdline").read_bytes()]


def saturate(hub: HubProcess, writers: Sequence[Writer]) -> list[list[Receipt]]:
    """Send 512 messages of each writer at once, so that the hub uses its helper processes.

    Returns the receipts of each writer, in order.
    """
    bodies = [b"".join(envelope(writer.next()) for _ in range(512)) for writer in writers]

    def send(body: bytes) -> list[Receipt]:
        while (answer := hub.post("/v1/submit", body, kind=CBOR_SEQ)).status == 503:
            time.sleep(0.05)  # the hub has no room for so many at once
        answers = cbor.split_sequence(answer.body)
        return [SubmitResponse.decode(answer).receipt for answer in answers]

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(send, bodies))


def authorized_writers(hub: HubProcess, count: int = 4) -> list[Writer]:
    """Writers on streams of their own, each with an authorized token."""
    made = [Writer(f"writer {n}", hub.status().identity.hub_id, to=f"orders/{n}") for n in range(count)]
    for writer in made:
        writer.auth_ref = hub.authorize(writer.token()).auth_ref
    return made


def answer_with(process: WorkerProcess, answer: bytes | list[bytes]) -> None:
    """Put a fake helper process in place that answers its next question so; bytes are sent as they are."""
    ours, theirs = multiprocessing.Pipe()

    def serve() -> None:
        theirs.recv()
        theirs.send_bytes(answer) if isinstance(answer, bytes) else theirs.send(answer)

    threading.Thread(target=serve, daemon=True).start()
    process._pipe, process.ready = ours, True


def end_while_starting(process: WorkerProcess) -> None:
    """Put a helper process in place that has read its opening and ended before it was ready."""
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    process._pipe, process.ready = ours, False


class SetClock:
    """The hub's time, set by the test."""

    def __init__(self, now: int = BORN) -> None:
        self.time = now

    def now(self) -> UnixTime:
        return UnixTime(self.time)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def read(self, kind: type[W]) -> W:
        """The body as the envelope it must be, by its Content-Type."""
        assert self.status == 200, (self.status, self.body)
        return self._decode(kind)

    @property
    def error(self) -> ErrorEnvelope:
        assert self.status >= 400, (self.status, self.body)
        return self._decode(ErrorEnvelope)

    @property
    def detail(self) -> str | None:
        """``detail_enum`` of a refusal, or its code where there is none."""
        error = self.error
        return error.detail.detail_enum if error.detail and error.detail.detail_enum else error.code

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def _decode(self, kind: type[W]) -> W:
        if self.headers.get("content-type", "").startswith(JSON):
            return kind.from_json(self.body)
        assert self.headers.get("content-type") == CBOR, self.headers
        return kind.decode(self.body)


def request(
    port: int,
    method: str,
    path: str,
    body: bytes | Iterator[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    context: ssl.SSLContext | None = None,
    timeout: float = PATIENCE,
) -> Answer:
    """One request on a connection of its own."""
    made: http.client.HTTPConnection
    if context is not None:
        made = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=context)
    else:
        made = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(made) as connection:
        connection.request(method, path, body, dict(headers or {}), encode_chunked=isinstance(body, Iterator))
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


class InOnePiece(http.client.HTTPConnection):
    """Sends head and body in one segment; http.client sends them in two."""

    _head = b""

    def send(self, data: Any) -> None:
        head, self._head = self._head, b""
        if head or data.endswith(b"Content-Length: 0\r\n\r\n"):
            super().send(head + data)
        else:
            self._head = data


def _names(headers: Mapping[str, str]) -> dict[str, str]:
    """As keywords they have an underscore for each dash."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


def addresses_in(line: str) -> tuple[str, int, int]:
    """Return URL, port and probes' port from the line that a hub prints when it listens."""
    url, probes_url = line.removeprefix("veen-hub listening on ").strip().split(", probes on ")
    return url, int(url.rpartition(":")[2]), int(probes_url.rpartition(":")[2])


class Calls:
    """What a test says to a hub, wherever it runs."""

    port: int
    """Of the API."""
    probes_port: int
    """Of /readyz and /metrics."""

    def call(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        port = self.probes_port if path in ("/readyz", "/metrics") else self.port
        return request(port, method, path, body, headers)

    def post(self, path: str, envelope_: Wire | bytes, kind: str = CBOR, **headers: str) -> Answer:
        body = envelope_ if isinstance(envelope_, bytes) else envelope_.encode()
        return self.call("POST", path, body, {"Content-Type": kind, **_names(headers)})

    def ask(self, path: str, envelope_: Wire, kind: type[W]) -> W:
        return self.post(path, envelope_).read(kind)

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, headers=_names(headers))

    def status(self) -> Status:
        return self.get("/v1/status").read(Status)

    def submit(self, wire: bytes, **headers: str) -> Answer:
        return self.post("/v1/submit", envelope(wire), **headers)

    def accept(self, wire: bytes, **headers: str) -> Receipt:
        return self.submit(wire, **headers).read(SubmitResponse).receipt

    def authorize(self, token: CapToken) -> AuthorizeResponse:
        return self.post("/tooling/authorize", token).read(AuthorizeResponse)

    def admin(self, path: str, body: bytes = b"", at: int | None = None) -> Answer:
        status = self.status()
        when = at if at is not None else status.hub_ts
        signed = admin_headers(status.identity.hub_id, path, body, when)
        return self.call("POST", path, body, {"Content-Type": CBOR, **signed})

    def metric(self, name: str, **labels: str) -> float:
        wanted = ",".join(f'{k}="{v}"' for k, v in labels.items())
        start = f"{name}{{{wanted}}} " if labels else f"{name} "
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(start):
                return float(line.removeprefix(start))
        return 0.0


class RunningHub(Calls):
    """A hub in this process: real files, a real socket, and an event loop in a thread of its own."""

    def __init__(
        self,
        root: Path,
        *,
        clock: SetClock | None = None,
        policy: AdmissionPolicy | None = None,
        anchor: AnchorBackend | None = None,
        files: Files | None = None,
        **settings: Any,
    ) -> None:
        """``settings`` are those of hub.yaml; a dot in a key is written as two underscores."""
        self.root = root
        self.clock = clock or SetClock()
        overrides = {"data_dir": root, "listen.port": 0, "listen.request_timeout_sec": 5}
        overrides |= {key.replace("__", "."): value for key, value in settings.items()}
        self.config = configuration.load(None, overrides)
        self.store = Store(root, files=files)
        self.hub = Hub(self.config, self.store, clock=self.clock, policy=policy, anchor=anchor)
        self.server = Server(self.hub)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hub-loop", daemon=True)
        self._thread.start()
        self._stopped = False
        self.url = self.run(self.server.start())
        self.port = int(self.url.rpartition(":")[2])
        self.probes_port = int(self.server.probes_url.rpartition(":")[2])
        self.hub_id = self.hub.identity.hub_id
        self.profile = self.hub.profile

    @property
    def listening(self) -> int:
        """The descriptor of its socket; what is set there, connections inherit."""
        listener: Any = self.server._api
        return int(listener._server.sockets[0].fileno())

    def run(self, work: Any) -> Any:
        """A coroutine on the hub's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def do(self, work: Callable[[], T]) -> T:
        """A function on the hub's loop."""

        async def later() -> T:
            return work()

        return self.run(later())  # type: ignore[no-any-return]

    def writer(self, name: str = "alice", **about: Any) -> Writer:
        """Somebody who may write, with a token if the hub asks for one."""
        made = Writer(name, self.hub_id, self.profile, **about)
        if self.config.gating and made.auth_ref is None:
            made.auth_ref = self.authorize(made.token()).auth_ref
        return made

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self.run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


def make_directory(
    root: Path, *, profile: Profile = DEFAULT_PROFILE, limits: Limits = DEFAULT_LIMITS, born: int = BORN
) -> HubId:
    return create(root, HUB_KEY, UnixTime(born), profile=profile, limits=limits, admin_pk=ADMIN.public).hub_id


ANY_PORTS = ("--port=0", "--probes-port=0")
"""A hub with a chosen port listens for probes on a free one: the next port may be taken."""


class HubProcess(Calls):
    """A real ``veen-hub``: for signals, crashes and what it prints."""

    def __init__(
        self, root: Path, *flags: str, log: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log or root.parent / f"{root.name}.log"
        with self.log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "veen_hub.main", f"--data-dir={root}", *ANY_PORTS, *flags],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, **(environment or {})},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("veen-hub listening on "):
            self.kill()
            raise AssertionError(line, self.log.read_text()[-2_000:])
        self.url, self.port, self.probes_port = addresses_in(line)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it logged; a line that it is just writing is left out."""
        return [json.loads(line) for line in self.log.read_text().split("\n")[:-1]]

    @property
    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()
