"""Waiting until the hub log covers what was written: each label's head is that of its newest receipt (P1)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from veen_core.receipt import Receipt
from veen_core.stream import stream_id
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.hub_log_reader import PeerHubLogView, try_checkpoint
from veen_selftest.peers.tree_verifier import HeadEntry
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import ClauseViolation, require, require_equal
from veen_selftest.runner.context import CheckContext

T = TypeVar("T")

MIN_WAIT_SEC: Final = 1.5
"""Least time until the hub log shows a change: the cadence of a hub with default settings, and a half."""
MAX_ANSWER_SEC: Final = 30.0
"""Longest time until a hub has asked its memories, one of which may have been silent for a while."""
REMEDY: Final = "veen hub"
"""Start of the commands that a hub names if only its operator can let it sign again (P3)."""
POLL_SEC: Final = 0.02


def max_seconds(context: CheckContext) -> float:
    """Return how long a change may take to appear in the hub log."""
    return max(MIN_WAIT_SEC, context.options.max_wait)


def wait_for(
    context: CheckContext, what: str, found: Callable[[], T | None], seconds: float | None = None
) -> T:
    """Return the first value other than None; raise ``ClauseViolation`` if there is none in time."""
    seconds = max_seconds(context) if seconds is None else seconds
    deadline = time.monotonic() + seconds
    while (value := found()) is None:
        if time.monotonic() > deadline:
            raise ClauseViolation(f"{what} after {seconds:g} s")
        time.sleep(POLL_SEC)
    return value


def wait_until_signing(context: CheckContext, hub: HttpHub) -> None:
    """Wait until the hub signs: its memories must have answered (P3)."""

    def found() -> bool | None:
        why = hub.status().not_signing
        require(why is None or REMEDY not in why, f"the hub waits for its operator: {why}")
        return True if why is None else None

    wait_for(context, "the hub does not sign (P3)", found, MAX_ANSWER_SEC)


class HeadCollector:
    """The newest head of every label, from the entries of a hub log in order, from ``size`` on."""

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.newest: dict[bytes, HeadEntry] = {}

    def read(self, view: PeerHubLogView) -> None:
        """Read the entries that were added; require that each continues its label (P1, I3, H3)."""
        for head in view.heads(self.size):
            before = self.newest.get(head.label)
            label = head.label.hex()[:16]
            require(head.upto_seq > 0, f"label {label} has a head at 0 in the hub log (P1)")
            if before is not None:
                require(
                    head.upto_seq > before.upto_seq,
                    f"upto_seq of label {label} does not grow in the hub log: "
                    f"{before.upto_seq}, then {head.upto_seq} (P1)",
                )
                require(head.hub_ts >= before.hub_ts, f"hub_ts of label {label} decreases (H3)")
            self.newest[head.label] = head
        self.size = view.size


def size_of(hub: HttpHub) -> int:
    """Return the size of the hub log now, 0 if there is no hub checkpoint yet."""
    found = try_checkpoint(hub)
    return found.size if found is not None else 0


def wait_for_heads(
    context: CheckContext, hub: HttpHub, receipts: Iterable[Receipt], start: int = 0
) -> PeerHubLogView:
    """Wait until each receipt is its label's head in the hub log; read entries from ``start`` on."""
    wanted = {bytes(receipt.label): head_of(receipt) for receipt in receipts}
    collected = HeadCollector(start)

    def covering() -> PeerHubLogView | None:
        checkpoint = try_checkpoint(hub)
        size = checkpoint.size if checkpoint is not None else 0
        require(size >= collected.size, f"the hub log shrank from {collected.size} to {size} entries (P1)")
        if checkpoint is None or size == collected.size:
            return None
        view = PeerHubLogView(hub, checkpoint)
        view.check_root()
        collected.read(view)
        for label, head in wanted.items():
            found = collected.newest.get(label)
            if found is None or found.upto_seq < head.upto_seq:
                return None
            require_equal(found, head, f"head of label {label.hex()[:16]} in the hub log (P1)")
        return view

    what = f"the hub log does not cover {len(wanted)} labels that were written to (P1)"
    return wait_for(context, what, covering)


def head_of(receipt: Receipt) -> HeadEntry:
    """Return the entry of the hub log that a label's newest receipt gives (P1)."""
    return HeadEntry(
        bytes(receipt.label), int(receipt.stream_seq), bytes(receipt.mmr_root), int(receipt.hub_ts)
    )


def write(context: CheckContext, writer: Writer, count: int = 1) -> tuple[Receipt, PeerHubLogView]:
    """Write messages and wait until the hub log covers them; returns the newest receipt and the view."""
    start = size_of(writer.hub)
    receipt = writer.hub.accept_many(writer.many(count))[-1]
    return receipt, wait_for_heads(context, writer.hub, [receipt], start)


def write_labels(context: CheckContext, hub: HttpHub, count: int, on: str) -> list[Receipt]:
    """Write one message to each of ``count`` new labels, in as few requests as possible."""
    names = [context.stream_name(f"{on} {n}") for n in range(count)]
    writer = context.writer_without_token(hub, on, on=on)
    if hub.known.gating:
        writer.authorized(streams=names)
    epoch = hub.status().epoch if hub.known.profile.epoch_sec else 0
    labels = [bytes(hub.label(stream_id(name), epoch)) for name in names]
    return hub.accept_many([writer.message(1, label=label) for label in labels])
