"""Tasks of the verification: run on Spark, or one after the other in this process.

``TaskRunner`` sends pieces of work to tasks and returns their results to the driver. ``TaskExchange`` sends
records from tasks to other tasks by a shuffle, so that the driver never holds them. Work and results are
pickled.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from veen_spark.read.field_layout import Ints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

In = TypeVar("In")
Out = TypeVar("Out")
To = TypeVar("To")
Records = npt.NDArray[np.void]
"""Records of one numpy dtype without padding."""
Addressed = tuple[Ints, Records]
"""Records, and for each the number of the receiver that gets it."""
Send = Callable[[In], Iterator[Addressed]]
Receive = Callable[[To, Iterator[Records]], Out]


class TaskRunner(Protocol):
    """Runs one task per piece of work and returns the results in order."""

    def __call__(self, task: Callable[[list[In]], list[Out]], work: Sequence[list[In]]) -> list[Out]: ...


class TaskExchange(Protocol):
    """Runs ``send`` on every piece of work, and ``receive`` for every receiver that records are sent to.

    Returns the results by the number of the receiver. The records of a receiver come in any order.
    """

    def __call__(
        self, send: Send[In], work: Sequence[In], receive: Receive[To, Out], receivers: Sequence[To]
    ) -> dict[int, Out]: ...


def packed(work: Iterable[object]) -> list[bytes]:
    """Pickle pieces of work and compress them: they consist mostly of similar paths."""
    return [zlib.compress(pickle.dumps(piece), 1) for piece in work]


def unpacked(piece: bytes) -> Any:
    """Return a piece of work that ``packed`` has pickled."""
    return pickle.loads(zlib.decompress(piece))  # noqa: S301 - pickled above


def run(spark: SparkSession, task: Callable[[list[In]], list[Out]], work: Sequence[list[In]]) -> list[Out]:
    """Run one Spark task per piece of work and return the results in order."""
    if not work:
        return []
    pieces = packed(work)

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                done = pickle.dumps(task(unpacked(pieces[number])))
                yield pa.RecordBatch.from_pydict({"number": [number], "done": [done]})

    frame = spark.range(0, len(pieces), 1, numPartitions=len(pieces)).mapInArrow(
        each, "number long, done binary"
    )
    rows = sorted((row.number, row.done) for row in frame.collect())
    return [result for _, done in rows for result in pickle.loads(bytes(done))]  # noqa: S301 - pickled by our tasks


def exchange(
    spark: SparkSession,
    send: Send[In],
    work: Sequence[In],
    receive: Receive[To, Out],
    receivers: Sequence[To],
    *,
    dtype: np.dtype[Any],
) -> dict[int, Out]:
    """Run one Spark task per piece of work and one per receiver, with a shuffle between them."""
    if not work or not receivers:
        return {}
    pieces, waiting = packed(work), packed(receivers)

    def senders(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for to, records in send(unpacked(pieces[number])):
                    yield pa.RecordBatch.from_arrays(
                        [pa.array(to, pa.int64()), _to_arrow(records)], names=["receiver", "record"]
                    )

    def receiving(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, parts in groupby(_from_arrow(batches, dtype), key=lambda one: one[0]):
            done = pickle.dumps(receive(unpacked(waiting[number]), (records for _, records in parts)))
            yield pa.RecordBatch.from_pydict({"receiver": [number], "done": [done]})

    sent = spark.range(0, len(pieces), 1, numPartitions=len(pieces)).mapInArrow(
        senders, "receiver long, record binary"
    )
    # The number of partitions is set explicitly, because Spark would merge small partitions. The records are
    # small, but each receiver also reads its part of the log, so each needs a task.
    frame = (
        sent.repartition(len(receivers), "receiver")
        .sortWithinPartitions("receiver")
        .mapInArrow(receiving, "receiver long, done binary")
    )
    return {row.receiver: pickle.loads(bytes(row.done)) for row in frame.collect()}  # noqa: S301 - as above


def _to_arrow(records: Records) -> pa.Array:
    """Return each record as one binary value, without copying the records one by one."""
    size = records.dtype.itemsize
    offsets = np.arange(len(records) + 1, dtype=np.int32) * np.int32(size)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(records).tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(records), buffers)


def _from_arrow(batches: Iterable[pa.RecordBatch], dtype: np.dtype[Any]) -> Iterator[tuple[int, Records]]:
    """Yield runs of records with the same receiver."""
    for batch in batches:
        to = batch.column(0).to_numpy()
        records = np.frombuffer(b"".join(batch.column(1).to_pylist()), dtype=dtype)
        yield from runs(to, records)


def runs(to: Ints, records: Records) -> Iterator[tuple[int, Records]]:
    """Split records where the number of the receiver changes."""
    if not len(to):
        return
    bounds = [0, *(np.flatnonzero(np.diff(to)) + 1).tolist(), len(to)]
    for begin, end in pairwise(bounds):
        yield int(to[begin]), records[begin:end]


def exchange_by(run: TaskRunner) -> TaskExchange:
    """Return an exchange for tasks that ``run`` runs in this process: the records stay in its memory."""

    def exchanged(
        send: Send[In], work: Sequence[In], receive: Receive[To, Out], receivers: Sequence[To]
    ) -> dict[int, Out]:
        inbox: dict[int, list[Records]] = {}
        for to, records in run(lambda pieces: [one for piece in pieces for one in send(piece)], [[*work]]):
            order = np.argsort(to, kind="stable")
            for number, part in runs(to[order], records[order]):
                inbox.setdefault(number, []).append(part)
        numbers = sorted(inbox)

        def received(pieces: list[tuple[To, list[Records]]]) -> list[Out]:
            return [receive(piece, iter(records)) for piece, records in pieces]

        return dict(zip(numbers, run(received, [[(receivers[n], inbox[n])] for n in numbers]), strict=True))

    return exchanged
