"""The figure ``query.spark_equal`` of ``run.py``: queries on Spark have the digests of the plain loop.

Recorder events are sealed, signed and written by veen-storage. Spark verifies the log, opens it and answers
two queries, one for rows with full evidence and one with aggregates over the payload. One process opens the
same files entry by entry and loops over the events. The figure is 1 if result_id, rows_hash and evidence_hash
of both queries are equal, else 0.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import folds
import logs
from pyspark.sql import SparkSession

from veen_core import stream
from veen_core.ciphertext import Binding
from veen_core.entry import Entry, split_frames
from veen_core.hub_identity import HubIdentity
from veen_core.ids import ClientId, ClientSeq, Label, StreamSeq, UnixTime
from veen_core.keys import DhSecret
from veen_core.msg import Msg, seal_msg
from veen_core.payload import PayloadHeader
from veen_core.profile import DEFAULT_PROFILE
from veen_overlays.query import canonical_json
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.event import SourceEvent
from veen_overlays.query.plain_engine import PlainEngine, SourceLog
from veen_overlays.query.request.descriptor import QueryDescriptor, normalise
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.result.digest import ResultDigest
from veen_overlays.query.result.result_file import Execution, make_digest
from veen_overlays.recorder.records import RecordEvent, UnixMilliseconds
from veen_spark.functions.reader_keys import ReaderKeys
from veen_spark.query.evidence import run_query
from veen_spark.query.log_view import view_of_logs
from veen_storage.store import Store, create

STREAMS: Final = ("record/app/http", "record/security/login")
BATCH: Final = 1_000
SUBJECTS: Final = 1_000
DIGESTS: Final = ("result_id", "rows_hash", "evidence_hash")
QUERIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "rows": {
        "filter": {"event_type": ["http.2"], "where": {"payload.status": [404]}},
        "projection": ["*"],
        "evidence": {"mode": "full"},
    },
    "aggregate": {
        "filter": {},
        "projection": ["*"],
        "aggregate": {
            "group_by": ["event_type", "payload.status"],
            "metrics": ["count", "sum(payload.bytes)", "avg(payload.bytes)", "count_distinct(subject_id)"],
        },
        "evidence": {"mode": "none"},
    },
}


def event(rng: random.Random, number: int) -> RecordEvent:
    """Return event ``number``."""
    return RecordEvent(
        subject_id=f"user:{rng.randrange(SUBJECTS)}",
        principal_id=ClientId(folds.WRITER.public),
        event_type=f"http.{rng.randrange(5)}",
        event_time=UnixMilliseconds(folds.BORN * 1000 + number),
        origin=f"gateway-{rng.randrange(8)}",
        payload={"status": rng.choice((200, 200, 401, 404)), "bytes": rng.randrange(2**40), "path": "/login"},
    )


def sealed(work: tuple[bytes, int, int]) -> list[tuple[Msg, bytes]]:
    """Return ``count`` sealed events from client_seq ``first`` on, deterministically."""
    to, first, count = work
    rng = random.Random(to + first.to_bytes(8, "big"))  # noqa: S311 - not secrets
    made = []
    for n in range(first, first + count):
        binding = Binding(
            profile_id=DEFAULT_PROFILE.profile_id,
            label=Label(to),
            client_id=ClientId(folds.WRITER.public),
            client_seq=ClientSeq(n),
            prev_ack=StreamSeq(0),
        )
        done = seal_msg(
            folds.WRITER,
            folds.READER.public,
            binding,
            PayloadHeader(schema=RecordEvent.SCHEMA),
            event(rng, n).encode(),
            profile=DEFAULT_PROFILE,
            ephemeral=DhSecret(rng.randbytes(32)),
        )
        made.append((done.msg, done.wire))
    return made


def write_log(root: Path, entries: int) -> None:
    """Write a data directory with the events of two streams."""
    identity = create(root, folds.HUB, folds.BORN)
    store = Store(root, background=False)
    size = entries // len(STREAMS)
    work = [
        (bytes(label_of(identity, name)), first, min(BATCH, size - first + 1))
        for name in STREAMS
        for first in range(1, size + 1, BATCH)
    ]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for now, messages in enumerate(pool.imap(sealed, work), start=1):
            batch = store.batch(UnixTime(folds.BORN + now))
            for msg, wire in messages:
                batch.add(msg, wire, msg.leaf_hash)
            store.commit(batch)
            store.apply()
    store.close()


def label_of(identity: HubIdentity, name: str) -> Label:
    routing = stream.routing_key(identity.hub_id)
    return stream.label(routing, stream.stream_id(name), stream.epoch_at(folds.BORN, 0))


def plain_engine(root: Path) -> PlainEngine:
    """Return the plain loop over the events, opened in this process with veen_core alone."""
    identity = HubIdentity.decode((root / "hub-identity.cbor").read_bytes())
    return PlainEngine([_source(root, identity, name) for name in STREAMS])


def _source(root: Path, identity: HubIdentity, name: str) -> SourceLog:
    label = label_of(identity, name)
    place = {"stream": name, "hub_id": identity.hub_id, "label": label, "epoch": 0}
    events, last = list[SourceEvent | EntryKind](), None
    for last in _entries(root, label):
        events.append(_opened(last, place))
    assert last is not None
    root_there = last.receipt.mmr_root
    return SourceLog(prefix=Prefix(**place, to_seq=len(events), mmr_root=root_there), entries=events)  # type: ignore[arg-type]


def _entries(root: Path, label: Label) -> Iterator[Entry]:
    files = [*root.rglob(f"chunk-{label.hex()}-*.log"), *root.rglob(f"chunk-{label.hex()}-*.open")]
    for file in sorted(files, key=lambda file: file.stem.split("-")[2]):
        yield from split_frames(file.read_bytes())


def _opened(entry: Entry, place: Mapping[str, Any]) -> SourceEvent:
    found, receipt = RecordEvent.decode(entry.msg.open(folds.READER).body), entry.receipt
    return SourceEvent(
        **place,
        seq=receipt.stream_seq,
        hub_commit_time=receipt.hub_ts * 1000,
        subject_id=found.subject_id,
        principal_id=bytes(found.principal_id),
        event_type=found.event_type,
        event_time=found.event_time,
        origin=found.origin,
        payload_json=canonical_json.encode(found.payload),
        attributed=found.principal_id == entry.msg.client_id,
        receipt=entry.receipt_bytes,
        leaf_hash=receipt.leaf_hash,
    )


def descriptors() -> dict[str, QueryDescriptor]:
    items = {
        name: {"query_id": f"q-{name}", "scope": list(STREAMS), **item} for name, item in QUERIES.items()
    }
    return {name: normalise(item, new_query_id="") for name, item in items.items()}


def on_spark(spark: SparkSession, root: Path) -> dict[str, ResultDigest]:
    """Verify and open the log on Spark, and answer the queries with their evidence."""
    keys = ReaderKeys.broadcast(spark, [folds.READER])
    view = view_of_logs(spark, [str(root)], STREAMS, keys)
    found = {name: run_query(view, each, executed_at=0).digest for name, each in descriptors().items()}
    view.frame.unpersist()
    return found


def in_one_process(root: Path) -> dict[str, ResultDigest]:
    """Answer the queries by the plain loop."""
    engine, found = plain_engine(root), {}
    for name, each in descriptors().items():
        answer = engine.execute(each, engine.prefixes(each.scope))
        execution = Execution(executed_at=0, hub_id=answer.coverage[0].hub_id.hex())
        found[name] = make_digest(each, answer, execution)
    return found


def equal(spark: SparkSession, root: Path, entries: int) -> float:
    """Return 1 if both give the same digests, else 0 and the difference on stderr."""
    logs.once(root, partial(write_log, entries=entries))
    begun = time.perf_counter()
    distributed = on_spark(spark, root)
    between = time.perf_counter()
    plain = in_one_process(root)
    seconds = between - begun, time.perf_counter() - between
    sys.stderr.write(f"{entries} events: Spark {seconds[0]:.1f} s, the plain loop {seconds[1]:.1f} s\n")
    same = True
    for name, digest in plain.items():
        scanned = sum(source.scanned for source in digest.coverage)
        sys.stderr.write(f"{name}: {digest.row_count} rows of {scanned} entries\n")
        for field in DIGESTS:
            if getattr(digest, field) != getattr(distributed[name], field):
                sys.stderr.write(f"{name}: {field} differs\n")
                same = False
    return float(same)
