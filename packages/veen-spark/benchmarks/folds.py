"""The figures ``spark.fold`` and ``spark.skew`` of ``run.py``.

``spark.fold``   wallet events in chunk files, opened, decoded and folded: the time of one plain process
                 divided by the time of local[2], with a warm session and warm workers
``spark.skew``   the same number of events: the time with equal labels divided by the time with one label that
                 has 90 % of them

All folds must give the state hashes that the records have when the logs are written; otherwise there is no
figure. veen-storage writes the logs, sealed and signed message by message, which takes about as long as all
timed work.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import logs
from pyspark.sql import SparkSession

from veen_core import stream
from veen_core.ciphertext import Binding
from veen_core.entry import split_frames
from veen_core.hashing import H
from veen_core.ids import ClientId, ClientSeq, Label, StreamSeq, UnixTime
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.msg import Msg, seal_msg
from veen_core.payload import PayloadHeader
from veen_core.profile import DEFAULT_PROFILE
from veen_overlays.fold.event import MemorySeenKeys, Message
from veen_overlays.identifiers import CtxId, RealmId, TransferId, wallet_id
from veen_overlays.live.opening import open_entry
from veen_overlays.schema.record import Record
from veen_overlays.wallet.ledger import LEDGER
from veen_overlays.wallet.records import Deposit, Open, Transfer, Withdraw
from veen_spark.fold.folding import PARTITION_BYTES, fold
from veen_spark.functions.reader_keys import ReaderKeys
from veen_storage.store import Store, create

BORN: Final = UnixTime(1_700_000_000)
READER: Final = DhKey(DhSecret(H(b"benchmark reader")))
WRITER: Final = SigningKey(SigningSeed(H(b"benchmark writer")))
HUB: Final = SigningKey(SigningSeed(H(b"benchmark hub")))
REALM: Final = RealmId(H(b"realm"))
OWNERS: Final = [CtxId(H(bytes([n]))) for n in range(200)]
WALLETS: Final = [wallet_id(REALM, owner, "USD") for owner in OWNERS]
LABELS: Final = 10
BATCH: Final = 1_000
EXPECTED: Final = "expected.json"
"""Suffix of the file with the expected state hash of each label, in hex."""


def record(rng: random.Random, n: int) -> Record:
    """Return record ``n``: first every wallet is opened, then there are deposits, withdrawals, transfers."""
    if n <= len(WALLETS):
        ctx = OWNERS[n - 1]
        return Open(wallet_id=WALLETS[n - 1], realm_id=REALM, ctx_id=ctx, currency="USD", created_at=BORN)
    a, b = rng.sample(WALLETS, 2)
    ts, amount, kind = UnixTime(BORN + n), rng.randrange(1, 500), rng.random()
    if kind < 0.45:
        return Deposit(wallet_id=a, amount=amount, ts=ts)
    if kind < 0.7:
        return Withdraw(wallet_id=a, amount=amount, ts=ts)
    return Transfer(
        wallet_id=a, to_wallet_id=b, amount=amount, ts=ts, transfer_id=TransferId(rng.randbytes(32))
    )


def sealed(work: tuple[bytes, int, int]) -> list[tuple[Msg, bytes, Message]]:
    """Return ``count`` sealed messages from client_seq ``first`` on, deterministically."""
    to, first, count = work
    rng = random.Random(to + first.to_bytes(8, "big"))  # noqa: S311 - not secrets
    made = []
    for n in range(first, first + count):
        body = record(rng, n)
        binding = Binding(
            profile_id=DEFAULT_PROFILE.profile_id,
            label=Label(to),
            client_id=ClientId(WRITER.public),
            client_seq=ClientSeq(n),
            prev_ack=StreamSeq(0),
        )
        header, ephemeral = PayloadHeader(schema=body.SCHEMA), DhSecret(rng.randbytes(32))
        done = seal_msg(
            WRITER,
            READER.public,
            binding,
            header,
            body.encode(),
            profile=DEFAULT_PROFILE,
            ephemeral=ephemeral,
        )
        plain = Message(n, bytes(done.msg.leaf_hash), bytes(body.SCHEMA), body.encode())
        made.append((done.msg, done.wire, plain))
    return made


def write_log(root: Path, sizes: Mapping[str, int]) -> None:
    """Write a data directory with this many messages per stream, and the expected states."""
    identity = create(root, HUB, BORN)
    store = Store(root, background=False)
    names = {name: bytes(_label(identity.hub_id, name)) for name in sizes}
    work = [
        (names[name], first, min(BATCH, size - first + 1))
        for name, size in sizes.items()
        for first in range(1, size + 1, BATCH)
    ]
    seen, states = (
        {to: MemorySeenKeys() for to in names.values()},
        dict.fromkeys(names.values(), LEDGER.fold(())),
    )
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for now, ((to, _, _), messages) in enumerate(
            zip(work, pool.imap(sealed, work), strict=True), start=1
        ):
            batch = store.batch(UnixTime(BORN + now))
            for msg, wire, _ in messages:
                batch.add(msg, wire, msg.leaf_hash)
            store.commit(batch)
            store.apply()
            more = LEDGER.fold((plain for _, _, plain in messages), seen[to])
            states[to] = LEDGER.combine(states[to], more)
    store.close()
    hashes = {to.hex(): LEDGER.state_hash(summary).hex() for to, summary in states.items()}
    root.with_name(f"{root.name}.{EXPECTED}").write_text(json.dumps(hashes), encoding="ascii")


def expected(root: Path) -> dict[bytes, bytes]:
    held = json.loads(root.with_name(f"{root.name}.{EXPECTED}").read_text(encoding="ascii"))
    return {bytes.fromhex(label): bytes.fromhex(digest) for label, digest in held.items()}


def _label(hub_id: Any, name: str) -> Label:
    return stream.label(stream.routing_key(hub_id), stream.stream_id(name), stream.epoch_at(BORN, 0))


def in_one_process(root: Path) -> dict[bytes, bytes]:
    """Fold the same files in plain Python, label by label."""
    chunks: dict[str, list[Path]] = {}
    for file in (*root.rglob("chunk-*.log"), *root.rglob("chunk-*.open")):
        chunks.setdefault(file.name.split("-")[1], []).append(file)
    found = {}
    for label, files in chunks.items():
        files.sort(key=lambda file: file.stem.split("-")[2])
        entries = (entry for file in files for entry in split_frames(file.read_bytes()))
        summary = LEDGER.fold(open_entry(entry, entry.receipt, READER) for entry in entries)
        found[bytes.fromhex(label)] = bytes(LEDGER.state_hash(summary))
    return found


def on_spark(spark: SparkSession, root: Path, keys: ReaderKeys) -> dict[bytes, bytes]:
    logs = spark.read.format("veen").option("maxPartitionBytes", PARTITION_BYTES).load(str(root))
    return {bytes(row.label): bytes(row.state_hash) for row in fold(logs, LEDGER, keys).collect()}


def timed(work: Callable[[], dict[bytes, bytes]]) -> tuple[float, dict[bytes, bytes]]:
    begun = time.perf_counter()
    answer = work()
    return time.perf_counter() - begun, answer


@cache  # one measurement gives both figures
def measured(spark: SparkSession, folder: Path, entries: int) -> Mapping[str, float]:
    """Measure both figures on logs in ``folder``, which are written first."""
    hot = entries * 9 // 10
    rest = (entries - hot) // (LABELS - 1)
    sizes = {
        "even": {f"even/{n}": entries // LABELS for n in range(LABELS)},
        "hot": {"hot": hot, **{f"hot/{n}": rest for n in range(LABELS - 1)}},
        "warm": {
            f"warm/{n}": max(1_000, entries // 100) for n in range(LABELS)
        },  # enough work for every worker
    }
    for name, streams in sizes.items():
        logs.once(folder / name, partial(write_log, sizes=streams))
    keys = ReaderKeys.broadcast(spark, [READER])
    on_spark(spark, folder / "warm", keys)
    subjects: dict[str, Callable[[], dict[bytes, bytes]]] = {
        "plain": lambda: in_one_process(folder / "even"),
        "spark": lambda: on_spark(spark, folder / "even", keys),
        "hot": lambda: on_spark(spark, folder / "hot", keys),
    }
    seconds = {}
    for name, work in subjects.items():
        seconds[name], answer = timed(work)
        if answer != expected(folder / ("hot" if name == "hot" else "even")):
            raise SystemExit(f"{name}: the states differ from the expected ones")
    sys.stderr.write(f"{entries} entries: {', '.join(f'{k} {v:.1f} s' for k, v in seconds.items())}\n")
    return {
        "spark.fold": seconds["plain"] / seconds["spark"],
        "spark.skew": seconds["spark"] / seconds["hot"],
    }
