"""The row of the ``veen`` data source, declared once: Arrow and Spark schemas follow from it.

One row is one log entry (§4.8.1). ``kind`` says what stands in the MSG's place: ``msg`` a MSG, ``authorize``
a cap token in the hub's control label (H5), ``pruned`` nothing, since retention took it. Byte strings are
binary; ``hex(label)`` shows one. Times are whole seconds, as the hub signed them (§4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Kind = Literal["msg", "authorize", "pruned"]


class Column(NamedTuple):
    """Name, Arrow type, and whether every entry has one."""

    name: str
    type: pa.DataType
    always: bool
    comment: str


_BINARY, _LONG, _TEXT = pa.binary(), pa.int64(), pa.string()

COLUMNS: Final = (
    Column("label", _BINARY, True, "RECEIPT.label"),
    Column("stream_seq", _LONG, True, "RECEIPT.stream_seq"),
    Column("hub_ts", _LONG, True, "RECEIPT.hub_ts, Unix seconds"),
    Column("client_id", _BINARY, False, "MSG.client_id"),
    Column("client_seq", _LONG, False, "MSG.client_seq"),
    Column("prev_ack", _LONG, False, "MSG.prev_ack"),
    Column("auth_ref", _BINARY, False, "MSG.auth_ref; of a token, its own"),
    Column("leaf_hash", _BINARY, True, "RECEIPT.leaf_hash"),
    Column("mmr_root", _BINARY, True, "RECEIPT.mmr_root"),
    Column("ct_hash", _BINARY, False, "MSG.ct_hash"),
    Column("msg", _BINARY, False, "the MSG, or the token, as it lies in the log"),
    Column("receipt", _BINARY, True, "the RECEIPT as it lies in the log"),
    Column("kind", _TEXT, True, "msg, authorize or pruned"),
    Column("hub_id", _BINARY, False, "whose log it is, if an identity lies beside it"),
    Column("file", _TEXT, True, "where it was read"),
    Column("offset", _LONG, True, "the byte at which it begins there"),
)
DAMAGE: Final = pa.struct([pa.field("reason", _TEXT), pa.field("length", _LONG), pa.field("bytes", _BINARY)])
"""``mode=quarantine``: a last column, null for an entry; else all of the above but ``file`` and ``offset`` is
null, and this says why, how many bytes were passed over, and the first of them."""

ENTRY_SCHEMA: Final = pa.schema([pa.field(column.name, column.type) for column in COLUMNS])
"""Every field is nullable, as Spark has it for whatever it reads from files."""
QUARANTINE_SCHEMA: Final = pa.schema([*ENTRY_SCHEMA, pa.field("damage", DAMAGE)])


def arrow_schema(*, quarantine: bool = False) -> pa.Schema:
    return QUARANTINE_SCHEMA if quarantine else ENTRY_SCHEMA


def spark_schema(*, quarantine: bool = False) -> StructType:
    """The same for Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - slow to import

    return from_arrow_schema(arrow_schema(quarantine=quarantine))
