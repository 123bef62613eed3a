"""The conventions that all operations share (spec-3 §1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from logs import log_of

from veen_core.errors import DecodeError, EncodeError, VeenError
from veen_core.hashing import H
from veen_core.ids import OperationId
from veen_core.msg import operation_id
from veen_overlays.fold.event import Event, MemorySeenKeys
from veen_overlays.fold.monoid import SUM
from veen_overlays.fold.overlay import Overlay
from veen_overlays.operations.operation import IdentityId, operation, parent_of, sorted_set
from veen_overlays.schema.record import Record

ANN, BOB = (IdentityId(bytes([n]) * 32) for n in (1, 2))


@operation("example.operation.v1", section="tests", rules=(sorted_set("parties"),))
@dataclass(frozen=True, slots=True, kw_only=True)
class Example(Record):
    """An operation with one field of each shared type."""

    parties: tuple[IdentityId, ...]
    parent_operation_id: OperationId | None = None
    metadata: Any | None = None


COUNTED = Overlay(
    name="example.count",
    title="The number of examples.",
    schemas=(Example,),
    monoid=SUM,
    lift=lambda _: 1,
    view=lambda n: n,
)


def test_the_id_of_an_operation_is_the_tagged_hash_of_its_message() -> None:
    assert operation_id(b"\x07" * 32) == H(b"veen/operation-id\x00" + b"\x07" * 32)


def test_the_schema_id_of_an_operation_has_the_prefix_of_spec_3() -> None:
    assert H(b"veen/schema:example.operation.v1") == Example.SCHEMA


def test_a_copy_on_another_hub_is_the_same_operation() -> None:
    (message,) = log_of(Example(parties=(ANN,)))
    copy = message._replace(seq=9, msg_id=H(b"elsewhere"), parent_id=message.msg_id)
    found = [COUNTED.distinct(each, MemorySeenKeys()) for each in (message, copy)]
    assert {operation_id(each.origin) for each in found if isinstance(each, Event)} == {
        operation_id(message.msg_id)
    }


def test_the_parent_is_the_one_that_the_record_names() -> None:
    parent = operation_id(H(b"parent"))
    assert parent_of(Example(parties=(), parent_operation_id=parent)) == parent
    assert parent_of(Example(parties=())) is None


@pytest.mark.parametrize("parties", [(BOB, ANN), (ANN, ANN)], ids=["unsorted", "twice"])
def test_a_list_that_names_a_set_is_sorted_and_unique(parties: tuple[IdentityId, ...]) -> None:
    with pytest.raises(EncodeError, match="sorted and names nothing twice"):
        Example(parties=parties).encode()
    names = b"".join(b"\x58\x20" + each for each in parties)
    with pytest.raises(DecodeError, match="sorted and names nothing twice"):
        Example.decode(b"\xa1\x67parties" + bytes([0x80 + len(parties)]) + names)


@pytest.mark.parametrize("metadata", [1.5, {"x": [float("nan")]}], ids=["float", "nan inside"])
def test_free_values_have_no_floats(metadata: object) -> None:
    with pytest.raises(VeenError, match="float is not allowed"):
        Example(parties=(), metadata=metadata).encode()
