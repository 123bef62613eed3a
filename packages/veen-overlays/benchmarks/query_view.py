"""Figures of the query view: ratios measured within one run, one JSON line per figure.

    python packages/veen-overlays/benchmarks/query_view.py            two minutes
    python packages/veen-overlays/benchmarks/query_view.py --quick    20 seconds; 2 * 10^5 events

``query.latency_growth``          time of one subject's events within a day in a view of 10^6 events,
                                  divided by that in a view of 10^4 events
``query.latency_growth_one_day``  the same with all events in one day
``query.scan``                    time of an aggregate over 10^6 events, divided by that of the same SQL on
                                  the bare Parquet files

A view is filled with rows of the real shape: real MMR roots, receipts of the real size whose signatures are
random (no query verifies them). A subject has ten events a day, and a day has ``EVENTS_PER_DAY`` events.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import duckdb

from veen_core.hashing import H
from veen_core.ids import HubId, Label, LeafHash, Signature, StreamSeq, UnixTime
from veen_core.receipt import Receipt, signed_bytes, unsigned_bytes
from veen_overlays.live.query_view import DuckDbEngine, QueryView
from veen_overlays.live.query_view.feed.opened_entries import CommitPlace, Found, row_of
from veen_overlays.query import canonical_json
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.request.descriptor import QueryDescriptor, normalise
from veen_overlays.query.request.timestamp import format_timestamp
from veen_overlays.recorder.records import RecordEvent

STREAM: Final = "record/app/http"
HUB_ID, LABEL = HubId(b"\x01" * 32), Label(b"\x02" * 32)
START: Final = 1_699_920_000
"""Midnight, UTC."""
DAY: Final = 86_400
EVENTS_PER_DAY: Final = 10_000
SUBJECTS_PER_DAY: Final = 1_000


def filled(folder: Path, count: int, *, one_day: bool) -> QueryView:
    """Return a view of ``count`` events."""
    view, rng = QueryView.open(folder), random.Random(1)  # noqa: S311 - the same view every time
    source = view.source(STREAM, HUB_ID, LABEL, 0)
    per_day = count if one_day else EVENTS_PER_DAY
    for n in range(count):
        day, within = divmod(n, per_day)
        now = UnixTime(START + day * DAY + within * DAY // per_day)
        leaf = LeafHash(H(n.to_bytes(8, "big")))
        after = source.mmr.copy()
        after.add(leaf)
        facts = LABEL, StreamSeq(n + 1), leaf, after.root, now
        wire = signed_bytes(unsigned_bytes(*facts), Signature(rng.randbytes(64)))
        receipt = Receipt(label=LABEL, stream_seq=facts[1], leaf_hash=leaf, mmr_root=facts[3], hub_ts=now)
        source.add(after, receipt, wire)
        view.add(
            STREAM,
            row_of(
                CommitPlace(HUB_ID, LABEL, 0, receipt, wire), EntryKind.EVENT, _event(rng, n, count, one_day)
            ),
        )
        if view.wants_commit:
            view.commit()
            view.compact()
    view.commit()
    view.compact(settle=True)  # as the follower does at the end of the log
    return view


def _event(rng: random.Random, n: int, count: int, one_day: bool) -> Found:
    subjects = max(1, count // 10) if one_day else SUBJECTS_PER_DAY
    payload = {"path": f"/items/{rng.randrange(1000)}", "status": rng.choice([200, 200, 404]), "ms": n % 977}
    event = RecordEvent(
        subject_id=f"user:{n * 7_919 % subjects:07d}",
        principal_id=b"\x03" * 32,  # type: ignore[arg-type]
        event_type=("http.request", "login", "logout")[n % 3],
        event_time=1000 * START + n,  # type: ignore[arg-type]
        origin=f"api-{n % 5}",
        payload=payload,
    )
    return Found(EntryKind.EVENT, event, canonical_json.encode(payload).decode())


def described(**changes: Any) -> QueryDescriptor:
    item = {"scope": [STREAM], "filter": {}, "projection": ["*"], "evidence": {"mode": "none"}}
    return normalise({**item, **changes}, new_query_id="q-1")


def one_subject() -> QueryDescriptor:
    """The events of one subject on the first day."""
    times = {"from": format_timestamp(1000 * START), "to": format_timestamp(1000 * (START + DAY))}
    return described(filter={"subject_id": "user:0000050", "time": times})


def by_type_and_origin() -> QueryDescriptor:
    """All events, counted."""
    metrics = ["count", "min(event_time)", "max(event_time)", "count_distinct(subject_id)"]
    return described(aggregate={"group_by": ["event_type", "origin"], "metrics": metrics})


def alternately(rounds: int, *work: Callable[[], object]) -> list[float]:
    """Return the fastest wall time of each, measured in turns: DuckDB works in threads of its own."""
    best = [float("inf")] * len(work)
    for _ in range(rounds):
        for place, each in enumerate(work):
            start = time.perf_counter()
            each()
            best[place] = min(best[place], time.perf_counter() - start)
    return best


def latency_growth(folder: Path, few: int, many: int, rounds: int, *, one_day: bool) -> float:
    """Time of one subject's events within a day in the large view, divided by that in the small one."""
    engines, works = [], []
    views = [filled(folder / f"{count}-{one_day}", count, one_day=one_day) for count in (many, few)]
    for view in views:
        engine = DuckDbEngine(view, {STREAM: HUB_ID})
        prefixes = engine.prefixes([STREAM])
        assert engine.execute(one_subject(), prefixes).rows
        engines.append(engine)
        works.append(lambda engine=engine, prefixes=prefixes: engine.execute(one_subject(), prefixes))
    large, small = alternately(rounds, *works)
    for engine, view in zip(engines, views, strict=True):
        engine.close()
        view.close()
    return large / small


