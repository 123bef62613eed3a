"""Conventions that all operations of spec-3 share: ids, links between operations, accounts (spec-3 §1).

    @operation("paid.operation.v1", section="spec-3 2.2")
    @dataclass(frozen=True, slots=True, kw_only=True)
    class PaidOperation(Record):
        ...
        parent_operation_id: OperationId | None = None
        metadata: Any | None = None

A field of type ``Any`` is the ``any`` of spec-3: deterministic CBOR without floats and tags (P17), nested at
most 16 deep. An absent optional is omitted (B2).

An operation is named by the msg_id of its message. A copy on another hub is the same operation, so it is
named by the msg_id of its original (``Event.origin``).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from typing import Final, TypeVar

from veen_core.ids import FixedBytes, OperationId
from veen_overlays.schema.record import Record, RecordRule, record

R = TypeVar("R", bound=type[Record])


class AccountId(FixedBytes):
    """The id of an account, a wallet or another holder of state; VEEN does not interpret it (spec-3 1.2)."""

    __slots__ = ()


class IdentityId(FixedBytes):
    """A party of an operation: its public key, or an account id of the application (spec-3 3.2)."""

    __slots__ = ()


_ID_TAG: Final = b"veen/operation-id\x00"


def operation_key(msg_id: bytes) -> bytes:
    """An operation_id as plain bytes, for folds: half the time of ``veen_core.operation_id``."""
    return sha256(_ID_TAG + msg_id).digest()


def parent_of(found: Record) -> OperationId | None:
    """The operation that a record names as its parent; None if it names none or has no such field."""
    return getattr(found, "parent_operation_id", None)


def operation(name: str, *, section: str, rules: tuple[RecordRule, ...] = ()) -> Callable[[R], R]:
    """Declare a record of spec-3, with the schema id ``H("veen/schema:" + name)`` (spec-3 1.4, B14)."""
    return record(name, section=section, rules=rules, operation=True)


def sorted_set(name: str) -> RecordRule:
    """The rule that a list that names a set is sorted and names nothing twice (P17)."""
    return RecordRule(
        f"{name} is sorted and names nothing twice",
        lambda found: all(a < b for a, b in pairwise(getattr(found, name) or ())),
    )
