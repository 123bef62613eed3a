"""The ``veen`` data source: ``spark.read.format("veen").load(path)``.

Options: ``mode`` is ``failfast`` (a damaged entry fails the read; the error names file and byte) or
``quarantine`` (a damaged entry becomes a row whose column ``damage`` is set). ``maxPartitionBytes`` limits
the bytes that one task reads. Every executor must reach the paths under the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from veen_spark.read.columns import spark_schema
from veen_spark.read.log_files import find_segments
from veen_spark.read.options import Options
from veen_spark.read.plan import MAX_PARTITION_BYTES, pack
from veen_spark.read.pushdown import PushedFilters
from veen_spark.read.rows import batches
from veen_spark.read.segment import SparkSegment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

NAME: Final = "veen"
MODES: Final = ("failfast", "quarantine")
OPTIONS: Final = frozenset({"path", "paths", "mode", "maxpartitionbytes"})


def register(spark: SparkSession) -> None:
    """Register ``format("veen")`` with a session."""
    spark.dataSource.register(VeenDataSource)


class LogPartition(InputPartition):
    """The segments that one task reads."""

    def __init__(self, segments: list[SparkSegment]) -> None:
        super().__init__(segments)
        self.segments = segments


class VeenDataSource(DataSource):
    """The data source: one row per log entry, with the columns of ``columns``."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(quarantine=self._quarantine)

    @property
    def _quarantine(self) -> bool:
        return self.options.get("mode", MODES[0]).lower() == "quarantine"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - the schema is fixed
        return VeenReader(Options(self.options, OPTIONS))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - as above; Spark's
        from veen_spark.stream import stream_source  # noqa: PLC0415 - loads the client, which reading files does not need

        return stream_source.VeenStreamReader(Options(self.options, stream_source.OPTIONS))


class VeenReader(DataSourceReader):
    """Plans on the driver and reads in tasks; a task receives only its ``LogPartition``."""

    def __init__(self, options: Options) -> None:
        self._paths = options.paths
        self._quarantine = options.choice("mode", MODES) == "quarantine"
        self._max_bytes = options.number("maxPartitionBytes", MAX_PARTITION_BYTES)
        self._filters = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        for condition in filters:
            self._filters = self._filters.with_filter(condition)
        return filters  # Spark applies them again; this source only skips rows that cannot match

    def partitions(self) -> Sequence[InputPartition]:
        segments = self._filters.segments(find_segments(self._paths))
        return [LogPartition(part) for part in pack(segments, self._max_bytes)] or [LogPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, LogPartition)
        for batch in batches(partition.segments, quarantine=self._quarantine):
            if (kept := self._filters.rows(batch)).num_rows:
                yield kept
