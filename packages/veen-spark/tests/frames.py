"""DataFrames of a hub's logs, and the state that one process computes from the same logs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from veen_core.cap import CapToken
from veen_core.entry import Entry
from veen_core.keys import DhKey
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay, Summary
from veen_overlays.live.opening import open_entry
from veen_spark.read.columns import spark_schema

from .logs import Hub


def entries(hub: Hub, name: str) -> list[Entry]:
    head = hub.store.read.head(hub.label(name))
    return [] if head is None else list(hub.store.read.entries(hub.label(name), 1, head.stream_seq))


def row_of(entry: Entry, hub_id: bytes) -> dict[str, Any]:
    """Return an entry as a row of the data source."""
    receipt = entry.receipt
    row: dict[str, Any] = {
        "label": receipt.label,
        "stream_seq": receipt.stream_seq,
        "hub_ts": receipt.hub_ts,
        "leaf_hash": receipt.leaf_hash,
        "mmr_root": receipt.mmr_root,
        "msg": entry.msg_bytes,
        "receipt": entry.receipt_bytes,
        "kind": "authorize" if entry.is_authorize else "msg",
        "hub_id": hub_id,
        "file": "memory",
        "offset": 0,
    }
    if entry.is_authorize:
        row["auth_ref"] = CapToken.decode(entry.msg_bytes).auth_ref
    else:
        msg = entry.msg
        fields = ("client_id", "client_seq", "prev_ack", "auth_ref", "ct_hash")
        row |= {name: getattr(msg, name) for name in fields}
    return {name: bytes(value) if isinstance(value, bytes) else value for name, value in row.items()}


def frame_of(spark: SparkSession, hub: Hub, *names: str, partitions: int = 3) -> DataFrame:
    """Return the entries of these streams in order, split into partitions at arbitrary entries."""
    rows = [row_of(entry, hub.hub_id) for name in names for entry in entries(hub, name)]
    return frame(spark, rows, partitions)


def frame(spark: SparkSession, rows: Iterable[dict[str, Any]], partitions: int = 3) -> DataFrame:
    schema = spark_schema()
    tuples = [tuple(row.get(name) for name in schema.names) for row in rows]
    return spark.createDataFrame(spark.sparkContext.parallelize(tuples, partitions), schema)


def opened(hub: Hub, name: str, key: DhKey) -> list[Message]:
    return [open_entry(entry, entry.receipt, key) for entry in entries(hub, name)]


def in_one_process(overlay: Overlay[Any], hub: Hub, name: str, key: DhKey) -> Summary[Any]:
    """Fold the stream in this process: the expected result of ``fold``."""
    return overlay.fold(opened(hub, name, key))
