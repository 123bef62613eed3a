"""A primary and its replica, each a process of its own, and `veen hub` as an operator uses it (P9)."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from veen_core.cap import CapToken, mint
from veen_core.ids import ClientId, HubId, StreamId
from veen_core.receipt import Receipt
from veen_hub.client import Hub, Identity, Retry, connect
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.operator import COMMAND_SECONDS, Operator
from veen_selftest.hubs.own_hub import LISTENING, PROBES
from veen_selftest.hubs.own_hub import PROGRAM as HUB_PROGRAM
from veen_selftest.hubs.server_process import START_STOP_SECONDS, ServerProcess
from veen_selftest.runner.check import Violation
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HUB_LOG

STREAM: Final = "selftest/dr"
POLL_SECONDS: Final = 0.02


class Site(Operator):
    """The hub that fails, the replica that takes over, and a client with a state folder."""

    def __init__(self, context: CheckContext, root: Path, primary: HttpHub) -> None:
        assert primary.admin is not None  # the selftest started the hub
        super().__init__(root)
        self.primary = primary
        self.admin = primary.admin
        self.writer = Identity.generate()
        self.old_hub = primary.known.identity.hub_id
        self.write_identity("admin", primary.admin)
        self._replica = ServerProcess("the replica", HUB_PROGRAM, root / "replica.log", START_STOP_SECONDS)
        self._successor = ServerProcess("the successor", HUB_PROGRAM, root / "new.log", START_STOP_SECONDS)
        self._port = _free_port(context)
        made = json.loads(self.veen("hub", "successor", "--new-keys", "keys", "--json"))
        self.new_hub = HubId.from_hex(made["hub_id"])

    @property
    def successor_url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    # --- what the operator does

    def start_replica(self) -> HttpHub:
        flags = (f"--data-dir={self.root / 'replica'}", f"--replica-of={self.primary.url}")
        line = self._replica.start(LISTENING, "--port=0", "--log-level=warning", *flags)
        return HttpHub(line.partition(PROBES)[0], self.admin)

    def stop_replica(self) -> None:
        self._replica.stop()

    def hand_over(self) -> None:
        """Hand the primary over, and wait until the replica has the record."""
        hub = ("--hub", self.primary.url, "--trust", self.old_hub.hex(), "--client", "admin")
        to = ("--to", self.new_hub.hex(), "--url", self.successor_url)
        self.veen("hub", "handover", *hub, *to, "--out", "handover.cbor")
        wait_until((self.root / "replica" / "handover.cbor").exists, "the replica has the handover")

    def promote(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """Run `veen hub promote`; the caller looks at the exit code."""
        where = ("--data-dir", "replica", "--new-keys", "keys", "--out", "new")
        return self.run("hub", "promote", *where, "--admin", self.admin.public.hex(), "--json", *flags)

    def start_successor(self) -> None:
        flags = (f"--data-dir={self.root / 'new'}", f"--port={self._port}", "--probes-port=0")
        self._successor.start(LISTENING, "--log-level=warning", *flags)

    def lost(self, receipts: Sequence[Receipt]) -> tuple[int, dict[str, Any]]:
        """Ask which receipts the successor's ancestor lacks; return the exit code and the JSON object."""
        path = self.root / "receipts.cborseq"
        path.write_bytes(b"".join(receipt.encode() for receipt in receipts))
        done = self.run("hub", "lost", "--data-dir", "new", "--receipts", path.name, "--json")
        if not done.stdout:
            raise Violation(f"`veen hub lost` printed no result: {done.stderr}")
        return done.returncode, json.loads(done.stdout)

    def close(self) -> None:
        """Kill the replica and the successor."""
        self._replica.kill()
        self._successor.kill()

    # --- what clients do

    @asynccontextmanager
    async def connect(self, url: str, hub_id: HubId, *, successor: str | None = None) -> AsyncIterator[Hub]:
        """Connect as the writer, with a token from the admin."""

        async def token(client_id: ClientId, on: StreamId) -> CapToken:
            return mint(self.admin, client_id, [on], 3_600)

        state, retry = self.root / "state", Retry(max_attempts=1_000, max_delay=0.2)
        async with connect(
            url, self.writer, trust=hub_id, successor=successor, state=state, tokens=token, retry=retry
        ) as hub:
            yield hub

    def send(self, bodies: Sequence[str]) -> list[Receipt]:
        """Send to the primary."""

        async def work() -> list[Receipt]:
            async with self.connect(self.primary.url, self.old_hub) as hub:
                return [receipt async for receipt in hub.stream(STREAM).send_many(bodies)]

        return asyncio.run(work())

    def read(self, url: str, hub_id: HubId) -> list[str]:
        """Read the stream at one hub, without state of earlier reads."""

        async def work() -> list[str]:
            async with connect(url, self.writer, trust=hub_id) as hub:
                return [message.text async for message in hub.stream(STREAM).read()]

        return asyncio.run(work())


def _free_port(context: CheckContext) -> int:
    """Return a port for the successor; outgoing connections use none below 32768, so it stays free."""
    while True:
        port = context.rng.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds; after ``COMMAND_SECONDS`` it is a violation that it never did."""
    deadline = time.monotonic() + COMMAND_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise Violation(f"after {COMMAND_SECONDS} s it is still not so that {what}")
        time.sleep(POLL_SECONDS)


@contextmanager
def site(context: CheckContext) -> Iterator[Site]:
    """Start a primary; the check starts and replaces the other hubs. All are stopped at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="veen-selftest-dr-") as folder,
        context.own_hub(HUB_LOG).running() as primary,
    ):
        made = Site(context, Path(folder), primary)
        try:
            yield made
        finally:
            made.close()
