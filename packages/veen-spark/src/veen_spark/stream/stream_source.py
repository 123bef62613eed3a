"""The streaming source: ``spark.readStream.format("veen").option("hub", url)``.

Options: ``hub`` (URL) and ``hubId`` (the hub that must answer there); ``stream`` (names) or ``label`` (hex),
comma-separated; ``startingOffsets`` (``earliest``, ``latest``, or JSON ``{label: first stream_seq}``);
``maxOffsetsPerTrigger``; ``failOnDataLoss``; ``ca`` (a PEM file). Rows have the columns of ``columns``;
``file`` is the hub's URL and ``offset`` the stream_seq.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from veen_core.entry import Entry
from veen_core.errors import DecodeError
from veen_core.ids import HubId, Label
from veen_core.receipt import Receipt
from veen_spark.errors import SparkSetupError
from veen_spark.read.columns import ENTRY_SCHEMA
from veen_spark.read.options import Options
from veen_spark.read.rows import entry_fields, receipt_fields
from veen_spark.stream import live_hub

OPTIONS: Final = frozenset(
    {"hub", "hubid", "stream", "label", "startingoffsets", "maxoffsetspertrigger", "failondataloss", "ca"}
)
PARTITION_ENTRIES: Final = 20_000
"""Entries that one task reads at most."""


class StreamPartition(InputPartition):
    """A range of entries of one label, and the offset at the end of the batch, whose root a task checks."""

    def __init__(self, label: Label, start: int, end: int, upto: live_hub.Offset) -> None:
        super().__init__((label, start, end))
        self.label, self.start, self.end, self.upto = label, start, end, upto


def hub_from_options(options: Options) -> live_hub.LiveHub:
    """Return the hub and labels that the options name."""
    if not options.has("hub") or not options.has("hubId"):
        raise SparkSetupError("a stream needs a pinned hub", action="set the options hub and hubId")
    try:
        hub_id = HubId.from_hex(options.text("hubId"))
        labels = tuple(Label.from_hex(text) for text in options.names("label"))
    except DecodeError as exc:
        raise SparkSetupError(str(exc)) from exc
    if not (labels or options.names("stream")):
        raise SparkSetupError("no stream was chosen", action="set the option stream or label")
    return live_hub.LiveHub(
        url=options.text("hub"),
        hub_id=hub_id,
        streams=options.names("stream"),
        labels=labels,
        ca=os.path.abspath(options.text("ca")) if options.text("ca") else None,
        fail_on_data_loss=options.choice("failOnDataLoss", ("true", "false")) == "true",
    )


class VeenStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Computes offsets on the driver and reads entries in tasks."""

    def __init__(self, options: Options) -> None:
        self._live = hub_from_options(options)
        self._starting = options.text("startingOffsets", "earliest")
        self._limit = (
            options.number("maxOffsetsPerTrigger", 1) if options.has("maxOffsetsPerTrigger") else None
        )
        self._last: live_hub.Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return dict(self._live.ask(lambda hub: live_hub.starting(hub, self._live, self._starting)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable() if self._limit is None else ReadMaxRows(self._limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        found = self._live.ask(lambda hub: live_hub.latest(hub, self._live, start, max_rows))
        if (last := self._last) is not None:
            until = {label: min(offset, last[label], key=_seq) for label, offset in found.items()}
            # Never go back: a hub that has lost entries would make the stream read them twice.
            found = {label: max(start.get(label, end), end, key=_seq) for label, end in until.items()}
        return dict(found)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of this run; later entries are read by the next run."""
        self._last = self._live.ask(lambda hub: live_hub.latest(hub, self._live, {}, None))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return None  # saves one request to the hub per batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [
            StreamPartition(
                Label.from_hex(label), first, min(first + PARTITION_ENTRIES, last + 1) - 1, offset
            )
            for label, offset in sorted(end.items())
            if (last := offset["seq"])
            for first in range(start.get(label, {"seq": 0})["seq"] + 1, last + 1, PARTITION_ENTRIES)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, StreamPartition)
        label, start, end, upto = partition.label, partition.start, partition.end, partition.upto
        read_range = partial(live_hub.entries, live=self._live, label=label, end=end, upto=upto)
        while start <= end:
            found = self._live.ask(partial(read_range, start=start))
            for at in range(0, len(found), live_hub.PAGE_ENTRIES):
                rows = [self._row(one) for one in found[at : at + live_hub.PAGE_ENTRIES]]
                yield pa.RecordBatch.from_pylist(rows, schema=ENTRY_SCHEMA)
            start += len(found)

    def _row(self, one: Entry | Receipt) -> dict[str, Any]:
        receipt = one if isinstance(one, Receipt) else one.receipt
        row = (
            {"kind": "pruned", "receipt": receipt.encode()} if isinstance(one, Receipt) else entry_fields(one)
        )
        source = {"hub_id": bytes(self._live.hub_id), "file": self._live.url, "offset": receipt.stream_seq}
        return row | receipt_fields(receipt) | source


def _seq(offset: live_hub.Offset) -> int:
    return offset["seq"]
