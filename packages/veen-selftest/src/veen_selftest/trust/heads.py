"""The content of the hub log: every label with its newest head, in order, within the cadence (P1)."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HUB_LOG
from veen_selftest.trust.coverage import size_of, wait_for_heads, write_labels

LABELS: Final = 5
ORDERED_LABELS: Final = 32
MAX_EXTENSIONS: Final = 6
"""Extensions of the hub log that may share the labels of one request; any other order has more descents."""


def _heads(context: CheckContext) -> None:
    """Every label is in the hub log with the head of its newest receipt, within the cadence (P1)."""
    hub = context.hub()
    writers = [context.writer(hub, on=f"label {n}") for n in range(LABELS)]
    for turn in range(2):
        start = size_of(hub)
        receipts = [hub.accept_many(writer.many(n + 1))[-1] for n, writer in enumerate(writers[turn:])]
        wait_for_heads(context, hub, receipts, start)
        context.progress(turn + 1, 2)


def _order(context: CheckContext) -> None:
    """Each extension of the hub log has one entry per label that grew, in order of labels (P1)."""
    hub = context.hub(HUB_LOG)
    start = size_of(hub)
    receipts = write_labels(context, hub, ORDERED_LABELS, "many")
    mine = {bytes(receipt.label) for receipt in receipts}
    view = wait_for_heads(context, hub, receipts, start)
    found = [head.label for head in view.heads(start) if head.label in mine]
    require_equal(len(found), len(mine), "entries of labels that were written to once (P1)")
    descents = sum(one >= next_ for one, next_ in pairwise(found))
    require(
        descents < MAX_EXTENSIONS,
        f"{len(mine)} labels of one request are not in order of labels: {descents} descents (P1)",
    )


CHECKS: Final = (
    Check("hub-log.heads", "P1", _heads),
    Check("hub-log.order", "P1", _order),
)
