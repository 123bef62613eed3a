"""A state as a table: one per overlay, its rows beside the prefix and the root that they rest on (§11.3).

    state(fold(logs, "wallet.ledger", keys), "wallet.ledger").where("balance < 0")

Every row begins with ``label``, ``upto_seq`` and ``mmr_root``; what follows is declared here, once for each
overlay. Integers are decimals: an overlay's may have 64 bits, and a sum more. Values of free form are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from veen_core.kinds import Bytes, Fixed, Int, Kind, ListOf, OneOf, Scalar, Uint
from veen_overlays.control.records import Authority, LabelClass, Revocation, SchemaDescriptor
from veen_overlays.fold.overlay import Overlay
from veen_overlays.schema.record import Record
from veen_overlays.snapshot import StateCheckpoint
from veen_spark.errors import SparkSetupError
from veen_spark.fold.ranges import Task, overlay_reference, record_batches, resolve_overlay, spark_type
from veen_spark.functions.open import require_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BINARY, _TEXT, _BOOL = pa.binary(), pa.string(), pa.bool_()
U64: Final = pa.decimal128(20, 0)
WIDE: Final = pa.decimal128(38, 0)
BASIS: Final = (pa.field("label", _BINARY), pa.field("upto_seq", pa.int64()), pa.field("mmr_root", _BINARY))
BATCH: Final = 8_192


class Table(NamedTuple):
    """Columns after the basis, and how a view becomes rows of them."""

    columns: tuple[pa.Field, ...]
    rows: Callable[[Any], Iterator[Sequence[Any]]]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*BASIS, *self.columns])


def plain(item: Any) -> Any:
    """For JSON: byte strings in lowercase hex, as keys too (B17)."""
    if isinstance(item, bytes):
        return item.hex()
    if isinstance(item, dict):
        return {plain(key): plain(value) for key, value in item.items()}
    return [plain(value) for value in item] if isinstance(item, list | tuple) else item


def as_json(item: Any) -> str:
    return json.dumps(plain(item), ensure_ascii=False, separators=(",", ":"))


def _fields(**types: pa.DataType) -> tuple[pa.Field, ...]:
    return tuple(pa.field(name, type_) for name, type_ in types.items())


def _shards(view: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    for shard, total in view["shards"].items():
        yield shard, Decimal(total)


_JOB: Final = _fields(job=_BINARY, body=_BINARY, deliveries=pa.int64(), worker=_BINARY, ts=U64, lease_sec=U64)


def _jobs(view: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Any]]:
    for job in view:
        yield tuple(job.get(column.name) for column in _JOB)


_WALLET: Final = _fields(
    wallet_id=_BINARY,
    exists=_BOOL,
    closed=_BOOL,
    balance=WIDE,
    frozen=_BOOL,
    daily_limit=U64,
    pending_daily_spent=WIDE,
    last_limit_reset_ts=U64,
)


def _wallets(view: Mapping[bytes, Mapping[str, Any]]) -> Iterator[Sequence[Any]]:
    for wallet, state in view.items():
        sums = {name: Decimal(state[name]) for name in ("balance", "pending_daily_spent")}
        shown = {**state, **sums, "wallet_id": wallet}
        yield tuple(shown[column.name] for column in _WALLET)


def _directory(view: Mapping[str, Mapping[bytes, Any]]) -> Iterator[Sequence[Any]]:
    for part, held in view.items():
        for key, value in held.items():
            yield part, key, as_json(value)


def _kind_type(kind: Kind) -> pa.DataType:
    match kind:
        case Fixed() | Bytes():
            return _BINARY
        case Uint():
            return U64
        case Int():
            return WIDE
        case OneOf():
            return _TEXT
        case Scalar(type=type_):
            return _TEXT if type_ is str else _BOOL
        case ListOf(kind=inner):
            return pa.list_(_kind_type(inner))
    return _TEXT  # of free form: JSON


def records(shape: type[Record]) -> Table:
    """A state that is a list of records: a column for each of their fields."""
    fields = shape.codec.fields
    known = (Fixed, Bytes, Uint, Int, OneOf, Scalar, ListOf)

    def rows(view: Iterable[Mapping[int | str, Any]]) -> Iterator[Sequence[Any]]:
        for item in view:
            held = [(item.get(f.key), isinstance(f.kind, known)) for f in fields]
            yield tuple(value if typed or value is None else as_json(value) for value, typed in held)

    return Table(tuple(pa.field(str(f.key), _kind_type(f.kind)) for f in fields), rows)


_PAIRS: Final = Table(_fields(key=_BINARY, value=_BINARY), lambda view: iter(view.items()))

TABLES: Final[Mapping[str, Table]] = {
    "crdt.lww": _PAIRS,
    "crdt.orset": Table(_fields(elem=_BINARY), lambda view: ((elem,) for elem in view)),
    "crdt.gcnt": Table(_fields(shard=_BINARY, total=WIDE), _shards),
    "kv.map": _PAIRS,
    "queue.jobs": Table(_JOB, _jobs),
    "wallet.ledger": Table(_WALLET, _wallets),
    "id.directory": Table(_fields(part=_TEXT, key=_BINARY, value=_TEXT), _directory),
    "fed.authority": records(Authority),
    "revocation": records(Revocation),
    "label.class": records(LabelClass),
    "meta.schema": records(SchemaDescriptor),
    "state.checkpoints": records(StateCheckpoint),
}


def table_of(overlay: Overlay[Any]) -> Table:
    """The declared table; an overlay of somebody else's has its view as JSON."""
    whole = Table(_fields(state=_TEXT), lambda view: iter([(as_json(view),)]))
    return TABLES.get(overlay.name, whole)


def state(folded: DataFrame, overlay: str | Overlay[Any]) -> DataFrame:
    """What ``fold`` gave, as the overlay's own table."""
    overlay = resolve_overlay(overlay)
    if "summary" not in folded.columns:
        raise SparkSetupError("this DataFrame holds no states: it is not what fold() returns")
    require_columns(folded, (field.name for field in BASIS))
    rows = folded.select(*(field.name for field in BASIS), "summary")
    return rows.mapInArrow(_showing(overlay), spark_type(table_of(overlay).schema))


def _showing(overlay: Overlay[Any]) -> Task:
    named = overlay_reference(overlay)

    def showing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = resolve_overlay(named)
        table = table_of(own)
        labels = (
            row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
        )
        rows = (
            (*basis, *row)
            for *basis, summary in labels
            for row in table.rows(own.view(own.load(summary).inner))
        )
        return record_batches(rows, table.schema, BATCH)

    return showing
