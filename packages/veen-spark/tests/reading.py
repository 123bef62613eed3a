"""The data source called without Spark: planning and reading in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from veen_spark.read.columns import arrow_schema
from veen_spark.read.options import Options
from veen_spark.read.source import OPTIONS, LogPartition, VeenReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class Reading:
    """A planned read, with its partitions and rows."""

    def __init__(self, *paths: Path | str, filters: tuple[Filter, ...] = (), **options: str) -> None:
        where = {"path": str(paths[0])} if len(paths) == 1 else {"paths": _json(paths)}
        self._quarantine = options.get("mode") == "quarantine"
        self._reader = VeenReader(Options({**where, **options}, OPTIONS))
        self._reader.pushFilters(list(filters))
        self.parts = [part for part in self._reader.partitions() if isinstance(part, LogPartition)]

    def batches(self, part: LogPartition) -> list[pa.RecordBatch]:
        return list(self._reader.read(part))

    @property
    def table(self) -> pa.Table:
        found = [batch for part in self.parts for batch in self.batches(part)]
        return pa.Table.from_batches(found, schema=arrow_schema(quarantine=self._quarantine))

    @property
    def numbers(self) -> list[int]:
        """The stream_seq of the entries, in the order of the rows."""
        return [number for number in self.table["stream_seq"].to_pylist() if number is not None]


def _json(paths: tuple[Path | str, ...]) -> str:
    return "[" + ", ".join(f'"{path}"' for path in paths) + "]"
