"""The plain-loop engine, aggregates, ids and sampling (query-api §4.2, §4.3, §5, RESOLUTIONS P11, P14)."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Sequence
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from query_logs import START, Hub, Stream, answer, engine, query, two_streams

from veen_overlays.query import Budget, Prefix, QueryError, SourceEvent, canonical_json
from veen_overlays.query.aggregation import Aggregation, receipt_set_id
from veen_overlays.query.columns import stream_folder
from veen_overlays.query.engine import QueryEngine
from veen_overlays.query.plain_engine import PlainEngine
from veen_overlays.query.result.digest import (
    RowsHasher,
    evidence_hash,
    evidence_summary,
    result_id,
    rows_hash,
)
from veen_overlays.query.result.limits import limits_of
from veen_overlays.query.result.result_file import Execution, make_digest
from veen_overlays.query.result.sampling import draw, sampled
from veen_overlays.query.selection import FieldReader

VECTORS = Path(__file__).parent / "vectors" / "query"
NAME = "record/app/http"


def stream(*payloads: Any, **values: Any) -> Stream:
    made = Stream(NAME)
    for payload in payloads:
        made.add(payload=payload, **values)
    return made


def one_row(metric: str, *payloads: Any) -> Any:
    (row,) = answer(query(NAME, aggregate={"metrics": [metric]}), stream(*payloads)).rows
    return row[metric]


def test_the_plain_engine_is_a_query_engine() -> None:
    made: QueryEngine = engine(stream())
    assert made.prefixes([NAME])[0].to_seq == 0


def test_rows_are_in_order_of_scope_hub_epoch_and_sequence_number() -> None:
    hubs = sorted((Hub(1), Hub(2)), key=lambda hub: hub.hub_id)
    streams = [Stream(name, hub, epoch) for name in ("b", "a") for hub in reversed(hubs) for epoch in (7, 2)]
    for _ in range(2):
        for each in streams:
            each.add()
    rows = answer(query("b", "a", projection=["stream", "hub_id", "hub_commit_seq"]), *streams).rows
    places = [(row["stream"], row["hub_id"], row["hub_commit_seq"]) for row in rows]
    assert places == [
        (name, hub.hub_id.hex(), seq) for name in ("b", "a") for hub in hubs for _ in (2, 7) for seq in (1, 2)
    ]


def test_a_row_has_every_projected_field_and_null_where_there_is_no_value() -> None:
    made = stream({"a": {"b": [1, 2]}, "z": None})
    event = made.entries[0]
    assert isinstance(event, SourceEvent)
    (row,) = answer(query(NAME, projection=["*"]), made).rows
    assert row == {
        "subject_id": "user:1",
        "principal_id": event.principal_id.hex(),
        "event_type": "logout",
        "event_time": "2025-11-18T21:06:41.007Z",
        "origin": "api-1",
        "hub_commit_time": "2025-11-18T21:06:41.000Z",
        "hub_commit_seq": 1,
        "stream": NAME,
        "hub_id": made.hub.hub_id.hex(),
        "receipt_id": "rcpt-" + sha256(event.receipt).hexdigest(),
        "attributed": True,
        "payload": {"a": {"b": [1, 2]}, "z": None},
    }
    (row,) = answer(query(NAME, projection=["payload.a.b.1", "payload.z", "payload.q"]), made).rows
    assert row == {"payload.a.b.1": 2, "payload.z": None, "payload.q": None}


def test_the_time_filter_includes_its_start_and_excludes_its_end() -> None:
    made = stream()
    for second in (0, 1, 1, 2, 3):
        made.add(hub_ts=START + second)
    found = answer(
        query(
            NAME,
            filter={"time": {"from": "2025-11-18T21:06:41Z", "to": "2025-11-18T21:06:43Z"}},
            projection=["hub_commit_seq"],
        ),
        made,
    )
    assert [row["hub_commit_seq"] for row in found.rows] == [2, 3, 4]


def test_an_event_must_satisfy_every_part_of_the_filter() -> None:
    made = stream()
    for subject in ("a", "b"):
        for kind in ("x", "y"):
            for status in (200, 500, None):
                made.add(subject_id=subject, event_type=kind, payload={"status": status})

    def count(**filter_: Any) -> int:
        return len(answer(query(NAME, filter=filter_), made).rows)

    assert count() == 12
    assert count(subject_id="a") == 6
    assert count(subject_id="a", event_type=["y", "z"]) == 3
    assert count(where={"payload.status": 500}) == 4
    assert count(where={"payload.status": [500.0, None]}) == 8
    assert count(subject_id="b", where={"payload.status": 500, "event_type": ["x"]}) == 1
    assert count(where={"payload.missing": None, "attributed": True}) == 12
    assert count(where={"attributed": False}) == 0


def test_an_unknown_stream_is_a_forbidden_scope() -> None:
    with pytest.raises(QueryError) as refused:
        engine(stream()).prefixes(["record/other"])
    assert (refused.value.code, refused.value.status) == ("forbidden_scope", 403)


def test_a_query_reads_exactly_its_prefix() -> None:
    made = stream(1, 2, 3, 4)
    earlier = PlainEngine([made.log])
    prefix = earlier.prefixes([NAME])
    made.add(payload=5)
    found = engine(made).execute(query(NAME, projection=["payload"]), prefix)
    assert [row["payload"] for row in found.rows] == [1, 2, 3, 4]
    assert (found.coverage[0].to_seq, found.coverage[0].scanned) == (4, 4)
    later = engine(made).prefixes([NAME])
    with pytest.raises(QueryError, match="not 1 to 5"):
        earlier.execute(query(NAME), later)


def test_the_coverage_counts_what_became_of_every_entry() -> None:
    first, second = two_streams()
    found = answer(query(first.name, second.name, filter={"event_type": ["login"]}), first, second)
    counts = [
        (each.scanned, each.opened, each.unopened, each.pruned, each.matched) for each in found.coverage
    ]
    assert counts == [(12, 10, 1, 1, 5), (9, 9, 0, 0, 4)]
    assert sum(each.matched for each in found.coverage) == len(found.rows) == len(found.sources)


def test_a_query_stops_when_its_budget_is_used_up() -> None:
    made = stream(*range(10))
    prefix = engine(made).prefixes([NAME])
    for budget, why in (
        (Budget(max_rows=9), "more than 9 rows"),
        (Budget(max_matched=9), "more than 9 events"),
        (Budget(stop=lambda: True), "ran out of time"),
    ):
        with pytest.raises(QueryError, match=why) as refused:
            engine(made).execute(query(NAME), prefix, budget)
        assert (refused.value.code, refused.value.status) == ("limit_exceeded", 429)


def test_groups_count_against_the_budget_as_they_appear() -> None:
    made = stream(*range(10))
    descriptor = query(NAME, aggregate={"group_by": ["payload"], "metrics": ["count"]})
    with pytest.raises(QueryError, match="more than 3 rows"):
        engine(made).execute(descriptor, engine(made).prefixes([NAME]), Budget(max_rows=3))


def test_a_damaged_payload_fails_the_query_and_names_the_entry() -> None:
    made = stream(1, 2)
    event = made.entries[1]
    assert isinstance(event, SourceEvent)
    made.entries[1] = dataclasses.replace(event, payload_json=b"{")
    with pytest.raises(QueryError, match="payload of entry 2 of 'record/app/http' is damaged") as refused:
        answer(query(NAME), made)
    assert refused.value.code == "execution_failed"
    assert len(answer(query(NAME, projection=["origin"]), made).rows) == 2


# --- aggregates


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("count", 6),
        ("min(payload.n)", -2),
        ("max(payload.n)", 9007199254740993),
        ("sum(payload.n)", 9007199254740994),
        ("avg(payload.n)", float(Fraction(9007199254740994, 4))),
        ("count_distinct(payload.n)", 3),
        ("count_distinct(payload.t)", 2),
        ("min(payload.t)", "a"),
        ("max(payload.t)", "é"),
        ("min(event_time)", "2025-11-18T21:06:41.007Z"),
        ("max(hub_commit_time)", "2025-11-18T21:06:46.000Z"),
        ("sum(hub_commit_seq)", 21),
        ("max(attributed)", True),
    ],
)
def test_a_metric_has_this_value(metric: str, value: object) -> None:
    payloads = [
        {"n": -2, "t": "é"},
        {"n": 9007199254740993, "t": "a"},
        {"n": 5.0},
        {"n": None},
        {},
        {"n": -2},
    ]
    assert one_row(metric, *payloads) == value


@pytest.mark.parametrize(
    ("metric", "value"),
    [("count", 0), ("sum(payload.n)", 0), ("count_distinct(origin)", 0)]
    + [(f"{name}(payload.n)", None) for name in ("min", "max", "avg")],
)
def test_without_groups_there_is_one_row_even_without_events(metric: str, value: object) -> None:
    assert one_row(metric) == value


def test_min_and_max_order_booleans_before_numbers_before_text() -> None:
    values = [{"v": "0"}, {"v": 10**20}, {"v": 1.5}, {"v": True}, {"v": False}, {"v": None}]
    assert one_row("min(payload.v)", *values) is False
    assert one_row("max(payload.v)", *values) == "0"


@pytest.mark.parametrize(
    ("metric", "payload", "why"),
    [
        ("sum(payload.v)", {"v": 1.5}, "not an integer"),
        ("avg(payload.v)", {"v": "1"}, "not an integer"),
        ("sum(payload.v)", {"v": True}, "not an integer"),
        ("min(payload.v)", {"v": [1]}, "has an array"),
        ("max(payload)", {"v": 1}, "has an object"),
    ],
)
def test_a_metric_of_unfit_values_fails_the_query(metric: str, payload: Any, why: str) -> None:
    with pytest.raises(QueryError, match=why) as refused:
        one_row(metric, payload)
    assert (refused.value.code, refused.value.status) == ("execution_failed", 500)
    assert refused.value.action


def test_groups_are_ordered_by_the_canonical_json_of_their_keys() -> None:
    made = stream(*({"k": key} for key in ("b", "a", 10, 9, None, {"x": 1}, "a")))
    rows = answer(query(NAME, aggregate={"group_by": ["payload.k"], "metrics": ["count"]}), made).rows
    assert [(row["payload.k"], row["count"]) for row in rows] == [
        ("a", 2),
        ("b", 1),
        (10, 1),
        (9, 1),
        (None, 1),
        ({"x": 1}, 1),
    ]


def test_a_group_key_that_is_a_time_is_a_timestamp() -> None:
    made = stream(1)
    (row,) = answer(query(NAME, aggregate={"group_by": ["event_time"], "metrics": ["count"]}), made).rows
    assert row["event_time"] == "2025-11-18T21:06:41.007Z"


def test_the_receipt_id_of_an_aggregate_row_is_that_of_its_set_of_receipts() -> None:
    made = stream(1, 2, 3)
    descriptor = query(NAME, projection=["receipt_id"], aggregate={"metrics": ["count"]})
    found = answer(descriptor, made)
    ids = {each.receipt_id for each in made.entries if isinstance(each, SourceEvent)}
    assert [dict(row) for row in found.rows] == [{"count": 3, "receipt_id": receipt_set_id(ids)}]


VALUES = st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.sampled_from(["", "a", "é", "b"])
METRICS = ["count", "min(payload.v)", "max(payload.v)", "sum(payload.i)", "avg(payload.i)"]


@given(
    st.lists(
        st.fixed_dictionaries({"v": VALUES, "i": st.none() | st.integers(-(2**64), 2**64), "g": VALUES}),
        max_size=12,
    ),
    st.data(),
)
def test_any_partition_of_the_events_gives_the_same_rows(payloads: list[Any], data: st.DataObject) -> None:
    made = stream(*payloads)
    metrics = [*METRICS, "count_distinct(payload.v)"]
    descriptor = query(
        NAME, projection=["receipt_id"], aggregate={"group_by": ["payload.g"], "metrics": metrics}
    )
    parts = [Aggregation.start(descriptor) for _ in range(3)]
    for event in made.entries:
        assert isinstance(event, SourceEvent)
        data.draw(st.sampled_from(parts)).add(FieldReader(event))
    whole = Aggregation.start(descriptor)
    for part in data.draw(st.permutations(parts)):
        whole.merge(pickle.loads(pickle.dumps(part)))
    assert rows_hash(whole.finish()) == rows_hash(answer(descriptor, made).rows)


def reference_rows(payloads: Sequence[Any]) -> list[dict[str, Any]]:
    """The grouped rows, computed a second time from the definition alone."""
    groups: dict[str, list[Any]] = {}
    for payload in payloads:
        groups.setdefault(json.dumps([payload["g"]], ensure_ascii=False), []).append(payload)
    rows = []
    for key in sorted(groups, key=str.encode):
        numbers = [each["i"] for each in groups[key] if each["i"] is not None]
        rows.append(
            {
                "payload.g": json.loads(key)[0],
                "count": len(groups[key]),
                "sum(payload.i)": sum(numbers),
                "min(payload.i)": min(numbers, default=None),
                "max(payload.i)": max(numbers, default=None),
                "count_distinct(payload.i)": len(set(numbers)),
                "avg(payload.i)": float(Fraction(sum(numbers), len(numbers))) if numbers else None,
            }
        )
    return rows


@given(
    st.lists(st.fixed_dictionaries({"i": st.none() | st.integers(-(2**64), 2**64), "g": VALUES}), max_size=12)
)
def test_grouped_metrics_agree_with_a_second_computation(payloads: list[Any]) -> None:
    metrics = ["count", *(f"{name}(payload.i)" for name in ("sum", "min", "max", "count_distinct", "avg"))]
    descriptor = query(NAME, aggregate={"group_by": ["payload.g"], "metrics": metrics})
    found = answer(descriptor, stream(*payloads)).rows
    assert canonical_json.encode(list(found)) == canonical_json.encode(reference_rows(payloads))


# --- ids, hashes, sampling


def test_ids_and_hashes_are_those_of_the_vector() -> None:
    first, second = two_streams()
    made = []
    for mode in ({"mode": "none"}, {"mode": "spot", "sample_rate": 0.25}, {"mode": "full"}):
        descriptor = query(first.name, second.name, evidence=mode)
        found = answer(descriptor, first, second)
        digest = make_digest(descriptor, found, Execution(executed_at=START * 1000, hub_id="ab" * 32))
        made.append(digest.as_json())
    path = VECTORS / "digests.json"
    assert made == json.loads(path.read_text())


def test_the_result_id_follows_from_descriptor_and_prefixes_alone() -> None:
    first, second = two_streams()
    descriptor = query(first.name, second.name)
    found = answer(descriptor, first, second)
    prefixes = engine(first, second).prefixes(descriptor.scope)
    made = result_id(descriptor, prefixes)
    assert made == result_id(descriptor, found.coverage)
    assert made.startswith("r-")
    assert len(made) == 34
    shorter = [Prefix(**{**_fields(prefixes[0]), "to_seq": 3}), prefixes[1]]
    other_checkpoint = [Prefix(**{**_fields(prefixes[0]), "checkpoint": "x"}), prefixes[1]]
    assert result_id(descriptor, shorter) != made
    assert result_id(descriptor, other_checkpoint) == made
    assert result_id(query(first.name, second.name, query_id="q-2"), prefixes) != made


def _fields(prefix: Prefix) -> dict[str, Any]:
    names = ("stream", "hub_id", "label", "epoch", "from_seq", "to_seq", "mmr_root", "checkpoint")
    return {name: getattr(prefix, name) for name in names}


def test_rows_hash_is_the_hash_of_the_canonical_array() -> None:
    rows = [{"b": 1, "a": "é"}, {}]
    assert rows_hash(rows) == sha256('[{"a":"é","b":1},{}]'.encode()).hexdigest()
    assert RowsHasher().hexdigest() == sha256(b"[]").hexdigest()


def test_the_evidence_summary_of_mode_none_is_mode_and_coverage() -> None:
    made = stream(1)
    descriptor = query(NAME, evidence={"mode": "none"})
    found = answer(descriptor, made)
    summary = evidence_summary(descriptor, found.coverage)
    assert summary == {"mode": "none", "coverage": [found.coverage[0].counts_json()]}
    assert evidence_hash(summary) == sha256(canonical_json.encode(summary)).hexdigest()


def test_a_sample_is_what_the_hash_says() -> None:
    ids = [f"rcpt-{n}" for n in range(1000)]
    chosen = sampled("q-1", ids, 0.1)
    expected = [
        at
        for at, each in enumerate(ids)
        if Fraction(int(sha256(f"q-1{each}".encode()).hexdigest()[:16], 16), 2**64) < Fraction(0.1)
    ]
    assert chosen == expected
    assert 50 < len(chosen) < 150
    assert sampled("q-1", ids, 1.0) == list(range(1000))


def test_a_sample_has_at_least_one_row_if_there_is_any() -> None:
    ids = ["rcpt-a", "rcpt-b", "rcpt-c"]
    (chosen,) = sampled("q-1", ids, 1e-18)
    assert draw("q-1", ids[chosen]) == min(draw("q-1", each) for each in ids)
    assert sampled("q-1", [], 0.5) == []


def test_the_limits_name_what_the_coverage_lacks() -> None:
    first, second = two_streams()
    empty = Stream("record/empty", first.hub)
    descriptor = query(first.name, second.name, empty.name, evidence={"mode": "none"})
    found = answer(descriptor, first, second, empty)
    codes = [each["limit"] for each in limits_of(descriptor, found.coverage)]
    assert codes[-4:] == ["no_evidence", "unopened", "pruned", "empty_source"]
    assert {"never_submitted", "claimed_values", "streams_not_named"} <= set(codes)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_the_folder_of_a_stream_names_the_stream_and_is_one_folder(name: str) -> None:
    assert unquote(stream_folder(name)) == name
    assert "/" not in stream_folder(name)
