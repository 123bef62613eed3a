"""The embedded engine agrees with the plain loop to the byte (query-api §5, §6, RESOLUTIONS P11 to P14)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_log import WRITER
from recorder_logs import NOON, RecorderLog, event, feed_of

from veen_core.ids import ClientId, UnixTime
from veen_overlays.live.query_view import DuckDbEngine, QueryView, ViewFollower
from veen_overlays.live.query_view.database import Database, DatabaseLimits
from veen_overlays.query.engine import Budget, QueryAnswer, QueryEngine
from veen_overlays.query.errors import QueryError, QueryErrorCode
from veen_overlays.query.event import receipt_id
from veen_overlays.query.plain_engine import PlainEngine
from veen_overlays.query.request.descriptor import QueryDescriptor, normalise
from veen_overlays.query.request.fields import ALL_FIELDS, BASE_FIELDS
from veen_overlays.query.request.timestamp import format_timestamp
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.result.digest import (
    VerifiedReceipt,
    evidence_hash,
    evidence_summary,
    result_id,
    rows_hash,
)

STREAMS = ("record/app/http", "record/app/ü %/x")
DAY = 86_400
TEXTS = ("", "a", "user:1", "ä", "\x00", "\U0001f600", "'; DROP TABLE x; --", "%", "\\")
texts = st.sampled_from(TEXTS)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**53 + 1, -(2**63), 2**64 - 1]),
    texts,
    st.binary(max_size=2),
)
payloads = st.one_of(
    scalars,
    st.dictionaries(st.sampled_from(["n", "a", "b"]), scalars, max_size=3),
    st.fixed_dictionaries(
        {"a": st.lists(scalars, max_size=2), "b": st.dictionaries(texts, scalars, max_size=2)}
    ),
)
events = st.builds(
    event,
    subject_id=texts,
    principal_id=st.sampled_from([ClientId(WRITER.public), ClientId(bytes(32)), ClientId(b"\xff" * 32)]),
    event_type=st.sampled_from(["login", "read", "ä"]),
    event_time=st.one_of(st.integers(0, 10), st.just(2**64 - 1)),
    origin=texts,
    payload=payloads,
)
steps = st.lists(
    st.one_of(events, st.sampled_from(["unopened", "other", "hour", "day", "commit"])),
    max_size=25,
)


def written(log: RecorderLog, step: Any) -> None:
    match step:
        case "unopened":
            log.unopened()
        case "other":
            log.other()
        case "hour":
            log.now = UnixTime(log.now + 3_600)
        case "day":
            log.now = UnixTime(log.now + DAY)
        case _:
            log.record(step)


fields = st.one_of(
    st.sampled_from(ALL_FIELDS), st.sampled_from(["payload.n", "payload.a.0", "payload.b.a", "payload.a"])
)
times = st.none() | st.integers(-1, 25).map(lambda hours: format_timestamp(1000 * (NOON + 3_600 * hours)))


def conditions(name: str) -> st.SearchStrategy[list[Any]]:
    known: dict[str, st.SearchStrategy[Any]] = {
        "stream": st.sampled_from(STREAMS),
        "hub_commit_seq": st.integers(0, 9),
        "attributed": st.booleans(),
        "principal_id": st.sampled_from([bytes(32).hex(), WRITER.public.hex(), "AA", "zz"]),
    }
    values = st.one_of(known.get(name, texts), st.none() | st.booleans() | st.integers(-1, 3) | texts)
    return st.lists(values, min_size=1, max_size=3)


wheres = st.dictionaries(
    st.sampled_from([f for f in ALL_FIELDS if not f.endswith("_time")] + ["payload.n", "payload.a.0"]),
    st.none(),
    max_size=2,
).flatmap(lambda names: st.fixed_dictionaries({name: conditions(name) for name in names}))
metrics = st.one_of(
    st.just("count"),
    st.sampled_from(["sum(hub_commit_seq)", "avg(hub_commit_seq)", "sum(payload.n)", "avg(payload.n)"]),
    st.builds(
        "{}({})".format,
        st.sampled_from(["min", "max", "count_distinct"]),
        st.sampled_from([*BASE_FIELDS, "payload.n", "payload.a"]),
    ),
)
aggregates = st.none() | st.fixed_dictionaries(
    {
        "group_by": st.lists(fields, max_size=2, unique=True),
        "metrics": st.lists(metrics, min_size=1, max_size=4, unique=True),
    }
)
descriptors = st.fixed_dictionaries(
    {
        "scope": st.lists(st.sampled_from(STREAMS), min_size=1, max_size=2, unique=True),
        "filter": st.fixed_dictionaries(
            {},
            optional={
                "subject_id": texts,
                "event_type": st.lists(st.sampled_from(["login", "read", "ä", "x"]), min_size=1, max_size=2),
                "time": st.fixed_dictionaries({"from": times, "to": times}),
                "where": wheres,
            },
        ),
        "projection": st.just(["*"]) | st.lists(fields, min_size=1, max_size=4, unique=True),
        "aggregate": aggregates,
        "evidence": st.sampled_from(
            [{"mode": "none"}, {"mode": "full"}, {"mode": "spot", "sample_rate": 0.5}]
        ),
    }
)


def described(item: Any) -> QueryDescriptor | None:
    """A descriptor; None if the strategy made one that is refused."""
    try:
        return normalise(item, new_query_id="q-1")
    except QueryError:
        return None


def outcome(engine: QueryEngine, descriptor: QueryDescriptor, prefixes: tuple[Prefix, ...]) -> Any:
    """Everything that a result consists of, or the code of its error."""
    try:
        answer = engine.execute(descriptor, prefixes)
    except QueryError as exc:
        return exc.code
    full = descriptor.evidence.mode != "none"
    return {
        "rows": list(answer.rows),
        "row_count": answer.row_count,
        "coverage": answer.coverage,
        "rows_hash": rows_hash(answer.rows),
        "result_id": result_id(descriptor, answer.coverage),
        "evidence_hash": evidence_hash(evidence_summary(descriptor, answer.coverage, _verified(answer))),
        "sources": list(answer.sources) if full else None,
    }


def _verified(answer: QueryAnswer) -> list[VerifiedReceipt]:
    return [
        VerifiedReceipt(
            receipt_id=receipt_id(each.receipt),
            mmr_root=answer.coverage[each.source].mmr_root or b"",
            hub_id=answer.coverage[each.source].hub_id,
        )
        for each in answer.sources
    ]


@settings(max_examples=int(os.environ.get("VEEN_QUERY_EXAMPLES", "60")))
@given(
    st.tuples(steps, steps), st.lists(descriptors, min_size=6, max_size=12), st.randoms(use_true_random=False)
)
def test_every_query_gives_the_bytes_of_the_plain_loop(
    written_steps: tuple[list[Any], list[Any]], items: list[Any], rng: Any
) -> None:
    logs = [RecorderLog(stream) for stream in STREAMS]
    with tempfile.TemporaryDirectory() as folder, QueryView.open(Path(folder)) as view:
        follower = ViewFollower(view, [feed_of(log) for log in logs])
        for log, some in zip(logs, written_steps, strict=True):
            for step in some:
                if step == "commit":
                    asyncio.run(follower.catch_up())
                else:
                    written(log, step)
        asyncio.run(follower.catch_up())
        engine = DuckDbEngine(view, follower.homes)
        plain = PlainEngine([log.source() for log in logs])
        for item in items:
            descriptor = described(item)
            if descriptor is None:
                continue
            prefixes = engine.prefixes(descriptor.scope)
            assert prefixes == plain.prefixes(descriptor.scope)
            earlier = tuple(_log_of(logs, p).prefix(rng.randint(0, p.to_seq)) for p in prefixes)
            for some_prefixes in (prefixes, earlier):
                assert outcome(engine, descriptor, some_prefixes) == outcome(plain, descriptor, some_prefixes)
        engine.close()


def _log_of(logs: list[RecorderLog], prefix: Prefix) -> RecorderLog:
    return next(log for log in logs if log.label == prefix.label)


# --- bounds


def test_a_statement_is_interrupted_while_it_runs(tmp_path: Path) -> None:
    looks = iter([False, False, True, True, True])
    database = Database(tmp_path, DatabaseLimits())
    with pytest.raises(QueryError, match="ran out of time") as caught:
        database.fetch(
            "SELECT sum(range) FROM range(10000000000000)", {}, Budget(stop=lambda: next(looks, True))
        )
    assert caught.value.code == QueryErrorCode.LIMIT_EXCEEDED
    assert database.fetch("SELECT 1", {}, Budget()) == [(1,)]
    database.close()


def test_a_statement_that_needs_more_memory_than_its_limit_fails_and_others_go_on(tmp_path: Path) -> None:
    one_long_text = "SELECT length(string_agg(hash(range)::VARCHAR, ',')) FROM range(4000000)"
    small = Database(tmp_path, DatabaseLimits(memory_bytes=24 << 20, spill_bytes=1 << 20))
    with pytest.raises(QueryError, match="more memory than the engine may use") as caught:
        small.fetch(one_long_text, {}, Budget())
    assert caught.value.code == QueryErrorCode.LIMIT_EXCEEDED
    assert small.fetch("SELECT count(*) FROM range(4000000)", {}, Budget()) == [(4_000_000,)]
    small.close()


def test_a_statement_reads_no_file_outside_the_view(tmp_path: Path) -> None:
    outside = tmp_path / "outside.csv"
    outside.write_text("a,b\n")
    folder = tmp_path / "view"
    folder.mkdir()
    database = Database(folder, DatabaseLimits())
    with pytest.raises(QueryError, match="file system operations are disabled"):
        database.fetch("SELECT * FROM read_csv($path)", {"path": str(outside)}, Budget())
    database.close()
