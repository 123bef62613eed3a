"""What a hub has promised: every receipt that arrived, and what was sent without an answer (§9)."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Sequence
from dataclasses import dataclass, field

from veen_core import cbor
from veen_core.api import ErrorEnvelope, SubmitResponse, wrap_submit
from veen_core.errors import DecodeError
from veen_core.receipt import Receipt
from veen_core.rejection import DUPLICATE
from veen_selftest.hubs.http_hub import CBOR_SEQ, Hub
from veen_selftest.peers.verifier import VerifiedLog
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import Violation, require, same


@dataclass(slots=True)
class Lane:
    """One writer's part: it sends one request at a time, and settles what was left open before it goes on."""

    writer: Writer
    together: int
    """Messages in one request."""
    receipts: dict[int, Receipt] = field(default_factory=dict)
    """By client_seq."""
    unseen: set[int] = field(default_factory=set)
    """Accepted, as the hub says, but the receipt never arrived."""
    open: list[int] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def run(self, hub: Hub) -> None:
        """Until the hub is gone."""
        with contextlib.closing(hub.connection(timeout=20)) as connection:
            try:
                while not self.violations:
                    self.send(connection)
            except (OSError, http.client.HTTPException, EOFError):
                pass  # killed
            except (DecodeError, Violation) as exc:
                self.violations.append(str(exc))

    def send(self, connection: http.client.HTTPConnection) -> None:
        """What is open again, else the next ones; every answer is entered before the next request."""
        if not self.open:
            first = self.writer.seq + 1
            self.open = list(range(first, first + self.together))
            self.writer.seq = self.open[-1]
        body = b"".join(wrap_submit(self.writer.message(seq)) for seq in self.open)
        connection.request("POST", "/v1/submit", body, {"Content-Type": CBOR_SEQ})
        response = connection.getresponse()
        answer = response.read()
        if response.status == 503:
            raise ConnectionError("not now")
        self._enter(list(cbor.split_sequence(answer)))
        self.open = []

    def _enter(self, items: Sequence[bytes]) -> None:
        same(len(items), len(self.open), "answers to a sequence (H14)")
        for seq, item in zip(self.open, items, strict=True):
            try:
                self.receipts[seq] = SubmitResponse.decode(item).receipt
                continue
            except DecodeError:
                error = ErrorEnvelope.decode(item)
            if error.code == "E.UNAVAILABLE":
                raise ConnectionError("not now")
            found = error.detail.detail_enum if error.detail is not None else error.code
            require(
                found == DUPLICATE.detail,
                f"client_seq {seq} was sent again after a crash and refused by {found}: {error.message}",
            )
            require(seq not in self.receipts, f"client_seq {seq} was acknowledged and sent again")
            self.unseen.add(seq)


@dataclass(slots=True)
class Ledger:
    """All lanes of one label."""

    lanes: list[Lane]

    @property
    def promised(self) -> int:
        return sum(len(lane.receipts) for lane in self.lanes)

    def check_newest(self, hub: Hub) -> None:
        """Cheap, after every round: the last promise of each lane is kept."""
        for lane in self.lanes:
            self._no_violations(lane)
            if lane.receipts:
                held = lane.receipts[max(lane.receipts)]
                page = hub.page(held.label, held.stream_seq, max_items=1)
                require(page.items, f"the message acknowledged at {held.stream_seq} is lost (H2)")
                same(
                    page.items[0].receipt,
                    held,
                    f"the receipt at {held.stream_seq} after a kill: equivocation",
                )

    def check_all(self, hub: Hub) -> None:
        """Every promise is kept, nothing is there twice, and the log verifies from its first entry on."""
        log = VerifiedLog(hub, self.lanes[0].writer.label).read()
        by_message = {(pair.msg.client_id, int(pair.msg.client_seq)): pair.receipt for pair in log.pairs}
        same(len(by_message), len(log.pairs), "messages, each once (I8)")
        for lane in self.lanes:
            self._no_violations(lane)
            mine = lane.writer.client_id
            for seq, receipt in lane.receipts.items():
                found = by_message.get((mine, seq))
                require(found is not None, f"the acknowledged message {seq} of {mine.hex()[:8]} is lost (H2)")
                same(found, receipt, f"the receipt of message {seq} after kills: equivocation")
            for seq in lane.unseen:
                require(
                    (mine, seq) in by_message, f"message {seq} was said to be a duplicate and is not there"
                )

    @staticmethod
    def _no_violations(lane: Lane) -> None:
        if lane.violations:
            raise Violation(lane.violations[0])
