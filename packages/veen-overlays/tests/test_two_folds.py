"""Two independent folds of 10^5 events: sequential here, in random trees in other processes (core §11.3)."""

from __future__ import annotations

import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from functools import reduce

from logs import log_of
from partition import in_a_random_tree
from strategies import lifted
from test_wallet import tight_record

from veen_overlays.fold.event import Event, IgnoredMessage, MemorySeenKeys, Message
from veen_overlays.fold.overlay import Summary
from veen_overlays.wallet.ledger import LEDGER, Accounts

SIZE = 100_000


def settled(log: list[Message]) -> list[Event | IgnoredMessage]:
    """The distinct events; finding duplicates needs one pass over the whole log."""
    seen = MemorySeenKeys()
    events = (LEDGER.distinct(message, seen) for message in log)
    return [event for event in events if event is not None]


def test_one_by_one_and_in_random_trees_in_other_processes_agree() -> None:
    rng = random.Random(11)
    distinct = [tight_record(rng) for _ in range(500)]
    log = log_of(*(rng.choice(distinct) for _ in range(SIZE)))
    one_by_one: Summary[Accounts] = reduce(LEDGER.combine, lifted(LEDGER, log), LEDGER.empty)
    events = settled(log)
    cuts = sorted(rng.sample(range(1, len(events)), 9))
    edges = zip([0, *cuts], [*cuts, len(events)], strict=True)
    partitions = [events[a:b] for a, b in edges]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        parts = list(pool.map(in_a_random_tree, range(len(partitions)), partitions))
    merged = LEDGER.merge(LEDGER.load(part) for part in parts)
    assert LEDGER.encode(merged) == LEDGER.encode(one_by_one)
    assert LEDGER.state_hash(merged) == LEDGER.state_hash(one_by_one) == LEDGER.state_hash(LEDGER.fold(log))
