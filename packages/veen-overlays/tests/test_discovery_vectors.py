"""Discovery's records accept and refuse what their vectors say (spec-5 §4, §6; ADR 0027)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from veen_core.errors import DecodeError
from veen_overlays.discovery import DISCOVERY
from veen_overlays.recorder.records import KeyContinuity
from veen_overlays.schema.record import Record

GENERATOR = Path(__file__).parent / "vectors" / "discovery.py"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("discovery_vectors", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = generator()
SHAPES: dict[str, type[Record]] = MADE.SHAPES


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(path.stem, case, id=f"{path.stem} {name}")
        for path in sorted(GENERATOR.with_suffix("").glob("*.json"))
        for name, case in json.loads(path.read_text("utf-8"))[kind].items()
    ]


def test_the_vectors_are_what_the_generator_makes() -> None:
    assert MADE.make() == MADE.on_disk(), f"run: python {GENERATOR.name}"


def test_every_record_of_discovery_has_vectors() -> None:
    own = {shape.NAME for shape in DISCOVERY.schemas if shape is not KeyContinuity}
    assert SHAPES.keys() == own | {"disc.query.v1", "disc.query.res.v1"}
    assert MADE.BAD.keys() == SHAPES.keys()


@pytest.mark.parametrize(("name", "case"), cases("good"))
def test_a_good_vector_has_its_value_and_its_bytes(name: str, case: Any) -> None:
    record = SHAPES[name].decode(bytes.fromhex(case["wire"]))
    assert record.codec.write_json(record) == case["value"]
    assert record.encode().hex() == case["wire"]


@pytest.mark.parametrize(("name", "case"), cases("bad"))
def test_a_failing_vector_is_refused_with_its_reason(name: str, case: Any) -> None:
    with pytest.raises(DecodeError) as refused:
        SHAPES[name].decode(bytes.fromhex(case["wire"]))
    assert case["match"] in str(refused.value)
