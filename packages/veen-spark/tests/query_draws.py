"""Random logs of recorder events and random queries over them, for engines that must agree to the byte.

    logs = draw_logs(random.Random(7))              # sources in memory, with real receipts and roots
    descriptor = draw_descriptor(random.Random(8), logs)

The same seed gives the same logs and queries. Values are few and odd, so that filters match and groups meet:
integers beyond 2^53 and 2^64 - 1, texts that JSON escapes, missing paths, arrays and objects.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from veen_core import stream as streams
from veen_core.hashing import H
from veen_core.ids import Epoch, HubId, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt, sign_receipt
from veen_overlays.live.query_view import QueryView
from veen_overlays.live.query_view.files.data_files import ViewRow
from veen_overlays.query import canonical_json
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.event import SourceEvent
from veen_overlays.query.plain_engine import SourceLog
from veen_overlays.query.request.descriptor import QueryDescriptor, normalise
from veen_overlays.query.request.timestamp import format_timestamp
from veen_overlays.query.result.coverage import Prefix
from veen_spark.query.event_rows import VIEW_SCHEMA
from veen_spark.query.event_view import EventView

from .logs import BORN, signing_key

STREAMS = ("record/app/http", "record/security/login", "record/ä %2F/{x}")
HUBS = tuple(HubId(H(b"hub" + bytes([n]))) for n in range(2))
HOMES = dict.fromkeys(STREAMS, HUBS[0])
"""The hub of the empty source of each stream."""
SUBJECTS = ("user:1", "user:2", "", "ünï\u2028c\ud7ff\U0001f600", 'a"b\\c\n')
TYPES = ("http.request", "login", "z")
ORIGINS = ("api-1", "api-2", "𐀀")
PRINCIPALS = tuple(H(b"principal" + bytes([n])) for n in range(3))
TIMES = (0, 1, 1_700_000_000_123, 253_402_300_800_000, 2**63, 2**64 - 1)
SCALARS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    404,
    2**53 + 1,
    2**64 - 1,
    -(2**64),
    "",
    "a",
    "é",
    "\ue000",
    "😀",
    b"\x00\xff",
)
KEYS = ("status", "path", "n", "deep", "ключ")
PATHS = (
    "payload.status",
    "payload.n",
    "payload.deep.n",
    "payload.deep.0",
    "payload.path",
    "payload.none",
    "payload",
)
GROUPS = (
    "subject_id",
    "event_type",
    "origin",
    "stream",
    "hub_id",
    "attributed",
    "principal_id",
    "event_time",
    "hub_commit_time",
    "payload.status",
    "payload.deep.n",
    "payload.path",
    "payload.deep",
)
FIELDS = (*GROUPS, "hub_commit_seq", "receipt_id", "payload", "payload.n", "payload.deep.0")


def _payload(rng: random.Random, depth: int = 2) -> Any:
    if not depth or rng.random() < 0.2:
        return rng.choice(SCALARS)
    if rng.random() < 0.2:
        return [_payload(rng, depth - 1) for _ in range(rng.randrange(3))]
    numbers = {"n": rng.choice((1, 2, 3, 2**64 - 1))} if rng.random() < 0.7 else {}
    return {key: _payload(rng, depth - 1) for key in rng.sample(KEYS, rng.randrange(4))} | numbers


def _event(rng: random.Random, prefix: dict[str, Any], receipt: Receipt) -> SourceEvent:
    return SourceEvent(
        **prefix,
        seq=receipt.stream_seq,
        hub_commit_time=receipt.hub_ts * 1000,
        subject_id=rng.choice(SUBJECTS),
        principal_id=rng.choice(PRINCIPALS),
        event_type=rng.choice(TYPES),
        event_time=rng.choice(TIMES),
        origin=rng.choice(ORIGINS),
        payload_json=canonical_json.encode(_payload(rng)),
        attributed=rng.random() < 0.5,
        receipt=receipt.encode(),
        leaf_hash=receipt.leaf_hash,
    )


class DrawnLog(NamedTuple):
    """A source in memory, and the receipt of each entry, also of those without an event."""

    log: SourceLog
    receipts: list[Receipt]

    @property
    def prefix(self) -> Prefix:
        return self.log.prefix


def _source(rng: random.Random, stream: str, hub: HubId, epoch: int, size: int) -> DrawnLog:
    label = streams.label(streams.routing_key(hub), streams.stream_id(stream), Epoch(epoch))
    place = {"stream": stream, "hub_id": hub, "label": label, "epoch": epoch}
    tree, now, entries = Mmr(), BORN + epoch * 86_400, list[SourceEvent | EntryKind]()
    receipts: list[Receipt] = []
    for seq in range(1, size + 1):
        now += rng.choice((0, 0, 1, 40_000))
        leaf = LeafHash(rng.randbytes(32))
        tree.add(leaf)
        unsigned = Receipt(
            label=label, stream_seq=StreamSeq(seq), leaf_hash=leaf, mmr_root=tree.root, hub_ts=UnixTime(now)
        )
        receipts.append(sign_receipt(signing_key("hub/0"), unsigned))
        event = _event(rng, place, receipts[-1])
        other = rng.random() < 0.2
        entries.append(
            rng.choice([EntryKind.UNOPENED, EntryKind.PRUNED, EntryKind.OTHER]) if other else event
        )
    prefix = Prefix(**place, to_seq=size, mmr_root=tree.root if size else None)
    return DrawnLog(SourceLog(prefix=prefix, entries=entries), receipts)


def draw_logs(rng: random.Random, *, largest: int = 24) -> list[DrawnLog]:
    """Return one to five sources: streams of two hubs in two epochs."""
    places = [(name, hub, epoch) for name in STREAMS for hub in HUBS for epoch in (0, 3)]
    chosen = rng.sample(places, rng.randrange(1, 6))
    return [_source(rng, *place, rng.choice((1, 3, largest))) for place in chosen]


def rows_of(drawn: DrawnLog) -> Iterator[ViewRow]:
    """Yield the rows of a source in the order of its entries."""
    prefix = drawn.prefix
    for entry, receipt in zip(drawn.log.entries, drawn.receipts, strict=True):
        head = (prefix.hub_id, prefix.label, prefix.epoch, receipt.stream_seq, receipt.hub_ts * 1000)
        tail = (bytes(receipt.leaf_hash), receipt.encode())
        if isinstance(entry, EntryKind):
            yield ViewRow(*head, *(None,) * 7, *tail, int(entry))
            continue
        told = (entry.subject_id, entry.principal_id, entry.event_type, entry.event_time, entry.origin)
        yield ViewRow(*head, *told, entry.payload_json.decode(), entry.attributed, *tail, 0)


def view_of(spark: SparkSession, logs: Sequence[DrawnLog], *, partitions: int = 3) -> EventView:
    """Return the logs as rows on Spark, shuffled over some partitions."""
    rows = [row._asdict() for drawn in logs for row in rows_of(drawn)]
    random.Random(len(rows)).shuffle(rows)
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=VIEW_SCHEMA)).repartition(partitions)
    return EventView(frame=frame, prefixes=tuple(drawn.prefix for drawn in logs), homes=HOMES)


def write_view(folder: Path, logs: Sequence[DrawnLog]) -> QueryView:
    """Write the logs as a view, as a follower does, in several commits; the caller closes it."""
    view = QueryView.open(folder)
    for drawn in logs:
        prefix = drawn.prefix
        source = view.source(prefix.stream, prefix.hub_id, prefix.label, prefix.epoch)
        for receipt, row in zip(drawn.receipts, rows_of(drawn), strict=True):
            wire = receipt.encode()
            source.add(source.extended(receipt, wire), receipt, wire)
            view.add(prefix.stream, row)
        view.note_homes(HOMES)
        view.commit()
        view.compact()
    return view


# --- queries


def draw_prefixes(
    rng: random.Random, logs: Sequence[DrawnLog], prefixes: Sequence[Prefix]
) -> tuple[Prefix, ...]:
    """Return the prefixes as they were earlier: some of them end before the log does."""
    receipts = {drawn.prefix.label: drawn.receipts for drawn in logs}
    return tuple(_earlier(rng, each, receipts.get(each.label, ())) for each in prefixes)


def _earlier(rng: random.Random, prefix: Prefix, receipts: Sequence[Receipt]) -> Prefix:
    if not prefix.size or rng.random() < 0.3:
        return prefix
    last = rng.choice(receipts)
    return replace(prefix, to_seq=last.stream_seq, mmr_root=MmrRoot(last.mmr_root))


def _filter(rng: random.Random) -> dict[str, Any]:
    item: dict[str, Any] = {}
    if rng.random() < 0.2:
        item["subject_id"] = rng.choice([each for each in SUBJECTS if each])
    if rng.random() < 0.3:
        item["event_type"] = rng.sample(TYPES, rng.randrange(1, 3))
    if rng.random() < 0.3:
        start = BORN * 1000 + rng.choice((0, 1, 40_000_000, 86_400_000))
        item["time"] = {
            "from": format_timestamp(start),
            "to": format_timestamp(start + rng.choice((1, 1_000, 40_000_000, 10**9))),
        }
    if rng.random() < 0.3:
        item["where"] = dict([_condition(rng) for _ in range(rng.randrange(1, 3))])
    return item


def _condition(rng: random.Random) -> tuple[str, Any]:
    bases: dict[str, Any] = {
        "origin": ORIGINS,
        "attributed": (True, False),
        "hub_commit_seq": (1, 2, 3),
        "principal_id": [p.hex() for p in PRINCIPALS],
        "stream": STREAMS,
        "hub_id": [h.hex() for h in HUBS],
    }
    if rng.random() < 0.5:
        name = rng.choice(list(bases))
        return name, rng.sample(list(bases[name]), rng.randrange(1, 3))
    values = [value.hex() if isinstance(value, bytes) else value for value in SCALARS]
    return rng.choice(PATHS), rng.sample(values, 6)


def _aggregate(rng: random.Random) -> dict[str, Any]:
    metrics = ["count"]
    for function in ("min", "max", "count_distinct"):
        metrics += [f"{function}({name})" for name in rng.sample(FIELDS, rng.randrange(3))]
    for function in ("sum", "avg"):
        if rng.random() < 0.3:
            metrics.append(f"{function}({rng.choice(('hub_commit_seq', 'payload.n', 'payload.none'))})")
    rng.shuffle(metrics)
    return {"group_by": rng.sample(GROUPS, rng.randrange(3)), "metrics": metrics}


def draw_descriptor(rng: random.Random, logs: Sequence[DrawnLog]) -> QueryDescriptor:
    """Return a valid query over some streams; some of them may have no entries."""
    filled = sorted({log.prefix.stream for log in logs})
    known = filled if rng.random() < 0.5 else list(STREAMS)
    projection = ["*"] if rng.random() < 0.3 else rng.sample(FIELDS, rng.randrange(1, 6))
    evidence = rng.choice([{"mode": "none"}, {"mode": "full"}, {"mode": "spot", "sample_rate": 0.25}])
    item: dict[str, Any] = {
        "query_id": f"q-{rng.randrange(2**32):08x}",
        "scope": rng.sample(known, rng.randrange(1, len(known) + 1)),
        "filter": _filter(rng),
        "projection": projection,
        "evidence": evidence,
    }
    if rng.random() < 0.5:
        item["aggregate"] = _aggregate(rng)
    return normalise(item, new_query_id="unused")
