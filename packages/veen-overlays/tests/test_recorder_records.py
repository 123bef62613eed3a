"""Records accept and refuse what their vectors say (SDR0 3.2; RESOLUTIONS P9, P10)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from generated_vectors import VECTORS, generator

from veen_core.errors import DecodeError, SignatureError
from veen_core.hashing import H
from veen_overlays.recorder.records import (
    KeyContinuity,
    MigrationRecord,
    QueryAudit,
    RecordEvent,
    verify_continuity,
)

SHAPES = generator("generate").SHAPES
CASES = sorted(case.relative_to(VECTORS).as_posix() for name in SHAPES for case in (VECTORS / name).iterdir())


def body(case: str) -> bytes:
    return bytes.fromhex((VECTORS / case / "wire.hex").read_text("ascii"))


@pytest.mark.parametrize("case", [case for case in CASES if not case.endswith("_fail")])
def test_a_good_vector_decodes_to_its_value_and_back(case: str) -> None:
    record = SHAPES[case.split("/", maxsplit=1)[0]].decode(body(case))
    assert record.codec.write_json(record) == json.loads((VECTORS / case / "value.json").read_text("utf-8"))
    assert record.encode() == body(case)


@pytest.mark.parametrize("case", [case for case in CASES if case.endswith("_fail")])
def test_a_failing_vector_is_refused_with_its_reason(case: str) -> None:
    expected = json.loads((VECTORS / case / "expect.json").read_text("utf-8"))
    with pytest.raises(DecodeError) as refused:
        SHAPES[case.split("/", maxsplit=1)[0]].decode(body(case))
    assert expected["match"] in str(refused.value)


def test_the_vectors_are_what_the_generator_makes() -> None:
    made = generator("generate")
    assert made.make() == made.on_disk(), "run: python packages/veen-overlays/tests/vectors/generate.py"


def test_the_schema_ids_are_those_of_the_specification() -> None:
    """RESOLUTIONS B14: only the operations of spec-3 have the prefix ``veen/schema:``."""
    assert H(b"record.event.v1") == RecordEvent.SCHEMA
    assert H(b"record.migration.v1") == MigrationRecord.SCHEMA
    assert H(b"veen/schema:query.audit.v1") == QueryAudit.SCHEMA


def test_a_link_between_keys_is_signed_by_the_identity_key() -> None:
    link = KeyContinuity.decode(body("record.continuity.v1/signed"))
    verify_continuity(link)
    with pytest.raises(SignatureError):
        verify_continuity(replace(link, client_id=link.principal_id))
