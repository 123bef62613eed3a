"""Claims and results of operations: what a runner has begun and finished (spec-3 2.5, P2).

A runner writes a claim before it performs an operation, and a result after it. Anyone who may write to the
stream can write both, so a reader asks for those of the runner's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from veen_core import cbor
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import FIRST_WRITER, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps
from veen_overlays.operations.operation import OperationId
from veen_overlays.schema.record import Record, record


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


def _lift(event: Event) -> ResultState:
    found = event.record
    assert isinstance(found, Claim | Result)
    part = "claim" if isinstance(found, Claim) else "result"
    written = event.stamp(0), event.body
    return {bytes(found.operation_id): {bytes(event.client_id or b""): {part: written}}}


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
            **(_fields(parts["result"][1]) if "result" in parts else {}),
        }
        for operation, runners in sorted(state.items())
        for runner, parts in sorted(runners.items())
    ]


def _fields(body: bytes) -> dict[str, Any]:
    item: Any = cbor.decode(body)
    return dict(item)


RESULTS: Final[Overlay[ResultState]] = Overlay(
    name="operation.results",
    title="Operations that a runner has claimed, and how they ended (spec-3 2.5).",
    schemas=(Claim, Result),
    monoid=map_of(map_of(product(claim=FIRST_WRITER, result=FIRST_WRITER))),
    lift=_lift,
    view=_view,
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
