"""Claims and results of operations: what a runner has begun and finished (spec-3 2.5, P2).

A runner writes a claim before it performs an operation, and a result after it. Anyone who may write to the
stream can write both, so a reader asks for those of the runner's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from veen_core.ids import OperationId
from veen_overlays.fold.event import Event, Message
from veen_overlays.fold.monoid import FIRST_WRITER, Monoid, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps
from veen_overlays.operations.frequent_record import Groups, bulk_fold
from veen_overlays.schema.pattern import is_text
from veen_overlays.schema.record import Record, plain_fields, record


@record("operation.claim.v1", section="spec-3 2.5")
@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Record):
    """State that the runner begins to perform an operation."""

    operation_id: OperationId


@record("operation.result.v1", section="spec-3 2.5")
@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Record):
    """State how an operation ended: performed, failed, or too late to perform."""

    operation_id: OperationId
    outcome: Literal["done", "failed", "expired"]
    result: Any | None = None
    reason: str | None = None


ResultState = Mapping[bytes, Mapping[bytes, Mapping[str, Any]]]
"""By operation_id, then by runner: the first claim and the first result."""


_RESULTS: Final[Monoid[ResultState]] = map_of(map_of(product(claim=FIRST_WRITER, result=FIRST_WRITER)))


def _lift(event: Event) -> ResultState:
    found = event.record
    assert isinstance(found, Claim | Result)
    part = "claim" if isinstance(found, Claim) else "result"
    written = event.stamp(0), event.body
    return {bytes(found.operation_id): {bytes(event.client_id or b""): {part: written}}}


def _add_claim(found: dict[bytes, Any], groups: Groups, message: Message, identity: bytes) -> bool:
    """Add a claim: the bulk fold of every claim."""
    return _add_first(found, groups[0], "claim", message, identity)


def _add_result(found: dict[bytes, Any], groups: Groups, message: Message, identity: bytes) -> bool:
    """Add a result without a value; return False for other results, which the bulk fold does not read."""
    operation, _outcome, result, reason = groups
    if result is not None or not (reason is None or is_text(reason)):
        return False
    return _add_first(found, operation, "result", message, identity)


def _add_first(
    found: dict[bytes, Any], operation: bytes, part: str, message: Message, identity: bytes
) -> bool:
    parts = found.setdefault(operation, {}).setdefault(message.client_id or b"", {})
    written = (0, message.seq, identity), message.body
    parts[part] = min(parts[part], written) if part in parts else written
    return True


def claimed(state: ResultState, operation: bytes, runner: bytes) -> bool:
    """Whether the runner has claimed an operation."""
    return "claim" in state.get(operation, {}).get(runner, {})


def result_of(state: ResultState, operation: bytes, runner: bytes) -> Result | None:
    """The runner's result of an operation; None if it has none."""
    written = state.get(operation, {}).get(runner, {}).get("result")
    return None if written is None else Result.decode(written[1])


def _view(state: ResultState) -> list[dict[str, Any]]:
    return [
        {
            "operation_id": operation,
            "runner": runner,
            "claimed": "claim" in parts,
            "outcome": None,
            "result": None,
            "reason": None,
            **(plain_fields(parts["result"][1]) if "result" in parts else {}),
        }
        for operation, runners in sorted(state.items())
        for runner, parts in sorted(runners.items())
    ]


RESULTS: Final[Overlay[ResultState]] = Overlay(
    name="operation.results",
    title="Operations that a runner has claimed, and how they ended (spec-3 2.5).",
    schemas=(Claim, Result),
    monoid=_RESULTS,
    lift=_lift,
    view=_view,
    bulk=bulk_fold({Claim: _add_claim, Result: _add_result}, lift=_lift, monoid=_RESULTS),
    reads_signer=True,
    table=table_of_maps(
        {
            "operation_id": ColumnType.BYTES,
            "runner": ColumnType.BYTES,
            "claimed": ColumnType.BOOL,
            "outcome": ColumnType.TEXT,
            "result": ColumnType.JSON,
            "reason": ColumnType.TEXT,
        }
    ),
)

OVERLAYS: Final = (RESULTS,)
