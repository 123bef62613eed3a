"""A ledger of what the hub acknowledged: every receipt, and every message without an answer (§9)."""

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
from veen_selftest.hubs.http_hub import CBOR_SEQ, HttpHub
from veen_selftest.peers.verifier import VerifiedLog
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import ClauseViolation, require, require_equal


@dataclass(slots=True)
class Lane:
    """One writer under load: it sends one request at a time, and first repeats an unanswered one."""

    writer: Writer
    per_request: int
    """Messages per request."""
    receipts: dict[int, Receipt] = field(default_factory=dict)
    """Receipts by client_seq."""
    duplicates: set[int] = field(default_factory=set)
    """client_seqs that the hub says it accepted, although their receipt never arrived."""
    unanswered: list[int] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def run(self, hub: HttpHub) -> None:
        """Send until the hub is killed."""
        with contextlib.closing(hub.connection(timeout=20)) as connection:
            try:
                while not self.violations:
                    self.send(connection)
            except (OSError, http.client.HTTPException, EOFError):
                pass  # killed
            except (DecodeError, ClauseViolation) as exc:
                self.violations.append(str(exc))

    def send(self, connection: http.client.HTTPConnection) -> None:
        """Send the unanswered messages again, or else the next ones, and record the answers."""
        if not self.unanswered:
            first = self.writer.seq + 1
            self.unanswered = list(range(first, first + self.per_request))
            self.writer.seq = self.unanswered[-1]
        body = b"".join(wrap_submit(self.writer.message(seq)) for seq in self.unanswered)
        connection.request("POST", "/v1/submit", body, {"Content-Type": CBOR_SEQ})
        response = connection.getresponse()
        answer = response.read()
        if response.status == 503:
            raise ConnectionError("the hub is unavailable")
        self._record(list(cbor.split_sequence(answer)))
        self.unanswered = []

    def _record(self, items: Sequence[bytes]) -> None:
        require_equal(len(items), len(self.unanswered), "answers to a sequence (H14)")
        for seq, item in zip(self.unanswered, items, strict=True):
            try:
                self.receipts[seq] = SubmitResponse.decode(item).receipt
                continue
            except DecodeError:
                error = ErrorEnvelope.decode(item)
            if error.code == "E.UNAVAILABLE":
                raise ConnectionError("the hub is unavailable")
            found = error.detail.detail_enum if error.detail is not None else error.code
            require(
                found == DUPLICATE.detail,
                f"client_seq {seq} was repeated after a crash and refused by {found}: {error.message}",
            )
            require(
                seq not in self.receipts,
                f"client_seq {seq} was acknowledged, repeated, and refused as a duplicate",
            )
            self.duplicates.add(seq)


@dataclass(slots=True)
class WriterLedger:
    """All writers of one label."""

    lanes: list[Lane]

    @property
    def acknowledged(self) -> int:
        """Messages whose receipt arrived."""
        return sum(len(lane.receipts) for lane in self.lanes)

    def check_newest(self, hub: HttpHub) -> None:
        """Check the last receipt of each writer; cheap enough for every round."""
        for lane in self.lanes:
            self._no_violations(lane)
            if lane.receipts:
                held = lane.receipts[max(lane.receipts)]
                page = hub.page(held.label, held.stream_seq, max_items=1)
                require(page.items, f"the message acknowledged at {held.stream_seq} is lost (H2)")
                require_equal(
                    page.items[0].receipt,
                    held,
                    f"the receipt at {held.stream_seq} after a kill: equivocation",
                )

    def check_all(self, hub: HttpHub) -> None:
        """Check every receipt, that no message is there twice, and that the whole log verifies."""
        log = VerifiedLog(hub, self.lanes[0].writer.label).read()
        by_message = {(pair.msg.client_id, int(pair.msg.client_seq)): pair.receipt for pair in log.entries}
        require_equal(len(by_message), len(log.entries), "different messages in the log (I8)")
        for lane in self.lanes:
            self._no_violations(lane)
            mine = lane.writer.client_id
            for seq, receipt in lane.receipts.items():
                found = by_message.get((mine, seq))
                require(found is not None, f"the acknowledged message {seq} of {mine.hex()[:8]} is lost (H2)")
                require_equal(found, receipt, f"the receipt of message {seq} after kills: equivocation")
            for seq in lane.duplicates:
                require(
                    (mine, seq) in by_message,
                    f"message {seq} was refused as a duplicate, but is not in the log",
                )

    @staticmethod
    def _no_violations(lane: Lane) -> None:
        if lane.violations:
            raise ClauseViolation(lane.violations[0])
