"""A hub with a witness and a console, messages in it, and faults that can be switched on while it runs."""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veen_core.cap import CapToken
from veen_core.ids import Epoch, HubId, Label
from veen_core.keys import SigningKey, SigningSeed
from veen_core.receipt import Receipt
from veen_core.status import HandoverRequest
from veen_core.stream import label, routing_key, stream_id
from veen_hub.client import Identity, Outgoing
from veen_hub.client.blocking import BlockingHub, connect
from veen_overlays.schema.record import Record
from veen_selftest.hubs.own_hub import OwnHub
from veen_selftest.hubs.own_witness import OwnWitness
from veen_selftest.hubs.witnessed_hub import WitnessedHub
from veen_selftest.runner.hub_setup import HubSetup
from veen_testing.ports import free_port

from ..people import Writer, admin_headers, envelope

ADMIN = SigningKey(SigningSeed(b"\x07" * 32))
ORDERS = [f"order {number}: two coffees" for number in range(1, 41)]


class ConsoleWorld:
    """``url`` is the console's address; ``fault`` names the active fault of the hub, or is empty."""

    def __init__(
        self,
        root: Path,
        program: Sequence[str],
        *,
        profile: str = "default",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._fault_file = root / "fault"
        self.fault = ""
        self.port = free_port()
        setup = HubSetup(
            name="console",
            profile=profile,
            settings={
                "gating": False,
                "console": {"port": self.port},
                "streams": ["orders"],
                "checkpoints": {"every_sec": 1},
                **(settings or {}),
            },
        )
        self.own = OwnHub([*program, f"--fault-file={self._fault_file}"], root / "hub", setup, ADMIN)
        self.witness = OwnWitness(root / "witness")
        self.witnessed = WitnessedHub(self.own, self.witness)
        self.identity = Identity.generate()
        self.hub = self.witnessed.hub
        self.hub_id = self.hub.known.identity.hub_id
        self.send("orders", ORDERS)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def reader_key(self) -> str:
        """The secret key that opens the messages, in hex."""
        return bytes(self.identity.dh_keys[0].secret).hex()

    @property
    def policy(self) -> str:
        return f"witness w1 {self.witness.key}\nquorum w1\n"

    @property
    def fault(self) -> str:
        return self._fault_file.read_text(encoding="utf-8")

    @fault.setter
    def fault(self, name: str) -> None:
        self._fault_file.write_text(name, encoding="utf-8")

    def label(self, stream: str) -> str:
        return Label(label(routing_key(self.hub_id), stream_id(stream), Epoch(0))).hex()

    def send(self, stream: str, texts: Sequence[str]) -> None:
        with connect(self.hub.url, self.identity, trust=self.hub_id) as hub:
            opened = hub.stream(stream)
            for _ in opened.send_many(texts):
                pass

    def send_records(
        self, stream: str, records: Sequence[Record | Outgoing], identity: Identity | None = None
    ) -> list[Receipt]:
        """Send typed records, sealed to the sender; return their receipts."""
        with self.connected(identity or self.identity) as hub:
            return list(hub.stream(stream).send_many(records))

    def connected(self, identity: Identity) -> BlockingHub:
        """Return a connection of the blocking client, to be used as a context manager."""
        return connect(self.hub.url, identity, trust=self.hub_id)

    def submit_raw(self, stream: str, count: int, writer: str = "writer") -> None:
        """Send messages without a client, which would notice the faults of the hub."""
        made = Writer(writer, self.hub_id, self.hub.known.profile, to=stream)
        for _ in range(count):
            self.hub_post("/v1/submit", envelope(made.next()))

    def submit_many(self, stream: str, count: int) -> None:
        """Send many messages of one writer, 500 in a request."""
        made = Writer("many", self.hub_id, self.hub.known.profile, to=stream)
        for at in range(0, count, 500):
            body = b"".join(envelope(made.next()) for _ in range(min(500, count - at)))
            assert self.hub_post("/v1/submit", body, "application/cbor-seq") == 200

    def authorize(self, subject: str, *streams: str, ttl: int = 3_600) -> CapToken:
        """Authorize a token of the hub's admin."""
        made = Writer(subject, self.hub_id, self.hub.known.profile)
        token = made.token(issuer=ADMIN, streams=streams, ttl=ttl)
        assert self.hub_post("/tooling/authorize", token.encode()) == 200
        return token

    def hand_over(self, new_hub: HubId) -> None:
        """End this hub in favour of another one (P9)."""
        path, body = "/tooling/handover", HandoverRequest(new_hub=new_hub, url="").encode()
        headers = admin_headers(self.hub_id, path, body, int(time.time()), by=ADMIN)
        assert self.hub_post(path, body, headers=headers) == 200

    def hub_post(
        self,
        path: str,
        body: bytes,
        kind: str = "application/cbor",
        headers: Mapping[str, str] | None = None,
    ) -> int:
        host, _, port = self.hub.url.removeprefix("http://").rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request("POST", path, body, {"Content-Type": kind, **(headers or {})})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    def close(self) -> None:
        self.own.kill()
        self.witness.kill()
