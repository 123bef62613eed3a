"""The columns of the ``veen`` data source; the Arrow and Spark schemas are derived from this table.

One row is one log entry (core §4.8.1). The column ``kind`` is ``msg`` for a message, ``authorize`` for a
cap token in the hub's control label (RESOLUTIONS H5), and ``pruned`` for an entry whose payload retention
removed. Byte strings are binary; ``hex(label)`` shows one as text. Times are Unix seconds (core §4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class SparkColumn(NamedTuple):
    """One column; the comment is its description in the reference documentation."""

    name: str
    type: pa.DataType
    comment: str


_BINARY, _LONG, _TEXT = pa.binary(), pa.int64(), pa.string()

COLUMNS: Final = (
    SparkColumn("label", _BINARY, "RECEIPT.label"),
    SparkColumn("stream_seq", _LONG, "RECEIPT.stream_seq"),
    SparkColumn("hub_ts", _LONG, "RECEIPT.hub_ts, in Unix seconds"),
    SparkColumn("client_id", _BINARY, "MSG.client_id"),
    SparkColumn("client_seq", _LONG, "MSG.client_seq"),
    SparkColumn("prev_ack", _LONG, "MSG.prev_ack"),
    SparkColumn("auth_ref", _BINARY, "MSG.auth_ref; for kind authorize, the token's auth_ref"),
    SparkColumn("leaf_hash", _BINARY, "RECEIPT.leaf_hash"),
    SparkColumn("mmr_root", _BINARY, "RECEIPT.mmr_root"),
    SparkColumn("ct_hash", _BINARY, "MSG.ct_hash"),
    SparkColumn("msg", _BINARY, "the encoded MSG; for kind authorize, the encoded token"),
    SparkColumn("receipt", _BINARY, "the encoded RECEIPT"),
    SparkColumn("kind", _TEXT, "msg, authorize or pruned"),
    SparkColumn("hub_id", _BINARY, "the hub_id from hub-identity.cbor or manifest.cbor"),
    SparkColumn("file", _TEXT, "the file that holds the entry"),
    SparkColumn("offset", _LONG, "the byte offset of the entry in that file"),
)
DAMAGE: Final = pa.struct([pa.field("reason", _TEXT), pa.field("length", _LONG), pa.field("bytes", _BINARY)])
"""The last column with ``mode=quarantine``: null for an entry. For damage it holds the reason, the number of
damaged bytes and the first of them; of the other columns only label, hub_id, file and offset are set."""

ENTRY_SCHEMA: Final = pa.schema([pa.field(column.name, column.type) for column in COLUMNS])
"""Every field is nullable, because Spark makes all columns of a file source nullable."""
QUARANTINE_SCHEMA: Final = pa.schema([*ENTRY_SCHEMA, pa.field("damage", DAMAGE)])


def arrow_schema(*, quarantine: bool = False) -> pa.Schema:
    """Return the Arrow schema of a row."""
    return QUARANTINE_SCHEMA if quarantine else ENTRY_SCHEMA


def spark_schema(*, quarantine: bool = False) -> StructType:
    """Return the Spark schema of a row."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - slow to import

    return from_arrow_schema(arrow_schema(quarantine=quarantine))
