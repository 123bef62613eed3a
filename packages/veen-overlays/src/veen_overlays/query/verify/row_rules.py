"""The rules of rows: their hashes, shape and order, and what receipts prove of them (query-api §5, P11).

Each function raises ``EvidenceError`` that names the row; rows are counted from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from veen_core.errors import EvidenceError
from veen_core.hashing import HASH_SIZE
from veen_core.receipt import Receipt
from veen_overlays.query import canonical_json
from veen_overlays.query.event import receipt_id
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.timestamp import format_timestamp
from veen_overlays.query.result.coverage import Prefix

ROWS_ACTION = "get the result again from the executor, and keep this file as evidence"


def split_hashes(data: bytes) -> list[bytes]:
    """Split concatenated hashes."""
    if len(data) % HASH_SIZE:
        raise EvidenceError("a list of hashes ends in the middle of a hash (query-api §5)")
    return [data[at : at + HASH_SIZE] for at in range(0, len(data), HASH_SIZE)]


def difference(expected: Sequence[bytes], found: Sequence[bytes]) -> str | None:
    """Say how two lists of rows differ, given the hashes of their rows; None if they are equal."""
    at = next((n for n, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
    if at is None:
        if len(expected) == len(found):
            return None
        at = min(len(expected), len(found))
    if len(found) < len(expected):
        return f"row {at + 1} of {len(expected)} is missing"
    if len(found) > len(expected):
        twin = next((n for n, each in enumerate(found[:at]) if each == found[at]), None)
        return f"row {at + 1} was added" if twin is None else f"row {at + 1} repeats row {twin + 1}"
    other = next((n for n in range(at + 1, len(found)) if found[n] == expected[at]), None)
    if other is None:
        return f"row {at + 1} was changed"
    return f"row {at + 1} is out of order: the row that belongs there is row {other + 1}"


def check_shape(descriptor: QueryDescriptor, rows: Sequence[dict[str, Any]]) -> None:
    """Refuse a row that has other keys than the descriptor asks for (query-api §5.1)."""
    aggregate = descriptor.aggregate
    if aggregate is None:
        names = {field.name for field in descriptor.projection}
    else:
        names = {field.name for field in aggregate.group_by} | {each.name for each in aggregate.metrics}
        names |= {"receipt_id"} & {field.name for field in descriptor.projection}
    for number, row in enumerate(rows, 1):
        if row.keys() != names:
            wrong = sorted(row.keys() ^ names)[0]
            why = "is missing" if wrong in names else "is not one that the descriptor asks for"
            raise EvidenceError(
                f"row {number}: the field {wrong[:80]!r} {why} (query-api §5.1)",
                action=ROWS_ACTION,
            )


def check_groups(descriptor: QueryDescriptor, rows: Sequence[dict[str, Any]], matched: int) -> None:
    """Check order and counts of aggregate rows: groups ascend, and counts add up to the matched events."""
    aggregate = descriptor.aggregate
    assert aggregate is not None  # the caller has checked
    if not aggregate.group_by and len(rows) != 1:
        raise EvidenceError(f"an aggregate without groups has one row, not {len(rows)} (query-api §4.3)")
    if aggregate.group_by and len(rows) > matched:
        raise EvidenceError(f"{len(rows)} groups cannot come from {matched} events (query-api §4.3)")
    before = b""
    for number, row in enumerate(rows, 1):
        key = canonical_json.encode([row[field.name] for field in aggregate.group_by])
        if key <= before:
            raise EvidenceError(f"row {number}: its group does not follow that of row {number - 1} (P11)")
        before = key
    if any(metric.name == "count" for metric in aggregate.metrics):
        total = sum(row["count"] for row in rows if type(row["count"]) is int)
        if total != matched:
            raise EvidenceError(
                f"the counts of the groups add up to {total}, but {matched} events match (P13)",
                action=ROWS_ACTION,
            )


class ReceiptRules:
    """What a receipt proves of its row; prepared once for many rows of one source (P10, P11)."""

    def __init__(self, descriptor: QueryDescriptor, prefix: Prefix) -> None:
        self._filter = descriptor.filter
        projected = {field.name for field in descriptor.projection}
        self._proved: list[tuple[str, Callable[[Receipt, bytes], object]]] = [
            (name, value)
            for name, value in (
                ("stream", lambda _receipt, _wire: prefix.stream),
                ("hub_id", lambda _receipt, _wire: prefix.hub_id.hex()),
                ("hub_commit_seq", lambda receipt, _wire: receipt.stream_seq),
                ("hub_commit_time", lambda receipt, _wire: format_timestamp(receipt.hub_ts * 1000)),
                ("receipt_id", lambda _receipt, wire: receipt_id(wire)),
            )
            if name in projected
        ]
        self._allowed = [
            (test.field.name, test.encoded) for test in self._filter.where if test.field.name in projected
        ]
        for name, values in (
            ("subject_id", None if self._filter.subject_id is None else (self._filter.subject_id,)),
            ("event_type", self._filter.event_type),
        ):
            if values is not None and name in projected:
                self._allowed.append((name, frozenset(map(canonical_json.encode, values))))

    def check_time(self, receipt: Receipt) -> None:
        """Refuse an event that was committed outside ``filter.time`` (P11)."""
        time = receipt.hub_ts * 1000
        start, end = self._filter.time_from, self._filter.time_to
        if (start is not None and time < start) or (end is not None and time >= end):
            raise EvidenceError(
                f"entry {receipt.stream_seq} was committed at {format_timestamp(time)}, outside filter.time "
                "(RESOLUTIONS P11)",
                action=ROWS_ACTION,
            )

    def check_row(self, number: int, row: dict[str, Any], receipt: Receipt, wire: bytes) -> None:
        """Refuse a row that contradicts its receipt or the filter."""
        for name, value in self._proved:
            if row[name] != value(receipt, wire):
                raise EvidenceError(
                    f"row {number}: {name} differs from its receipt, entry {receipt.stream_seq} "
                    "(RESOLUTIONS P11)",
                    action=ROWS_ACTION,
                )
        for name, allowed in self._allowed:
            if canonical_json.encode(row[name]) not in allowed:
                raise EvidenceError(
                    f"row {number}: {name} has a value that the filter excludes (query-api §4.2)",
                    action=ROWS_ACTION,
                )
