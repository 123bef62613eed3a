"""Spark answers queries with the bytes of the plain loop: rows_hash, evidence_hash and result_id are equal.

``VEEN_QUERY_DRAWS=500`` compares that many logs instead of a few; ``VEEN_QUERY_SEED`` begins elsewhere.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from veen_overlays.query.digest import evidence_hash, evidence_summary, result_id, rows_hash
from veen_overlays.query.engine import Answer, QueryEngine
from veen_overlays.query.errors import QueryError
from veen_overlays.query.plain_engine import PlainEngine
from veen_spark.query.engine import SparkEngine

from .query_draws import QueryDescriptor, draw_descriptor, draw_logs, view_of

DRAWS = int(os.environ.get("VEEN_QUERY_DRAWS", "3"))
FIRST = int(os.environ.get("VEEN_QUERY_SEED", "1"))
QUERIES_PER_LOG = 6


def answered(engine: QueryEngine, descriptor: QueryDescriptor) -> dict[str, Any]:
    """Return everything by which two answers are compared; a failure by its code."""
    prefixes = engine.prefixes(descriptor.scope)
    try:
        answer = engine.execute(descriptor, prefixes)
    except QueryError as exc:
        return {"error_code": exc.code, "message": exc.message}
    return digests(descriptor, answer) | {"prefixes": prefixes}


def digests(descriptor: QueryDescriptor, answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = {
        "rows": [dict(row) for row in answer.rows],
        "rows_hash": rows_hash(answer.rows),
        "coverage": answer.coverage,
        "result_id": result_id(descriptor, answer.coverage),
        "evidence_hash": evidence_hash(evidence_summary(descriptor, answer.coverage)),
    }
    if descriptor.evidence.mode != "none":
        found["sources"] = list(answer.sources)
    return found


@pytest.mark.parametrize("seed", range(FIRST, FIRST + DRAWS))
def test_spark_and_the_plain_loop_give_the_same_digests(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    logs = draw_logs(rng)
    plain, distributed = PlainEngine(logs), SparkEngine(view_of(spark, logs))
    for number in range(QUERIES_PER_LOG):
        descriptor = draw_descriptor(rng, logs)
        expected = answered(plain, descriptor)
        assert answered(distributed, descriptor) == expected, (seed, number, descriptor.canonical().decode())
