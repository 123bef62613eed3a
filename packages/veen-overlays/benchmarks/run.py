"""Benchmarks of veen-overlays: ratios measured within one run, one JSON line per figure.

    python packages/veen-overlays/benchmarks/run.py            some minutes
    python packages/veen-overlays/benchmarks/run.py --quick    under a minute; folds 10^5 events, not 10^6
    python packages/veen-overlays/benchmarks/run.py --only overlays.fold_ops

- ``overlays.fold``: rate of folding wallet events, from bytes to state, divided by that of bare cbor2.loads
- ``overlays.fold_ops``: the same for the slowest fold of the operation profiles, on a tenth of the events
- ``overlays.range_growth``: time of fold(range) over a cached tree of 10^6 events, divided by that over 10^3
- ``overlays.restart_growth``: time of a restart from LMDB at 10^6 events, divided by that at 10^4
- ``query.verify``: time to verify a result of 10^4 rows with full evidence, divided by two Ed25519
  verifications per row
- ``query.evidence_bytes``: bytes of that evidence per row
- ``disc.query_growth``: time of queries over 10^5 descriptors of hubs and services, divided by that over 10^3
- the figures of ``query_view``, except in a tiny run; they need the extra ``service``

Subject and reference are timed alternately in processor time, and the fastest round of each counts. The log
is in memory before, and exempt from garbage collection.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cbor2
import operation_folds
from discovery_query import query_growth
from query_result import result_figures

from veen_core import (
    DEFAULT_PROFILE,
    Binding,
    ClientId,
    DhKey,
    DhSecret,
    Entry,
    Label,
    Mmr,
    PayloadHeader,
    Receipt,
    SigningKey,
    SigningSeed,
    StreamSeq,
    seal_msg,
)
from veen_core.hashing import H, u64be
from veen_core.ids import ClientSeq, UnixTime
from veen_core.receipt import sign_receipt
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.identifiers import CtxId, RealmId, TransferId, wallet_id
from veen_overlays.live import Materializer
from veen_overlays.schema.record import Record
from veen_overlays.summary_tree.nodes import SeqRange
from veen_overlays.summary_tree.store import MemoryStore
from veen_overlays.summary_tree.tree import BLOCK_HEIGHT, SummaryTree, drive
from veen_overlays.wallet.ledger import one_wallet
from veen_overlays.wallet.records import Adjust, Deposit, Freeze, Limit, Open, Transfer, Unfreeze, Withdraw
from veen_storage.index.view_store import ViewStore

REALM, CTX = RealmId(b"\x01" * 32), CtxId(b"\x02" * 32)
WALLET, OTHER = wallet_id(REALM, CTX, "USD"), wallet_id(REALM, CTX, "EUR")
LABEL = Label(b"\x03" * 32)
READER = DhKey(DhSecret(b"\x04" * 32))
HUB, WRITER = SigningKey(SigningSeed(b"\x05" * 32)), SigningKey(SigningSeed(b"\x06" * 32))
NOON = 1_700_006_400
OVERLAY = one_wallet(WALLET)
TAIL = 40
"""Entries of the open block, which a restart reads again."""
BLOCK = 1 << BLOCK_HEIGHT


@dataclass(frozen=True)
class Sizes:
    """Numbers of events in the logs and trees, and rounds per figure."""

    fold: int
    many: int
    few: int
    restart_few: int
    rounds: tuple[int, int, int]
    """Rounds of the three figures of folds."""
    query_rows: int
    """Rows of the query result that is verified."""
    query_events: int
    """Events in the large query view."""
    descriptors: int = 100_000
    few_descriptors: int = 1_000


FULL = Sizes(
    fold=1_000_000,
    many=1_000_000,
    few=1_000,
    restart_few=10_000,
    rounds=(5, 20, 50),
    query_rows=10_000,
    query_events=1_000_000,
)
QUICK = Sizes(
    fold=100_000,
    many=1_000_000,
    few=1_000,
    restart_few=10_000,
    rounds=(10, 5, 10),
    query_rows=2_000,
    query_events=200_000,
)
TINY = Sizes(
    fold=500,
    many=1_280,
    few=200,
    restart_few=256,
    rounds=(1, 1, 1),
    query_rows=50,
    query_events=2_000,
    descriptors=80,
    few_descriptors=40,
)


def fastest(work: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def one_record(rng: random.Random, n: int) -> Record:
    """A random wallet event: mostly payments, a fifth of the deposits with a ref, some control events."""
    ts, amount, kind = UnixTime(NOON + n), rng.randrange(1, 500), rng.random()
    if kind < 0.42:
        ref = rng.randbytes(16) if kind < 0.08 else None
        return Deposit(wallet_id=WALLET, amount=amount, ts=ts, ref=ref)
    if kind < 0.70:
        return Withdraw(wallet_id=WALLET, amount=amount, ts=ts)
    if kind < 0.94:
        to, source = (OTHER, WALLET) if kind < 0.82 else (WALLET, OTHER)
        transfer = TransferId(rng.randbytes(32))
        return Transfer(wallet_id=source, to_wallet_id=to, amount=amount, ts=ts, transfer_id=transfer)
    if kind < 0.96:
        return Adjust(wallet_id=WALLET, delta=-amount, ts=ts, reason="count")
    if kind < 0.98:
        return Limit(wallet_id=WALLET, daily_limit=rng.randrange(10_000), ts=ts)
    return (Freeze if kind < 0.985 else Unfreeze)(wallet_id=WALLET, ts=ts)


def messages(count: int) -> Iterator[Message]:
    rng = random.Random(1)  # noqa: S311 - the same log every time
    first = Open(wallet_id=WALLET, realm_id=REALM, ctx_id=CTX, currency="USD", created_at=UnixTime(NOON))
    for n in range(1, count + 1):
        record = first if n == 1 else one_record(rng, n)
        yield Message(n, H(u64be(n)), bytes(record.SCHEMA), record.encode())


def fold_share(log: list[Message], rounds: int, overlay: Overlay[Any] = OVERLAY) -> float:
    """Rate of the fold without decryption, divided by the rate of decoding the same bodies unchecked."""
    bodies = [message.body for message in log]

    def loads() -> None:
        for body in bodies:
            cbor2.loads(body)

    best_fold = best_loads = float("inf")
    for _ in range(rounds):
        best_fold = min(best_fold, fastest(lambda: overlay.view(overlay.fold(log).inner), 1))
        best_loads = min(best_loads, fastest(loads, 1))
    return best_loads / best_fold


def slowest_operation_fold(count: int, rounds: int) -> float:
    """The smallest share of all folds of the operation profiles."""
    logs = [(each, list(operation_folds.messages(each, count))) for each in operation_folds.overlays()]
    gc.collect()
    gc.freeze()
    return min(fold_share(log, rounds, each) for each, log in logs)


class Grown(NamedTuple):
    """A tree over the first events of the log, and its store."""

    tree: SummaryTree[Any]
    store: MemoryStore


def grown(log: list[Message], size: int) -> Grown:
    store = MemoryStore()
    tree = SummaryTree(OVERLAY, LABEL, store)
    tree.extend(log[:size])
    return Grown(tree, store)


def range_growth(log: list[Message], large: Grown, small: Grown, rounds: int) -> float:
    """Time for 40 random ranges of the large tree, divided by that of the small tree; all nodes cached."""
    costs = []
    for tree in (large.tree, small.tree):
        rng = random.Random(2)  # noqa: S311
        ranges = [sorted((rng.randint(1, tree.size), rng.randint(1, tree.size))) for _ in range(40)]

        def read(wanted: SeqRange) -> Sequence[Message]:
            return log[wanted.from_seq - 1 : wanted.to_seq]

        def fold_all(tree: SummaryTree[object] = tree, ranges: list[list[int]] = ranges) -> None:
            for a, b in ranges:
                drive(tree.fold(a, b), read)

        costs.append(fastest(fold_all, rounds))
    return costs[0] / costs[1]


class Log:
    """The end of a log, which is all that a restart reads: receipts and the sealed open block."""

    def __init__(self, mmr: Mmr) -> None:
        self.stored = mmr.copy()
        self.entries = [self._entry(mmr, n) for n in range(mmr.size + 1, mmr.size + TAIL + 1)]

    def _entry(self, mmr: Mmr, n: int) -> Entry:
        binding = Binding(
            profile_id=DEFAULT_PROFILE.profile_id,
            label=LABEL,
            client_id=ClientId(WRITER.public),
            client_seq=ClientSeq(n),
            prev_ack=StreamSeq(n - 1),
        )
        record = Deposit(wallet_id=WALLET, amount=n, ts=UnixTime(NOON + n))
        sealed = seal_msg(
            WRITER,
            READER.public,
            binding,
            PayloadHeader(schema=record.schema_id),
            record.encode(),
            profile=DEFAULT_PROFILE,
            ephemeral=DhSecret(H(u64be(n))),
        )
        mmr.add(sealed.msg.leaf_hash)
        return Entry(LABEL, StreamSeq(n), sealed.wire, _receipt(mmr, sealed.msg.leaf_hash).encode())

    async def head(self, label: Label) -> Receipt | None:  # noqa: ARG002
        return self.entries[-1].receipt

    async def receipt(self, label: Label, stream_seq: StreamSeq) -> Receipt:  # noqa: ARG002
        if stream_seq == self.stored.size:
            return _receipt(self.stored, bytes(32))
        return self.entries[stream_seq - self.stored.size - 1].receipt

    async def page(self, label: Label, from_seq: StreamSeq, max_items: int) -> Sequence[Entry]:  # noqa: ARG002
        start = from_seq - self.stored.size - 1
        return self.entries[start : start + max_items]


def _receipt(mmr: Mmr, leaf: bytes) -> Receipt:
    return sign_receipt(
        HUB,
        Receipt(
            label=LABEL,
            stream_seq=mmr.stream_seq,
            leaf_hash=leaf,  # type: ignore[arg-type]
            mmr_root=mmr.root,
            hub_ts=UnixTime(NOON),
        ),
    )


def restart_growth(large: Grown, small: Grown, rounds: int) -> float:
    """Time to open the store, load and check the tree, read the open block and answer; large / small."""
    with tempfile.TemporaryDirectory() as folder:
        restarts = [restarting(each, Path(folder) / str(each.tree.size)) for each in (large, small)]
        costs = [float("inf"), float("inf")]
        for _ in range(rounds):
            costs = [min(cost, fastest(work, 1)) for cost, work in zip(costs, restarts, strict=True)]
        return costs[0] / costs[1]


def restarting(folded: Grown, path: Path) -> Callable[[], None]:
    """Write the store of a folded log to disk; return a function that restarts from it."""
    end = Log(folded.tree.mmr.copy())
    with ViewStore(path) as store:
        store.write(dict(folded.store.scan(b"", b"\xff" * 64)))

    async def restart() -> None:
        with ViewStore(path) as store:
            view = Materializer(OVERLAY, LABEL, end, key=READER, store=store)  # type: ignore[arg-type]
            await view.open()
            await view.catch_up()
            answer = await view.state()
            assert answer.range.to_seq == end.stored.size + TAIL

    return lambda: asyncio.run(restart())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and a fold of 10^5 events")
    parser.add_argument("--tiny", action="store_true", help="check that it runs; the figures mean nothing")
    parser.add_argument("--only", default="", metavar="NAME", help="figures whose names begin so")
    options = parser.parse_args()
    sizes = TINY if options.tiny else QUICK if options.quick else FULL
    rounds = sizes.rounds

    @cache
    def log() -> list[Message]:
        made = list(messages(sizes.many))
        gc.collect()
        gc.freeze()
        return made

    @cache
    def large() -> Grown:
        return grown(log(), sizes.many - sizes.many % BLOCK)

    result = cache(lambda: result_figures(sizes.query_rows, min(rounds[0], 5)))
    figures: tuple[tuple[str, Callable[[], float], float, bool], ...] = (
        ("overlays.fold", lambda: fold_share(log()[: sizes.fold], rounds[0]), 0.10, True),
        ("overlays.fold_ops", lambda: slowest_operation_fold(sizes.fold // 10, rounds[0]), 0.10, True),
        (
            "overlays.range_growth",
            lambda: range_growth(log(), large(), grown(log(), sizes.few), rounds[1]),
            3.0,
            False,
        ),
        (
            "overlays.restart_growth",
            lambda: restart_growth(
                large(), grown(log(), sizes.restart_few - sizes.restart_few % BLOCK), rounds[2]
            ),
            1.5,
            False,
        ),
        ("query.verify", lambda: result().verify, 1.5, False),
        ("query.evidence_bytes", lambda: result().evidence_bytes, 600, False),
        (
            "disc.query_growth",
            lambda: query_growth(sizes.descriptors, sizes.few_descriptors, rounds[0]),
            1.5,
            False,
        ),
    )
    missed = 0
    for name, measure, target, at_least in figures:
        if not name.startswith(options.only):
            continue
        value = round(measure(), 3)
        ok = value >= target if at_least else value <= target
        missed += not ok
        print(json.dumps({"name": name, "value": value, "target": target, "ok": ok}), flush=True)  # noqa: T201
    if not options.tiny and not options.only:
        import query_view  # noqa: PLC0415 - needs the extra ``service``, which a tiny run may lack

        missed += query_view.measure(10_000, sizes.query_events, rounds[2])
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
