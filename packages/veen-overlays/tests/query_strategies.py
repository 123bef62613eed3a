"""Random logs and descriptors for queries; every descriptor can be executed over every log."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from query_logs import START, Hub, Stream, query

from veen_overlays.query import QueryDescriptor
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.request.fields import BASE_FIELDS
from veen_overlays.query.request.timestamp import format_timestamp

NAMES = ("record/a", "record/b")
SUBJECTS = st.sampled_from(["user:1", "user:2", "é"])
TYPES = st.sampled_from(["login", "logout"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "é", "\U0001f600"])
)
PAYLOADS = st.fixed_dictionaries(
    {}, optional={"n": st.none() | st.integers(-(2**64), 2**64 - 1), "s": SCALARS, "l": st.lists(SCALARS)}
)
FIELDS = st.sampled_from([*BASE_FIELDS, "payload", "payload.n", "payload.s", "payload.l.0", "payload.l"])
METRICS = st.sampled_from(
    [
        "count",
        *(f"{name}(payload.n)" for name in ("sum", "avg", "min", "max", "count_distinct")),
        *(f"{name}(payload.s)" for name in ("min", "max", "count_distinct")),
        "min(event_time)",
        "max(subject_id)",
        "sum(hub_commit_seq)",
        "count_distinct(payload.l)",
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> list[Stream]:
    """Two streams, one of them at two hubs; the hub's clock never goes back."""
    made = [Stream(NAMES[0], Hub(1)), Stream(NAMES[0], Hub(2)), Stream(NAMES[1], Hub(1))]
    time = START
    for _ in range(draw(st.integers(0, 14))):
        time += draw(st.integers(0, 2))
        kind = draw(st.sampled_from([EntryKind.EVENT] * 5 + list(EntryKind)[1:]))
        values = {"subject_id": draw(SUBJECTS), "event_type": draw(TYPES), "payload": draw(PAYLOADS)}
        draw(st.sampled_from(made)).add(kind, hub_ts=time, **(values if kind is EntryKind.EVENT else {}))
    return made


@st.composite
def descriptors(draw: st.DrawFn) -> QueryDescriptor:
    """A valid descriptor over these streams."""
    times = sorted(draw(st.sets(st.integers(0, 20), min_size=2, max_size=2)))
    start, end = (format_timestamp((START + second) * 1000) for second in times)
    filter_: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "subject_id": SUBJECTS,
                "event_type": st.lists(TYPES, min_size=1),
                "time": st.just({"from": start, "to": end}),
                "where": st.fixed_dictionaries(
                    {}, optional={"payload.n": SCALARS, "origin": st.just("api-1")}
                ),
            },
        )
    )
    parts: dict[str, Any] = {
        "filter": filter_,
        "projection": draw(st.just(["*"]) | st.lists(FIELDS, min_size=1, unique=True)),
        "evidence": draw(
            st.sampled_from([{"mode": "none"}, {"mode": "full"}, {"mode": "spot", "sample_rate": 0.4}])
        ),
    }
    if draw(st.booleans()):
        parts["aggregate"] = {
            "group_by": draw(st.lists(FIELDS, max_size=2, unique=True)),
            "metrics": draw(st.lists(METRICS, min_size=1, unique=True)),
        }
    return query(*draw(st.permutations(NAMES)), **parts)
