"""Decryption of messages on the executors, in one Arrow pass (core §4.2, §4.5).

    keys = ReaderKeys.from_files("/etc/veen/reader")
    open_messages(spark.read.format("veen").load("exports/*"), keys)

``open_messages`` adds the columns of ``OPENED_FIELDS`` to every row. No row is dropped: if a message does not
open, ``opened`` is false and ``why_not`` holds the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from veen_core.ciphertext import Opened
from veen_core.errors import VeenError
from veen_core.keys import DhKey
from veen_core.msg import Msg
from veen_spark.errors import SparkSetupError
from veen_spark.functions.reader_keys import ReaderKeys
from veen_spark.functions.schema_names import schema_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BINARY: Final = pa.binary()
OPENED_FIELDS: Final = (
    pa.field("opened", pa.bool_()),
    pa.field("why_not", pa.string()),
    pa.field("schema", _BINARY),
    pa.field("schema_name", pa.string()),
    pa.field("parent_id", _BINARY),
    pa.field("att_root", _BINARY),
    pa.field("cap_ref", _BINARY),
    pa.field("expires_at", pa.decimal128(20, 0)),
    pa.field("body", _BINARY),
)
"""The columns that opening adds. ``expires_at`` is an unsigned 64-bit integer, too large for a long."""
NEEDED: Final = ("label", "msg", "kind")
NO_MSG: Final = "there is no entry in this row"
"""The reason for a row without a MSG: a pruned entry that is given to ``veen_open``, or a damaged one."""
_NO_MESSAGE: Final = {
    "authorize": "the entry is a cap token, not a message (RESOLUTIONS H5)",
    "pruned": "retention removed the message",
    None: NO_MSG,
}


class Unopened(NamedTuple):
    """The reason why a row has no plaintext."""

    why: str


class Opener:
    """Opens messages; the key that opened the last message of a label is tried first."""

    def __init__(self, keys: Sequence[DhKey]) -> None:
        self._keys = tuple(keys)
        self._order: dict[bytes, tuple[DhKey, ...]] = {}

    def open(self, label: bytes | None, kind: str | None, wire: bytes | None) -> Opened | Unopened:
        """Open one message; never raise for the content of a row."""
        if kind != "msg" or wire is None or label is None:
            return Unopened(_NO_MESSAGE.get(kind, "the row has no msg"))
        try:
            msg = Msg.decode(wire)
        except VeenError as exc:
            return Unopened(str(exc))
        return self.open_msg(label, msg)

    def open_msg(self, label: bytes, msg: Msg) -> Opened | Unopened:
        """Open a decoded message; the key that fits is tried first for the next message of ``label``."""
        why = "no reader key was given"
        keys = self._order.get(label, self._keys)
        for at, key in enumerate(keys):
            try:
                opened = msg.open(key)
            except VeenError as exc:
                why = str(exc)
                continue
            if at:
                self._order[label] = (key, *keys[:at], *keys[at + 1 :])
            return opened
        return Unopened(why)


def open_messages(frame: DataFrame, keys: ReaderKeys) -> DataFrame:
    """Add the columns of ``OPENED_FIELDS`` to rows of the data source."""
    require_columns(frame, NEEDED)
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: PLC0415 - slow to import

    clash = sorted({field.name for field in OPENED_FIELDS} & set(frame.columns))
    if clash:
        raise SparkSetupError(
            f"the DataFrame has columns {', '.join(clash)} already", action="drop or rename them"
        )
    given = [field.with_nullable(True) for field in to_arrow_schema(frame.schema)]
    schema = pa.schema([*given, *OPENED_FIELDS])
    return frame.mapInArrow(_opening(keys), from_arrow_schema(schema))


def _opening(keys: ReaderKeys) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def opening(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opener = Opener(keys.get())
        for batch in batches:
            yield add_opened_columns(batch, opener)

    return opening


def add_opened_columns(batch: pa.RecordBatch, opener: Opener) -> pa.RecordBatch:
    """Return the batch with the columns of ``OPENED_FIELDS``."""
    rows = zip(*(batch.column(name).to_pylist() for name in NEEDED), strict=True)
    found = [opened_values(opener.open(label, kind, wire)) for label, wire, kind in rows]
    columns = list(zip(*found, strict=True)) if found else [()] * len(OPENED_FIELDS)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, OPENED_FIELDS, strict=True)]
    fields = [*batch.schema, *OPENED_FIELDS]
    return pa.RecordBatch.from_arrays([*batch.columns, *arrays], schema=pa.schema(fields))


def opened_values(opened: Opened | Unopened) -> tuple[Any, ...]:
    """Return the values of the columns ``OPENED_FIELDS`` for one message."""
    if isinstance(opened, Unopened):
        return False, opened.why, None, None, None, None, None, None, None
    header = opened.header
    names = (True, None, bytes(header.schema), schema_name(header.schema))
    refs = (header.parent_id, header.att_root, header.cap_ref)
    return (*names, *refs, header.expires_at, opened.body)


def require_columns(frame: DataFrame, names: Iterable[str]) -> None:
    """Raise unless the DataFrame has these columns."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise SparkSetupError(
            f"the DataFrame has no column {', '.join(missing)}",
            action="read it with spark.read.format('veen'), and keep these columns",
        )
