"""The fold of one part of a log in another process; a module, so that processes can import it."""

from __future__ import annotations

import random
from functools import reduce

from veen_overlays.fold.event import Event, IgnoredMessage
from veen_overlays.wallet.ledger import LEDGER


def in_a_random_tree(seed: int, events: list[Event | IgnoredMessage]) -> bytes:
    """Fold the distinct events of a partition into canonical bytes."""
    rng = random.Random(seed)
    parts = [LEDGER.summarise(event) for event in events]
    while len(parts) > 1:
        size = rng.choice((2, 3, 7))
        parts = [reduce(LEDGER.combine, parts[n : n + size]) for n in range(0, len(parts), size)]
    return LEDGER.encode(parts[0])
