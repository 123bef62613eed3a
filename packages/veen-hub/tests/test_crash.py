"""Kill -9 under load, again and again: what was acknowledged is there, and nothing is there twice.

``VEEN_CRASH_ROUNDS`` for more than the usual fifty.
"""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from veen_core import cbor
from veen_core.api import (
    ErrorEnvelope,
    ReceiptRequest,
    ReceiptResponse,
    StreamRequest,
    StreamResponse,
    SubmitResponse,
)
from veen_core.ids import ClientId, Label, StreamSeq
from veen_core.receipt import Receipt
from veen_storage.fsck import fsck

from .conftest import StartProcess
from .people import Writer, envelope
from .serving import CBOR, CBOR_SEQ, HubProcess, InOnePiece

ROUNDS = int(os.environ.get("VEEN_CRASH_ROUNDS", "50"))
CLIENTS = 6


@dataclass
class Client:
    """Sends one request at a time, remembers what was acknowledged, and settles what was not (§9)."""

    writer: Writer
    together: int
    """Messages in one request."""
    receipts: dict[int, Receipt] = field(default_factory=dict)
    """By client_seq: acknowledged."""
    open: list[int] = field(default_factory=list)
    """Client_seqs that were sent and not answered."""

    def run(self, port: int) -> None:
        """Until the hub is gone."""
        connection = InOnePiece("127.0.0.1", port, timeout=10)
        try:
            while True:
                self._send(connection)
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    def _send(self, connection: http.client.HTTPConnection) -> None:
        seqs = self.open or [self.writer.seq + n + 1 for n in range(self.together)]
        self.open = seqs
        self.writer.seq = max(self.writer.seq, seqs[-1])
        body = b"".join(envelope(self.writer.message(seq)) for seq in seqs)
        kind = CBOR if len(seqs) == 1 else CBOR_SEQ
        connection.request("POST", "/v1/submit", body, {"Content-Type": kind})
        response = connection.getresponse()
        answer = response.read()
        items = [answer] if kind == CBOR else list(cbor.split_sequence(answer))
        assert len(items) == len(seqs), (response.status, answer)
        for seq, item in zip(seqs, items, strict=True):
            self._settle(seq, item)
        self.open = []

    def _settle(self, seq: int, item: bytes) -> None:
        if b"E." not in item[:8]:
            self.receipts[seq] = SubmitResponse.decode(item).receipt
            return
        error = ErrorEnvelope.decode(item)
        if error.code == "E.UNAVAILABLE":
            raise ConnectionError("not now")
        # Sent again because no answer came: then it was accepted, and before the crash it was durable.
        assert error.detail is not None
        assert error.detail.detail_enum == "DUPLICATE", error
        self.receipts.setdefault(seq, UNSEEN)


UNSEEN = Receipt.decode(cbor.encode([1, bytes(32), 0, bytes(32), bytes(32), 0, bytes(64)]))
"""Stands for a receipt that was made and never arrived."""


def read_all(hub: HubProcess, label: Label) -> list[tuple[ClientId, int, Receipt]]:
    found: list[tuple[ClientId, int, Receipt]] = []
    cursor: StreamSeq | None = StreamSeq(1)
    while cursor is not None:
        asked = StreamRequest(label=label, from_seq=StreamSeq(1), cursor=cursor, with_receipts=True)
        page = hub.ask("/v1/stream", asked, StreamResponse)
        for item in page.items:
            assert item.receipt is not None
            found.append((item.msg.client_id, item.msg.client_seq, item.receipt))
        cursor = page.next_cursor
    return found


@pytest.mark.parametrize("rounds", [ROUNDS])
def test_nothing_acknowledged_is_lost_and_nothing_is_accepted_twice(
    start_process: StartProcess, tmp_path: Path, rounds: int
) -> None:
    chance = random.Random(4)
    hub = start_process("data", "--open")
    hub_id = hub.status().identity.hub_id
    clients = [Client(Writer(f"client {n}", hub_id), together=(1, 1, 1, 1, 8, 70)[n]) for n in range(CLIENTS)]
    for _ in range(rounds):
        threads = [threading.Thread(target=client.run, args=(hub.port,)) for client in clients]
        for thread in threads:
            thread.start()
        time.sleep(chance.uniform(0.02, 0.25))  # the moment of the crash is what is random here
        hub.kill()
        for thread in threads:
            thread.join()
        hub = start_process("data", "--open")
        for client in clients:  # the newest promise of each
            if client.receipts and (last := client.receipts[max(client.receipts)]) is not UNSEEN:
                asked = ReceiptRequest(label=last.label, stream_seq=last.stream_seq)
                assert hub.ask("/v1/receipt", asked, ReceiptResponse).receipt == last

    log = read_all(hub, clients[0].writer.label)
    assert [receipt.stream_seq for _client, _seq, receipt in log] == list(range(1, len(log) + 1))
    by_message = {(client, seq): receipt for client, seq, receipt in log}
    assert len(by_message) == len(log), "a message was accepted twice"
    for client in clients:
        mine = sorted(seq for who, seq in by_message if who == client.writer.client_id)
        assert mine == list(range(1, len(mine) + 1))
        assert set(client.receipts) <= set(mine), "an acknowledged message is lost"
        for seq, receipt in client.receipts.items():
            assert receipt is UNSEEN or by_message[client.writer.client_id, seq] == receipt
    assert sum(len(client.receipts) for client in clients) > 10 * rounds
    assert hub.stop() == 0
    report = fsck(tmp_path / "data")
    assert report.faults == [], str(report)
