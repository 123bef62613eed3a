"""Live folds: an overlay's state in Parquet, updated by a stream exactly once (core §11.3).

    stream = spark.readStream.format("veen").option("hub", url).load()
    query = LiveFold(spark, "wallet.ledger", "state", keys).start(stream)
    ...
    LiveFold(spark, "wallet.ledger", "state").current()      # at any time, by any process

Each batch is folded like a log (``ranges``). Its duplicates are resolved against the batch itself and against
an index of all earlier keys, and its summaries are merged with the states of its labels. The new state is
committed in one step (``state_folder``): a batch that is repeated after a crash changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from veen_core.errors import StateError
from veen_overlays.fold.overlay import Overlay
from veen_spark.errors import SparkSetupError
from veen_spark.fold.duplicates import FoldJob, collect_keyed_messages, fold_again
from veen_spark.fold.fingerprints import fingerprint, first_occurrences, repeated_fingerprints, shared_ranges
from veen_spark.fold.folding import check_coverage, select_columns
from veen_spark.fold.merging import FOLDED_SCHEMA, merge_ranges
from veen_spark.fold.ranges import (
    MAX_BUFFERED_MESSAGES,
    PART_SCHEMA,
    RANGE_SCHEMA,
    range_task,
    resolve_overlay,
    spark_type,
)
from veen_spark.functions.reader_keys import ReaderKeys
from veen_spark.stream.state_folder import KINDS, Commit, Kind, ParquetPart, StateFolder, full_level

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KEY_SCHEMA: Final = pa.schema(
    [pa.field("label", pa.binary()), pa.field("key", pa.binary()), pa.field("seq", pa.int64())]
)
_SCHEMAS: Final[Mapping[Kind, pa.Schema]] = {"states": FOLDED_SCHEMA, "keys": KEY_SCHEMA}
Earlier = Mapping[tuple[bytes, bytes], int]


class LiveFold:
    """The state of one overlay over the labels of a stream, kept in one folder."""

    def __init__(
        self,
        spark: SparkSession,
        overlay: str | Overlay[Any],
        target: str | Path,
        keys: ReaderKeys | None = None,
        *,
        allow_pruned: bool = False,
    ) -> None:
        self.spark, self.overlay, self.keys = spark, resolve_overlay(overlay), keys
        self.target = StateFolder(Path(target))
        self.allow_pruned = allow_pruned

    def start(self, stream: DataFrame, **trigger: Any) -> StreamingQuery:
        """Follow the stream; ``trigger`` takes the arguments of ``DataStreamWriter.trigger``."""
        if not stream.isStreaming:
            raise SparkSetupError(
                "the DataFrame is not a stream", action="use spark.readStream, or call fold()"
            )
        if type(self.spark).__module__.startswith("pyspark.sql.connect"):
            raise SparkSetupError(
                "Spark Connect runs batches in its server, which cannot commit them",
                action="start the live fold with another master",
            )
        writer = stream.writeStream.foreachBatch(self.process_batch)
        writer = writer.option("checkpointLocation", str(self.target.checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    # --- reading

    def current(self) -> DataFrame:
        """Return the current state, one row per label, as ``fold`` does."""
        return self._newest(self._stored("states", self._last()))

    def _last(self) -> Commit:
        """Return the last commit; refuse the folder of another overlay."""
        class_id = self.overlay.class_id.hex()
        last = self.target.last() or Commit(-1, self.overlay.name, class_id)
        if last.class_id != class_id:
            raise StateError(
                f"{self.target.root} holds the state of another overlay, version or scope: it was written by "
                f"{last.overlay}, and this is {self.overlay.name}",
                action="choose another folder",
            )
        return last

    def _stored(self, kind: Kind, commit: Commit) -> DataFrame:
        schema = spark_type(_SCHEMAS[kind])
        paths = [self.target.path(kind, part) for part in commit.parts(kind)]
        return self.spark.read.schema(schema).parquet(*paths) if paths else self._none(schema)

    def _none(self, schema: Any) -> DataFrame:
        return self.spark.createDataFrame([], schema)

    @staticmethod
    def _newest(states: DataFrame) -> DataFrame:
        from pyspark.sql import Window  # noqa: PLC0415 - slow to import
        from pyspark.sql import functions as f  # noqa: PLC0415 - as above

        rank = f.row_number().over(Window.partitionBy("label").orderBy(f.desc("upto_seq")))
        return states.withColumn("rank", rank).where("rank = 1").drop("rank")

    # --- a batch

    def process_batch(self, frame: DataFrame, batch: int) -> None:
        """Fold one batch and commit the new state; Spark calls this for each batch."""
        last, rows = self._last(), select_columns(frame, self.overlay, self.keys)
        if batch <= last.batch:
            self._check_repeated(rows, batch, last)
            return
        task = range_task(self.overlay, self.keys, keep_keys=True)
        ranges = rows.mapInArrow(task, spark_type(RANGE_SCHEMA)).persist()
        try:
            if fingerprints := ranges.select("label", "from_seq", "to_seq", "fingerprints").collect():
                resolved = self._resolve(rows, ranges, [tuple(row) for row in fingerprints], last).persist()
                try:
                    self._write(batch, resolved, last)
                finally:
                    resolved.unpersist()
        finally:
            ranges.unpersist()

    def _check_repeated(self, rows: DataFrame, batch: int, last: Commit) -> None:
        """Raise if a batch whose number is committed already has new entries: it comes from another run."""
        beyond = (
            rows.groupBy("label").agg({"stream_seq": "max"})
            .join(self._newest(self._stored("states", last)).select("label", "upto_seq"), "label", "left")
            .where("upto_seq is null or `max(stream_seq)` > upto_seq")
        )  # fmt: skip
        if batch < last.batch or not beyond.isEmpty():
            raise StateError(
                f"batch {batch} was repeated, but {self.target.root} is at batch {last.batch} of another "
                "run: Spark's checkpoint was removed or replaced",
                action="remove the folder and start the live fold again",
            )

    def _resolve(
        self, rows: DataFrame, ranges: DataFrame, fingerprints: Sequence[Any], last: Commit
    ) -> DataFrame:
        """Return the ranges of the batch with all duplicates resolved."""
        earlier = self._earlier(ranges, last)
        shared = shared_ranges(_repeating(fingerprints, earlier))
        if not shared:
            return ranges
        from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

        job = FoldJob(rows, self.overlay, self.keys, MAX_BUFFERED_MESSAGES)
        firsts = first_occurrences(
            collect_keyed_messages(job, shared), lambda label, key: earlier.get((label, key))
        )
        again = fold_again(job, shared, firsts, keep_keys=True)
        replaced = self.spark.createDataFrame(
            [(m.label, m.from_seq) for m in shared], "label binary, from_seq long"
        )
        unchanged = ranges.join(f.broadcast(replaced), ["label", "from_seq"], "left_anti")
        return unchanged.select(*RANGE_SCHEMA.names).union(again)

    def _earlier(self, ranges: DataFrame, last: Commit) -> Earlier:
        """Return the keys of the batch that earlier batches had, with their first occurrence."""
        if not last.keys:
            return {}
        from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

        mine = ranges.select("label", f.explode("keys").alias("k")).select("label", "k.key")
        found = self._stored("keys", last).join(f.broadcast(mine), ["label", "key"], "left_semi")
        return {(bytes(label), bytes(key)): seq for label, key, seq in found.collect()}

    # --- writing

    def _write(self, batch: int, resolved: DataFrame, last: Commit) -> None:
        from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

        known = self._newest(self._stored("states", last)).join(
            resolved.select("label").distinct(), "label", "left_semi"
        )
        before = known.select(
            "label",
            f.lit(1).cast("long").alias("from_seq"),
            f.col("upto_seq").alias("to_seq"),
            *("mmr_root", "unopened", "pruned", "summary"),
        )
        both = before.union(resolved.select(*PART_SCHEMA.names))
        widest, _ = check_coverage(
            both.withColumn("fingerprints", f.lit(b"")), allow_pruned=self.allow_pruned
        )
        kept = resolved.select("label", f.explode("keys").alias("k")).select("label", "k.key", "k.seq")
        fresh: dict[Kind, DataFrame] = {"states": merge_ranges(both, self.overlay, widest), "keys": kept}
        parts = {kind: self._parts(kind, batch, fresh[kind], last) for kind in KINDS}
        self.target.commit(Commit(batch, self.overlay.name, self.overlay.class_id.hex(), **parts))

    def _parts(self, kind: Kind, batch: int, fresh: DataFrame, last: Commit) -> tuple[ParquetPart, ...]:
        """Return the parts after this batch: write the new rows, and join full levels."""
        parts = (*last.parts(kind), self.target.new_part(batch))
        self._store(kind, parts[-1], fresh)
        while joined := full_level(parts):
            part = self.target.new_part(batch, joined[0].level + 1)
            paths = [self.target.path(kind, p) for p in joined]
            rows = self.spark.read.schema(spark_type(_SCHEMAS[kind])).parquet(*paths)
            self._store(kind, part, self._newest(rows) if kind == "states" else rows)
            parts = (*(p for p in parts if p not in joined), part)
        return parts

    def _store(self, kind: Kind, part: ParquetPart, rows: DataFrame) -> None:
        sort = ("label",) if kind == "states" else ("label", "key")  # so that Parquet footers exclude files
        rows.sortWithinPartitions(*sort).write.parquet(self.target.path(kind, part))
        self.target.make_durable(kind, part)


def _repeating(fingerprints: Sequence[Any], earlier: Earlier) -> Iterator[Sequence[Any]]:
    by_label: dict[bytes, list[Any]] = {}
    for row in fingerprints:
        by_label.setdefault(bytes(row[0]), []).append(row)
    known: dict[bytes, list[bytes]] = {}
    for label, key in earlier:
        known.setdefault(label, []).append(fingerprint(key))
    for label, ranges in by_label.items():
        yield from repeated_fingerprints(ranges, b"".join(known.get(label, ())))
