"""The work of one process over its part of a log; importable by name, so that a process can be given it."""

from __future__ import annotations

import random
from functools import reduce

from veen_overlays.fold.event import Event, IgnoredMessage
from veen_overlays.wallet.ledger import LEDGER


def in_a_random_tree(seed: int, events: list[Event | IgnoredMessage]) -> bytes:
    """A partition, as another process gets it: settled events in, canonical bytes out."""
    rng = random.Random(seed)
    parts = [LEDGER.summarise(event) for event in events]
    while len(parts) > 1:
        size = rng.choice((2, 3, 7))
        parts = [reduce(LEDGER.combine, parts[n : n + size]) for n in range(0, len(parts), size)]
    return LEDGER.encode(parts[0])
