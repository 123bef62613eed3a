"""A label's log, verified from its first entry on: every signature, rule and root (core §7, §9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from veen_core import stream
from veen_core.checkpoint import LabelOrigin
from veen_core.entry import Entry
from veen_core.ids import Label, StreamId
from veen_core.log_rules import LogTerms
from veen_core.log_verifier import LogVerifier
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.runner.check import require, require_equal


@dataclass(slots=True)
class VerifiedLog:
    """Entries in stream order, each verified against all before it."""

    hub: HttpHub
    label: Label
    stream_id: StreamId | None = None
    entries: list[Entry] = field(default_factory=list)
    roots: list[bytes] = field(default_factory=list)
    verifier: LogVerifier = field(init=False)

    def __post_init__(self) -> None:
        known, origin = self.hub.known, None
        if self.stream_id is not None:
            origin = LabelOrigin(
                routing_key=stream.routing_key(known.identity.hub_id),
                stream_id=self.stream_id,
                epoch_sec=known.profile.epoch_sec,
                max_skew_sec=known.limits.max_epoch_skew_sec,
            )
        terms = LogTerms(
            label=self.label,
            identity=known.identity,
            profile=known.profile,
            limits=known.limits,
            origin=origin,
        )
        self.verifier = LogVerifier(terms)

    @property
    def tree(self) -> Mmr:
        """The tree over the entries so far."""
        assert self.verifier.tree is not None
        return self.verifier.tree

    def add(self, entry: Entry) -> None:
        """Verify one more entry; an error names the rule that the entry breaks."""
        self.verifier.accept(entry)
        self.roots.append(self.tree.root)
        self.entries.append(entry)

    def read(self) -> VerifiedLog:
        """Read and verify the whole log, page by page."""
        for entry in read_entries(self.hub, self.label):
            require_equal(
                entry.receipt.stream_seq, self.tree.size + 1, "stream_seq of the next item (core §10.2)"
            )
            self.add(entry)
        return self


def read_entries(hub: HttpHub, label: Label) -> Iterator[Entry]:
    """Yield every entry of the log in order, not verified."""
    for item in hub.read_all(label):
        require(
            item.receipt is not None, f"entry {item.stream_seq} has no receipt, although it was asked for"
        )
        assert item.receipt is not None
        yield Entry(item.msg.label, item.receipt.stream_seq, item.msg.encode(), item.receipt.encode())


def verify_entries(
    hub: HttpHub, label: Label, wires: Sequence[bytes], receipts: Sequence[Receipt]
) -> VerifiedLog:
    """Verify messages that were sent, with their receipts, as the whole log of a label."""
    log = VerifiedLog(hub, label)
    for wire, receipt in zip(wires, receipts, strict=True):
        log.add(Entry(receipt.label, receipt.stream_seq, wire, receipt.encode()))
    return log