def scan(folder: Path, count: int, rounds: int) -> float:
    """Time of an aggregate over all events, divided by that of the same SQL on the bare Parquet files."""
    view = filled(folder / "scan", count, one_day=False)
    engine = DuckDbEngine(view, {STREAM: HUB_ID})
    prefixes = engine.prefixes([STREAM])
    bare = duckdb.connect(":memory:", config={"threads": 2})
    bare.execute("SET parquet_metadata_cache = true")  # as the engine has it
    files = sorted(map(str, folder.glob("scan/data/**/*.parquet")))
    sql = (
        "SELECT event_type, origin, count(*), min(event_time), max(event_time), count(DISTINCT subject_id) "
        "FROM read_parquet(?, hive_partitioning = false) WHERE kind = 0 GROUP BY event_type, origin"
    )
    ours = lambda: engine.execute(by_type_and_origin(), prefixes)  # noqa: E731
    theirs = lambda: bare.execute(sql, [files]).fetchall()  # noqa: E731
    assert sum(row["count"] for row in ours().rows) == sum(row[2] for row in theirs()) == count
    embedded, plain = alternately(rounds, ours, theirs)
    engine.close()
    view.close()
    bare.close()
    return embedded / plain


def measure(few: int, many: int, rounds: int) -> int:
    """Print all figures; return how many miss their target."""
    figures: tuple[tuple[str, Callable[[Path], float], float], ...] = (
        ("query.latency_growth", lambda at: latency_growth(at, few, many, rounds, one_day=False), 1.5),
        (
            "query.latency_growth_one_day",
            lambda at: latency_growth(at, few, many, rounds, one_day=True),
            1.5,
        ),
        ("query.scan", lambda at: scan(at, many, max(1, rounds // 4)), 1.5),
    )
    missed = 0
    for name, work, target in figures:
        with tempfile.TemporaryDirectory() as folder:
            value = round(work(Path(folder)), 3)
        ok = value <= target
        missed += not ok
        print(json.dumps({"name": name, "value": value, "target": target, "ok": ok}), flush=True)  # noqa: T201
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="2 * 10^5 events")
    parser.add_argument("--tiny", action="store_true", help="check that it runs; the figures mean nothing")
    options = parser.parse_args()
    sizes = (
        (1_000, 2_000, 1)
        if options.tiny
        else (10_000, 200_000, 40)
        if options.quick
        else (10_000, 1_000_000, 60)
    )
    return min(measure(*sizes), 1)


if __name__ == "__main__":
    sys.exit(main())
