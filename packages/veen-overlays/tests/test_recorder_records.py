"""Records accept and refuse what their vectors say (SDR0 3.2; RESOLUTIONS P9, P10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from generated_vectors import VECTORS, check_bad, check_good, folder_cases, generator

from veen_core.errors import SignatureError
from veen_core.hashing import H
from veen_overlays.recorder.records import (
    KeyContinuity,
    MigrationRecord,
    QueryAudit,
    RecordEvent,
    verify_continuity,
)
from veen_overlays.schema.record import Record

SHAPES: dict[str, type[Record]] = generator("generate").SHAPES


@pytest.mark.parametrize(("shape", "body", "value"), folder_cases(SHAPES, good=True))
def test_a_good_vector_has_its_value_and_its_bytes(shape: type[Record], body: bytes, value: Any) -> None:
    check_good(shape, body, value)


@pytest.mark.parametrize(("shape", "body", "expected"), folder_cases(SHAPES, good=False))
def test_a_failing_vector_is_refused_with_its_reason(
    shape: type[Record], body: bytes, expected: dict[str, str]
) -> None:
    check_bad(shape, body, expected["match"])


def test_the_vectors_are_what_the_generator_makes() -> None:
    made = generator("generate")
    assert made.make() == made.on_disk(), "run: python packages/veen-overlays/tests/vectors/generate.py"


def test_the_schema_ids_are_those_of_the_specification() -> None:
    """RESOLUTIONS B14: only the operations of spec-3 have the prefix ``veen/schema:``."""
    assert H(b"record.event.v1") == RecordEvent.SCHEMA
    assert H(b"record.migration.v1") == MigrationRecord.SCHEMA
    assert H(b"veen/schema:query.audit.v1") == QueryAudit.SCHEMA


def test_a_link_between_keys_is_signed_by_the_identity_key() -> None:
    link = KeyContinuity.decode(
        bytes.fromhex((VECTORS / "record.continuity.v1/signed/wire.hex").read_text("ascii"))
    )
    verify_continuity(link)
    with pytest.raises(SignatureError):
        verify_continuity(replace(link, client_id=link.principal_id))
