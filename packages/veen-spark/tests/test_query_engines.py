"""Spark and DuckDB answer queries with the bytes of the plain loop: their digests are equal.

``VEEN_QUERY_DRAWS=500`` compares that many logs instead of a few; ``VEEN_QUERY_SEED`` begins elsewhere.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from veen_core.ids import MmrRoot
from veen_overlays.live.query_view import DuckDbEngine
from veen_overlays.query import canonical_json
from veen_overlays.query.engine import Budget, QueryAnswer, QueryEngine
from veen_overlays.query.errors import QueryError, QueryErrorCode
from veen_overlays.query.plain_engine import PlainEngine
from veen_overlays.query.request.descriptor import normalise
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.result.digest import evidence_hash, evidence_summary, result_id, rows_hash
from veen_overlays.query.result.result_file import split_rows, verified_receipts
from veen_spark.query.engine import SparkEngine
from veen_spark.query.view_folder import read_view

from .query_draws import (
    HOMES,
    STREAMS,
    QueryDescriptor,
    draw_descriptor,
    draw_logs,
    draw_prefixes,
    view_of,
    write_view,
)

DRAWS = int(os.environ.get("VEEN_QUERY_DRAWS", "2"))
FIRST = int(os.environ.get("VEEN_QUERY_SEED", "1"))
QUERIES_PER_LOG = 40
SPARK_QUERIES_PER_LOG = 5
"""Fewer: Spark takes most of the time."""


def answered(
    engine: QueryEngine, descriptor: QueryDescriptor, prefixes: Sequence[Prefix] | None = None
) -> dict[str, Any]:
    """Return everything by which two answers are compared; a failure by its code."""
    if prefixes is None:
        prefixes = engine.prefixes(descriptor.scope)
    try:
        answer = engine.execute(descriptor, prefixes)
    except QueryError as exc:
        return {"error_code": exc.code, "message": exc.message}
    return digests(descriptor, answer) | {"prefixes": prefixes}


def digests(descriptor: QueryDescriptor, answer: QueryAnswer) -> dict[str, Any]:
    verified = verified_receipts(descriptor, answer, split_rows(answer.rows))
    found: dict[str, Any] = {
        "rows": [canonical_json.encode(dict(row)) for row in answer.rows],  # 1.8e+19 is also an integer there
        "rows_hash": rows_hash(answer.rows),
        "coverage": answer.coverage,
        "result_id": result_id(descriptor, answer.coverage),
        "evidence_hash": evidence_hash(evidence_summary(descriptor, answer.coverage, verified)),
    }
    if descriptor.evidence.mode != "none":
        found["sources"] = list(answer.sources)
    return found


@pytest.mark.parametrize("seed", range(FIRST, FIRST + DRAWS))
def test_spark_duckdb_and_the_plain_loop_give_the_same_digests(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    logs = draw_logs(rng)
    plain = PlainEngine([drawn.log for drawn in logs], HOMES)
    with write_view(tmp_path / "view", logs) as view, closing(DuckDbEngine(view, HOMES)) as embedded:
        read = read_view(spark, tmp_path / "view", STREAMS, ())
        others: dict[str, QueryEngine] = {
            "rows": SparkEngine(view_of(spark, logs)),
            "view": SparkEngine(read),
            "duckdb": embedded,
        }
        for number in range(QUERIES_PER_LOG):
            descriptor = draw_descriptor(rng, logs)
            prefixes = plain.prefixes(descriptor.scope)
            chosen = ["duckdb"]
            if number < SPARK_QUERIES_PER_LOG:
                chosen.append("rows" if number % 2 else "view")
            for name in chosen:
                assert others[name].prefixes(descriptor.scope) == prefixes, (name, seed, number)
            if rng.random() < 0.5:
                prefixes = draw_prefixes(rng, logs, prefixes)
            expected = answered(plain, descriptor, prefixes)
            for name in chosen:
                found = answered(others[name], descriptor, prefixes)
                assert found == expected, (name, seed, number, descriptor.canonical().decode())


def test_every_engine_names_the_same_source_for_a_stream_without_entries(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = draw_logs(random.Random(3))[:1]
    item = {"scope": list(STREAMS), "filter": {}, "projection": ["origin"], "evidence": {"mode": "full"}}
    descriptor = normalise(item, new_query_id="q-1")
    with write_view(tmp_path / "view", logs) as view, closing(DuckDbEngine(view, HOMES)) as embedded:
        expected = answered(PlainEngine([drawn.log for drawn in logs], HOMES), descriptor)
        assert sorted(source.size for source in expected["coverage"])[:2] == [0, 0]
        assert answered(embedded, descriptor) == expected
        assert answered(SparkEngine(view_of(spark, logs)), descriptor) == expected
        assert answered(SparkEngine(read_view(spark, tmp_path / "view", STREAMS, ())), descriptor) == expected


def test_an_altered_or_missing_file_of_a_view_ends_the_query(spark: SparkSession, tmp_path: Path) -> None:
    folder, logs = tmp_path / "view", draw_logs(random.Random(3))
    write_view(folder, logs).close()
    file = next(folder.rglob("*.parquet"))
    whole = file.read_bytes()
    file.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    with pytest.raises(Exception, match="does not have the hash that the manifest names"):
        read_view(spark, folder, STREAMS, ())
    file.unlink()
    with pytest.raises(Exception, match="cannot be read"):
        read_view(spark, folder, STREAMS, ())


def test_rows_that_are_missing_doubled_or_of_another_history_are_refused(spark: SparkSession) -> None:
    logs = draw_logs(random.Random(5))
    view = view_of(spark, logs)
    descriptor = draw_descriptor(random.Random(1), logs)
    prefixes = SparkEngine(view).prefixes(descriptor.scope)
    first = bytes(prefixes[0].label)
    frames = {
        "missing": view.frame.where(~((f.col("seq") == 1) & (f.col("label") == first))),
        "doubled": view.frame.union(view.frame.where(f.col("seq") == 1)),
    }
    for frame in frames.values():
        with pytest.raises(QueryError, match=r"there are \d+ rows for the \d+ entries") as refused:
            SparkEngine(replace(view, frame=frame)).execute(descriptor, prefixes)
        assert refused.value.code == QueryErrorCode.EXECUTION_FAILED
    forged = replace(prefixes[0], mmr_root=MmrRoot(bytes(32)))
    with pytest.raises(QueryError, match="differs in these rows"):
        SparkEngine(view).execute(descriptor, [forged, *prefixes[1:]])
    beyond = replace(prefixes[0], to_seq=10**6)
    with pytest.raises(QueryError, match="not 1 to 1000000"):
        SparkEngine(view).execute(descriptor, [beyond, *prefixes[1:]])


def test_a_result_with_more_bytes_than_its_budget_is_refused(spark: SparkSession) -> None:
    logs = draw_logs(random.Random(5))
    engine = SparkEngine(view_of(spark, logs))
    item = {"scope": list(STREAMS), "filter": {}, "projection": ["*"], "evidence": {"mode": "none"}}
    descriptor = normalise(item, new_query_id="q-1")
    prefixes = engine.prefixes(descriptor.scope)
    size = sum(len(row) + 1 for row in split_rows(engine.execute(descriptor, prefixes).rows))
    engine.execute(descriptor, prefixes, Budget(max_bytes=size))
    with pytest.raises(QueryError, match=f"more than {size - 1} bytes"):
        engine.execute(descriptor, prefixes, Budget(max_bytes=size - 1))


def test_a_result_with_more_rows_than_its_budget_is_refused(spark: SparkSession) -> None:
    logs = draw_logs(random.Random(5))
    engine, longest = SparkEngine(view_of(spark, logs)), max(logs, key=lambda drawn: drawn.prefix.size)
    for change in ({}, {"aggregate": {"group_by": ["hub_commit_seq"], "metrics": ["count"]}}):
        item: dict[str, Any] = {
            "scope": [longest.prefix.stream],
            "filter": {},
            "projection": ["origin"],
            "evidence": {"mode": "none"},
        }
        descriptor = normalise(item | change, new_query_id="q-1")
        with pytest.raises(QueryError, match="more than 1 rows") as refused:
            engine.execute(descriptor, engine.prefixes(descriptor.scope), Budget(max_rows=1))
        assert refused.value.code == QueryErrorCode.LIMIT_EXCEEDED
