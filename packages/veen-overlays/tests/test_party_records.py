"""Records of agreements, publications and recoveries accept and refuse what their vectors say (spec-3)."""

from __future__ import annotations

from typing import Any

import pytest
from generated_vectors import check_bad, check_good, generator, json_cases

from veen_core.errors import EncodeError
from veen_core.hashing import H
from veen_overlays.operations.content_root import PublishedFile, content_root
from veen_overlays.schema.record import Record

MADE = generator("operations_of_parties")
SHAPES: dict[str, type[Record]] = MADE.SHAPES


def test_the_vectors_are_what_the_generator_makes() -> None:
    assert MADE.make() == MADE.on_disk(), (
        "run: python packages/veen-overlays/tests/vectors/operations_of_parties.py"
    )


def files(case: Any) -> list[PublishedFile]:
    return [PublishedFile(name, bytes.fromhex(digest)) for name, digest in case["files"]]


@pytest.mark.parametrize(("name", "case"), json_cases("operations_of_parties", "good"))
def test_a_good_vector_has_its_value_and_its_bytes(name: str, case: Any) -> None:
    if name == "content_root":
        assert content_root(files(case)).hex() == case["root"]
        return
    check_good(SHAPES[name], bytes.fromhex(case["wire"]), case["value"])
    assert SHAPES[name].codec.read_json(case["value"]).encode().hex() == case["wire"]


@pytest.mark.parametrize(("name", "case"), json_cases("operations_of_parties", "bad"))
def test_a_failing_vector_is_refused_with_its_reason(name: str, case: Any) -> None:
    if name == "content_root":
        with pytest.raises(EncodeError) as not_published:
            content_root(files(case))
        assert case["match"] in str(not_published.value)
        return
    check_bad(SHAPES[name], bytes.fromhex(case["wire"]), case["match"])


def test_the_schema_ids_are_those_of_the_specification() -> None:
    """RESOLUTIONS B14: operations of spec-3 have the prefix, the policy of the identity overlay has not."""
    for name, shape in SHAPES.items():
        prefix = b"" if name.startswith("id.") else b"veen/schema:"
        assert H(prefix + name.encode()) == shape.SCHEMA
