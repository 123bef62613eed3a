"""A primary, its replica and its successor, and `veen hub` as an operator uses it (P9)."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from veen_core.cap import CapToken, mint
from veen_core.ids import ClientId, HubId, StreamId
from veen_core.receipt import Receipt
from veen_hub.client import Hub, Identity, Retry, connect
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.operator import Operator
from veen_selftest.hubs.own_hub import LISTENING, PROBES, OwnHub
from veen_selftest.hubs.ports import free_port
from veen_selftest.runner.check import ClauseViolation, require
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HUB_LOG

STREAM: Final = "selftest/dr"
POLL_SECONDS: Final = 0.02


class Site(Operator):
    """The hub that fails, the replica that takes over, and a client with a state folder."""

    def __init__(self, context: CheckContext, root: Path, own: OwnHub, primary: HttpHub) -> None:
        """``own`` is the process of the primary; the other hubs run the same program."""
        assert primary.admin is not None  # the selftest started the hub
        super().__init__(root, context.fleet.veen)
        self._own = own
        self._max_wait = context.options.replica_wait
        self.primary = primary
        self.admin = primary.admin
        self.writer = Identity.generate()
        self.old_hub = primary.known.identity.hub_id
        self.write_identity("admin", primary.admin)
        self._replica = own.another_process("the replica", root / "replica.log")
        self._successor = own.another_process("the successor", root / "new.log")
        self._port = free_port()
        _, made = self.veen_object("hub", "successor", "--new-keys", "keys")
        self.new_hub = HubId.from_hex(made["hub_id"])

    @property
    def successor_url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    # --- the steps of the operator

    def start_replica(self) -> HttpHub:
        flags = (f"--data-dir={self.root / 'replica'}", f"--replica-of={self.primary.url}")
        line = self._replica.start(LISTENING, "--port=0", "--log-level=warning", *flags)
        return HttpHub(line.partition(PROBES)[0], self.admin)

    def stop_replica(self) -> None:
        self._replica.stop()

    def lose_primary(self) -> None:
        """Kill the primary; nothing starts it again."""
        self._own.kill()

    def hand_over(self) -> None:
        """Hand the primary over, and wait until the replica has the record."""
        hub = ("--hub", self.primary.url, "--trust", self.old_hub.hex(), "--client", "admin")
        to = ("--new-hub", self.new_hub.hex(), "--url", self.successor_url)
        self.veen("hub", "handover", *hub, *to, "--out", "handover.cbor")
        self.wait_until(
            (self.root / "replica" / "handover.cbor").exists, "the replica has no handover record"
        )

    def promote(self, *flags: str) -> dict[str, Any]:
        """Make the successor from the replica; return the JSON object."""
        return self.veen_object(*self._promotion, *flags)[1]

    def require_no_promotion(self, reason: str) -> None:
        """Raise ``ClauseViolation`` unless `veen hub promote` refuses for this reason."""
        done = self.run(*self._promotion)
        said = done.stderr or done.stdout
        require(done.returncode != 0 and reason in said, f"promotion not refused with {reason!r}: {said}")

    @property
    def _promotion(self) -> tuple[str, ...]:
        where = ("--data-dir", "replica", "--new-keys", "keys", "--out", "new")
        return ("hub", "promote", *where, "--admin", self.admin.public.hex())

    def start_successor(self) -> None:
        flags = (f"--data-dir={self.root / 'new'}", f"--port={self._port}", "--probes-port=0")
        self._successor.start(LISTENING, "--log-level=warning", *flags)

    def lost(self, receipts: Sequence[Receipt]) -> tuple[int, dict[str, Any]]:
        """Compare receipts with the successor's ancestor; return the exit code and the JSON object."""
        path = self.root / "receipts.cborseq"
        path.write_bytes(b"".join(receipt.encode() for receipt in receipts))
        return self.veen_object("hub", "lost", "--data-dir", "new", "--receipts", path.name)

    def close(self) -> None:
        """Kill the replica and the successor."""
        self._replica.kill()
        self._successor.kill()

    def wait_until(self, holds: Callable[[], bool], violation: str) -> None:
        """Wait until a condition holds, at most ``RunOptions.replica_wait`` seconds."""
        deadline = time.monotonic() + self._max_wait
        while not holds():
            if time.monotonic() >= deadline:
                raise ClauseViolation(f"{violation} after {self._max_wait} s")
            time.sleep(POLL_SECONDS)

    # --- the steps of a client

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


@contextmanager
def site(context: CheckContext) -> Iterator[Site]:
    """Start a primary; the check starts the other hubs. All hubs are killed at the end."""
    own = context.own_hub(HUB_LOG)
    with tempfile.TemporaryDirectory(prefix="veen-selftest-dr-") as folder, own.running() as primary:
        made = Site(context, Path(folder), own, primary)
        try:
            yield made
        finally:
            made.close()
