"""Causality: the operations of a stream, and which operation led to which (spec-3 1.1).

An operation names what it follows from in three ways: ``parent_operation_id`` in its body, the
``approval_references`` of a recovery, and ``payload_hdr.parent_id``. A header that names a message of the
same stream with the same payload is a copy, which is the same operation (ID 12.1). A header that names a
message of another stream makes the operation known by that message's id too, since it may be a copy of it.

This is a view over a whole stream, not an overlay: a summary of a range would be as long as the range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from veen_core.hashing import H
from veen_core.ids import ClientId, OperationId
from veen_core.msg import operation_id
from veen_overlays.fold.event import Message
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.operations.operation import parent_of
from veen_overlays.schema.record import Record, Undecodable, decode_record, schema_id

OPERATIONS: Final[Mapping[str, type[Record]]] = {
    shape.NAME: shape
    for name in sorted(OVERLAYS)
    for shape in OVERLAYS[name].schemas
    if schema_id(shape.NAME, operation=True) == shape.SCHEMA
}
"""The operations of spec-3 by name: the records of all overlays whose schema id has its prefix (B14)."""

_BY_SCHEMA: Final = {bytes(shape.SCHEMA): shape for shape in OPERATIONS.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of a stream."""

    seq: int
    operation_id: OperationId
    client_id: ClientId | None
    """The key that signed the message, if it is known."""
    hub_ts: int | None
    record: Record
    parents: tuple[OperationId, ...]
    """The operations that it names, in the order of the module's docstring; they may be in other streams."""


class CausalTree:
    """The operations of a stream, added message by message from its start."""

    def __init__(self) -> None:
        self.operations: dict[OperationId, Operation] = {}
        """In the order of the stream."""
        self.undecodable: list[tuple[int, str]] = []
        """Messages of an operation's schema whose body is not valid, and why."""
        self._own_name: dict[OperationId, OperationId] = {}
        """The operation behind the id of a copy or of an original in another stream."""
        self._other_names: dict[OperationId, list[OperationId]] = {}
        self._payloads: dict[bytes, bytes] = {}
        self._children: dict[OperationId, list[Operation]] = {}

    def add(self, message: Message) -> Operation | None:
        """Add the next message; return its operation, or None for a copy and for other messages."""
        payload = H(message.schema + message.body)
        named = message.parent_id
        is_copy = named is not None and self._payloads.get(named) == payload
        if (shape := _BY_SCHEMA.get(message.schema)) is None:
            return None
        self._payloads[message.msg_id] = payload
        own = operation_id(message.msg_id)
        if is_copy:
            assert named is not None
            self._also_named(own, operation_id(named))
            return None
        record = decode_record((shape,), message.body)
        if isinstance(record, Undecodable):
            self.undecodable.append((message.seq, record.why))
            return None
        parents = _named_parents(record)
        if named is not None:
            if operation_id(named) in self.operations:
                parents = (*parents, operation_id(named))
            else:
                self._also_named(operation_id(named), own)
        found = Operation(
            seq=message.seq,
            operation_id=own,
            client_id=None if message.client_id is None else ClientId(message.client_id),
            hub_ts=message.hub_ts,
            record=record,
            parents=tuple(dict.fromkeys(parents)),
        )
        self.operations[own] = found
        for parent in found.parents:
            self._children.setdefault(parent, []).append(found)
        return found

    def _also_named(self, name: OperationId, own: OperationId) -> None:
        if self._own_name.setdefault(name, own) == own:
            self._other_names.setdefault(own, []).append(name)

    def find(self, operation: OperationId) -> Operation | None:
        """The operation with this id, also if it is a copy's; None if the stream has none."""
        return self.operations.get(operation) or self.operations.get(self._own_name.get(operation, operation))

    def at(self, seq: int) -> Operation | None:
        """The operation that message ``seq`` carries, or None."""
        return next((each for each in self.operations.values() if each.seq == seq), None)

    def children(self, operation: Operation) -> list[Operation]:
        """The operations that name this one as a parent, in the order of the stream."""
        names = [operation.operation_id, *self._other_names.get(operation.operation_id, ())]
        found = {each.seq: each for name in names for each in self._children.get(name, ())}
        return [found[seq] for seq in sorted(found)]

    def root(self, operation: Operation) -> Operation:
        """The first operation of the chain of first parents that are in this stream."""
        seen = {operation.seq}
        while True:
            known = (self.find(parent) for parent in operation.parents)
            above = next((each for each in known if each is not None), None)
            if above is None or above.seq in seen:  # forged parents can form a circle
                return operation
            seen.add(above.seq)
            operation = above

    def walk(self, operation: Operation) -> Iterator[tuple[int, Operation, bool]]:
        """The operation and all that follows from it: depth, operation, and whether it was listed before.

        An operation with several parents is listed under each, and its own children only once.
        """
        seen: set[int] = set()
        left = [(0, operation)]
        while left:
            depth, each = left.pop()
            repeated = each.seq in seen
            yield depth, each, repeated
            if not repeated:
                seen.add(each.seq)
                left += [(depth + 1, child) for child in reversed(self.children(each))]


def _named_parents(record: Record) -> tuple[OperationId, ...]:
    """The operations that a body names."""
    parent = parent_of(record)
    references: tuple[OperationId, ...] = getattr(record, "approval_references", ())
    return references if parent is None else (parent, *references)
