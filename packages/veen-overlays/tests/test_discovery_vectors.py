"""Discovery's records accept and refuse what their vectors say (spec-5 §4, §6; ADR 0027)."""

from __future__ import annotations

from typing import Any

import pytest
from generated_vectors import check_bad, check_good, generator, json_cases

from veen_overlays.discovery import DISCOVERY
from veen_overlays.recorder.records import KeyContinuity
from veen_overlays.schema.record import Record

MADE = generator("discovery")
SHAPES: dict[str, type[Record]] = MADE.SHAPES


def test_the_vectors_are_what_the_generator_makes() -> None:
    assert MADE.make() == MADE.on_disk(), "run: python packages/veen-overlays/tests/vectors/discovery.py"


def test_every_record_of_discovery_has_vectors() -> None:
    own = {shape.NAME for shape in DISCOVERY.schemas if shape is not KeyContinuity}
    assert SHAPES.keys() == own | {"disc.query.v1", "disc.query.res.v1"}
    assert MADE.BAD.keys() == SHAPES.keys()


@pytest.mark.parametrize(("name", "case"), json_cases("discovery", "good"))
def test_a_good_vector_has_its_value_and_its_bytes(name: str, case: Any) -> None:
    check_good(SHAPES[name], bytes.fromhex(case["wire"]), case["value"])


@pytest.mark.parametrize(("name", "case"), json_cases("discovery", "bad"))
def test_a_failing_vector_is_refused_with_its_reason(name: str, case: Any) -> None:
    check_bad(SHAPES[name], bytes.fromhex(case["wire"]), case["match"])
