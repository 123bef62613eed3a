"""Every transport leads to the same admission table and the same bytes (DR0, §8.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from veen_core.api import SubmitResponse
from veen_core.ids import StreamSeq
from veen_core.rejection import Rejection
from veen_hub.client import Tls
from veen_hub.nats import service
from veen_testing.nats_server import NatsServer

from . import over_files, over_h3, over_nats, serving
from .certificates import Certificates
from .conftest import StartHub
from .faults import FAULTS, play
from .other_transports import Ask, comparable
from .people import envelope
from .serving import CBOR, Answer, RunningHub

SUBMIT = "/v1/submit"


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    yield server
    server.kill()


class AllTransports:
    """A hub with all transports on; ``StartHub`` for the tests of the table."""

    def __init__(
        self, start_hub: StartHub, nats: NatsServer, place: Path, certificates: Certificates
    ) -> None:
        self._start, self._nats, self._place = start_hub, nats, place
        self._certificates = certificates
        self.asks: dict[str, Ask] = {}

    def __call__(self, *_: object, **settings: Any) -> RunningHub:
        cert, key = self._certificates.hub
        settings |= {"tls__cert": cert, "tls__key": key, "h3__port": 0, "nats__servers": [self._nats.url]}
        hub = over_nats.served(over_files.with_files(self._start, self._place, **settings))
        url, spool = over_nats.url_of(hub), self._place / "spool"
        tls = Tls(ca=self._certificates.authority)
        self.asks = {
            "h3": lambda *asked: over_h3.ask(hub, tls, *asked),
            "nats": lambda *asked: over_nats.ask(url, *asked),
            "files": lambda *asked: over_files.ask(spool, *asked),
        }
        return hub


@pytest.fixture
def transports(
    start_hub: StartHub,
    nats: NatsServer,
    place: Path,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> AllTransports:
    monkeypatch.setattr(service, "LOOK_SEC", 0.1)
    monkeypatch.setattr(serving, "request", over_h3.over_tls(certificates))
    return AllTransports(start_hub, nats, place, certificates)


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.detail)
def test_every_admission_row_gives_the_same_bytes_over_all_transports(
    transports: AllTransports, monkeypatch: pytest.MonkeyPatch, row: Rejection
) -> None:
    """A refusal changes nothing, so the same hub is asked over each transport."""
    right, compared = serving.request, list[str]()

    def request(
        port: int,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        answer = right(port, method, path, body, headers)
        if path == SUBMIT and answer.status != 200:
            for transport, ask in transports.asks.items():
                other = ask(method, path, body, headers)
                assert comparable(other) == comparable(answer), transport
                assert other.error.request_id == other.headers["veen-request-id"]
                compared.append(transport)
        return answer

    monkeypatch.setattr(serving, "request", request)
    assert play(transports, [row]).detail == row.detail
    assert compared == ["h3", "nats", "files"]


def test_an_accepted_message_gets_the_same_bytes_over_all_transports(transports: AllTransports) -> None:
    hub = transports()
    by_http = hub.submit(hub.writer("http", to="http").next())
    around = len(by_http.body) - len(SubmitResponse.decode(by_http.body).receipt.encode())
    for transport, ask in transports.asks.items():
        writer = hub.writer(transport, to=transport)
        answer = ask("POST", SUBMIT, envelope(writer.next()), {"Content-Type": CBOR})
        receipt = hub.store.read.receipt(writer.label, StreamSeq(1)).encode()
        assert answer.headers["content-type"] == by_http.headers["content-type"]
        assert answer.body == by_http.body[:4] + receipt + by_http.body[4 - around :]
