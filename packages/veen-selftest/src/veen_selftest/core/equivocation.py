"""One history: every request returns the same entry for a stream_seq (spec-1 §14)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from veen_core import cbor
from veen_core.api import ReceiptRequest, ReceiptResponse, StreamItem
from veen_core.equivocation import Statement, evidence_of
from veen_core.errors import DecodeError
from veen_core.hashing import H
from veen_core.ids import HubPk, Label, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.receipt import Receipt, sign_receipt
from veen_core.status import OkResponse
from veen_selftest.hubs.http_hub import CBOR_SEQ, HttpHub
from veen_selftest.peers.writer import key_of
from veen_selftest.runner.check import Check, ClauseViolation, require, require_equal
from veen_selftest.runner.context import CheckContext


def live(hub: HttpHub, label: Label, start: int, count: int) -> Iterator[StreamItem]:
    """Yield ``count`` items of the live stream (H15)."""
    held = b""
    for part in _live_parts(hub, f"/v1/stream/{label.hex()}?from={start}"):
        held += part
        while count and held:
            try:
                end = cbor.item_end(held)
            except DecodeError:
                break  # the item has not arrived whole
            yield StreamItem.decode(held[:end])
            held, count = held[end:], count - 1
        if not count:
            return
    raise ClauseViolation("the live stream ended (H15)")


def _live_parts(hub: HttpHub, path: str) -> Iterator[bytes]:
    if hub.other_transport is not None:
        yield from hub.other_transport.live(path, timeout=10)
        return
    with contextlib.closing(hub.connection(timeout=10)) as connection:
        connection.request("GET", hub.prefix + path)
        response = connection.getresponse()
        require_equal(
            (response.status, response.getheader("Content-Type")), (200, CBOR_SEQ), "a live stream (H15)"
        )
        while part := response.read1(65_536):
            yield part


def _one_history(context: CheckContext) -> None:
    """Submit, receipt, page and live stream return the same receipt for each stream_seq."""
    hub = context.hub()
    writer = context.writer(hub)
    wires = writer.many(9)
    given = hub.accept_many(wires)
    for _turn in range(3):
        for receipt in given:
            asked = ReceiptRequest(label=writer.label, stream_seq=receipt.stream_seq)
            found = hub.ask("/v1/receipt", asked, ReceiptResponse).receipt
            require_equal(found, receipt, f"the receipt at {receipt.stream_seq}, asked for again")
        page = list(hub.read_all(writer.label))
        require_equal([item.receipt for item in page], given, "receipts on pages")
        require_equal([item.msg.encode() for item in page], wires, "messages on pages, in order")
    streamed = list(live(hub, writer.label, 1, len(given)))
    require_equal([item.stream_seq for item in streamed], list(range(1, 10)), "the order of the live stream")
    require_equal([item.receipt for item in streamed], given, "receipts of the live stream")


def _distinct(context: CheckContext) -> None:
    """No two messages of a label get the same stream_seq (spec-1 §14)."""
    hub = context.hub()
    alice, bob = context.writer(hub), context.writer(hub, "bob")
    seen: dict[int, Receipt] = {}
    for _turn in range(6):
        for writer in (alice, bob):
            receipt = hub.accept(writer.next())
            held = seen.setdefault(receipt.stream_seq, receipt)
            require(held == receipt, f"two receipts for stream_seq {receipt.stream_seq}: equivocation")
    require_equal(sorted(seen), list(range(1, 13)), "stream_seqs of all receipts")


def _report(context: CheckContext) -> None:
    """The hub accepts valid evidence of equivocation and refuses invalid evidence (AUTH1 3.4)."""
    hub = context.hub()
    liar = key_of(context.secret, "liar")
    statements = []
    for leaf in (b"one", b"other"):
        unsigned = Receipt(
            label=Label(H(b"label")),
            stream_seq=StreamSeq(1),
            leaf_hash=LeafHash(H(leaf)),
            mmr_root=MmrRoot(H(leaf)),
            hub_ts=UnixTime(1_700_000_000),
        )
        statements.append(Statement(hub_pk=HubPk(liar.public), receipt=sign_receipt(liar, unsigned)))
    evidence = evidence_of(*statements)
    require(
        hub.post("/tooling/equivocation", evidence).read(OkResponse).ok, "valid evidence was not accepted"
    )
    wire = evidence.encode()
    broken = wire[:-1] + bytes([wire[-1] ^ 1])
    for name, body in (("a broken signature", broken), ("no receipts", b"\xa0")):
        answer = hub.post("/tooling/equivocation", body)
        require(answer.status != 200, f"evidence with {name} was accepted")
        require_equal(answer.error.code, "E.BAD_REQUEST", f"code of evidence with {name}")


CHECKS: Final = (
    Check("equivocation.one-history", "spec-1 §14, H15", _one_history),
    Check("equivocation.distinct", "spec-1 §14", _distinct),
    Check("equivocation.report", "AUTH1 3.4", _report),
)
