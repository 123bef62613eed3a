"""The rows of the prefixes that a query reads, complete or not at all (RESOLUTIONS P11, P13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from veen_core.errors import DecodeError
from veen_core.receipt import Receipt
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.errors import execution_failed
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.result.coverage import Prefix, SourceCoverage, covered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SOURCES = pa.schema(
    [
        ("source", pa.int32()),
        ("of_hub", pa.binary()),
        ("of_label", pa.binary()),
        ("from_seq", pa.int64()),
        ("to_seq", pa.int64()),
    ]
)


def rows_of(frame: DataFrame, prefixes: Sequence[Prefix]) -> DataFrame:
    """Return the rows of the prefixes, with the number of their prefix as ``source``."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    table = pa.Table.from_pylist(
        [
            {
                "source": number,
                "of_hub": bytes(prefix.hub_id),
                "of_label": bytes(prefix.label),
                "from_seq": prefix.from_seq,
                "to_seq": prefix.to_seq,
            }
            for number, prefix in enumerate(prefixes)
        ],
        schema=_SOURCES,
    )
    sources = f.broadcast(frame.sparkSession.createDataFrame(table))
    same = (f.col("hub_id") == f.col("of_hub")) & (f.col("label") == f.col("of_label"))
    seq = f.col("seq").cast("long")
    rows = frame.withColumn("seq", seq).join(sources, same & seq.between(f.col("from_seq"), f.col("to_seq")))
    return rows.drop("of_hub", "of_label", "from_seq", "to_seq")


def matching(descriptor: QueryDescriptor) -> Column:
    """Return the part of a filter that Spark applies: events by subject, type and commit time (§4.2.4)."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    wanted, found = descriptor.filter, f.col("kind") == int(EntryKind.EVENT)
    if wanted.subject_id is not None:
        found &= f.col("subject_id") == wanted.subject_id
    if wanted.event_type is not None:
        found &= f.col("event_type").isin(list(wanted.event_type))
    if wanted.time_from is not None:
        found &= f.col("hub_commit_time") >= wanted.time_from
    if wanted.time_to is not None:
        found &= f.col("hub_commit_time") < wanted.time_to
    return found


@dataclass(frozen=True, slots=True)
class CountedRows:
    """The rows of one source, counted by kind, and its last receipt."""

    kinds: Mapping[int, int]
    """The number of rows of each kind."""
    last_receipt: bytes
    """The RECEIPT of the last entry, which signs the root of the prefix."""


def count(rows: DataFrame, prefixes: Sequence[Prefix]) -> list[CountedRows]:
    """Count the rows of each source; raise ``QueryError`` unless they are exactly the prefixes.

    Every entry must have one row, and the receipt of the last entry must have the root of the prefix.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    found = rows.groupBy("source", "kind").agg(
        f.count("*").alias("rows"),
        f.sum(f.col("seq").cast("decimal(38, 0)")).alias("total"),
        f.max(f.struct("seq", "receipt")).alias("last"),
    )
    by_source: dict[int, list[tuple[int, int, int, int, bytes]]] = {}
    for row in found.collect():
        entry = (
            row["kind"],
            row["rows"],
            int(row["total"]),
            row["last"]["seq"],
            bytes(row["last"]["receipt"]),
        )
        by_source.setdefault(row["source"], []).append(entry)
    return [_checked(prefix, by_source.get(number, [])) for number, prefix in enumerate(prefixes)]


def _checked(prefix: Prefix, found: Sequence[tuple[int, int, int, int, bytes]]) -> CountedRows:
    """Check the rows of one source: their number, the sum of their entries, and the last root."""
    size, total = sum(each[1] for each in found), sum(each[2] for each in found)
    if (size, total) != (prefix.size, prefix.size * (prefix.from_seq + prefix.to_seq) // 2):
        raise execution_failed(
            f"stream {prefix.stream!r}: there are {size} rows for the {prefix.size} entries "
            f"{prefix.from_seq} to {prefix.to_seq} of label {prefix.label.hex()}",
            "give the complete log, each entry once, or rebuild the view",
        )
    receipt = max((each[3:] for each in found), default=(0, b""))[1]
    if prefix.size and _root(receipt) != prefix.mmr_root:
        raise execution_failed(
            f"stream {prefix.stream!r}: the root of label {prefix.label.hex()} at entry {prefix.to_seq} "
            "differs in these rows",
            "check that the prefix is of the same hub; if it is, keep both logs as evidence",
        )
    return CountedRows({each[0]: each[1] for each in found}, receipt)


def _root(receipt: bytes) -> bytes | None:
    try:
        return Receipt.decode(receipt).mmr_root
    except DecodeError:
        return None


def coverage(prefix: Prefix, found: CountedRows, matched: int) -> SourceCoverage:
    """Return the coverage of a prefix (P13)."""
    pruned, unopened = (found.kinds.get(int(kind), 0) for kind in (EntryKind.PRUNED, EntryKind.UNOPENED))
    opened = sum(found.kinds.values()) - pruned - unopened
    return covered(prefix, opened=opened, unopened=unopened, pruned=pruned, matched=matched)
