"""Nodes of a source's tree, computed by tasks from the leaf hashes of its rows (core §5.1, RESOLUTIONS B11).

The leaves are split into aligned blocks. A task computes the whole tree of a block and returns the block's
root and the nodes below it that a proof needs. The driver joins block roots to all higher nodes, so it holds
about 60 bytes per 4,096 entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from veen_core.ids import NodeHash
from veen_core.mmr import node_hash
from veen_overlays.query.errors import execution_failed
from veen_spark.fold.ranges import Task, record_batches, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BLOCK_HEIGHT: Final = 12
"""Height of a block's root: 4,096 leaves."""
_LEAVES: Final = ("source", "block", "seq", "leaf_hash")
_NODE_SCHEMA: Final = pa.schema(
    [("source", pa.int32()), ("height", pa.int32()), ("index", pa.int64()), ("node", pa.binary())]
)
Address = tuple[int, int]
"""Height and index."""


class TreeNodes:
    """The nodes of some sources, by source and address."""

    def __init__(self, known: Mapping[tuple[int, int, int], bytes]) -> None:
        self._known = dict(known)

    def node(self, source: int, height: int, index: int) -> NodeHash:
        """Return a node: a task has computed it, or it follows from nodes below it."""
        key = (source, height, index)
        if key not in self._known:
            if height <= BLOCK_HEIGHT:
                raise execution_failed(
                    f"node {index} of height {height} is missing in the tree of a source",
                    "give the complete log, or rebuild the view",
                )
            left, right = (self.node(source, height - 1, 2 * index + side) for side in (0, 1))
            self._known[key] = node_hash(left, right)
        return NodeHash(self._known[key])


def compute_nodes(rows: DataFrame, wanted: Mapping[int, Iterable[Address]]) -> TreeNodes:
    """Compute these nodes of each source; ``rows`` have ``source``, ``seq`` and ``leaf_hash``."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    below: dict[tuple[int, int], list[Address]] = {}
    for source, addresses in wanted.items():
        for height, index in addresses:
            if height < BLOCK_HEIGHT:
                below.setdefault((source, index >> (BLOCK_HEIGHT - height)), []).append((height, index))
    block = f.shiftright(f.col("seq") - 1, BLOCK_HEIGHT).alias("block")
    leaves = rows.where(f.col("source").isin(list(wanted))).select("source", block, "seq", "leaf_hash")
    sorted_leaves = leaves.repartition("source", "block").sortWithinPartitions("source", "block", "seq")
    table = sorted_leaves.mapInArrow(_task(below), spark_type(_NODE_SCHEMA)).toArrow()
    found = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return TreeNodes({(source, height, index): node for source, height, index, node in found})


def _task(below: Mapping[tuple[int, int], list[Address]]) -> Task:
    def hash_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for b in batches for row in zip(*(b.column(n).to_pylist() for n in _LEAVES), strict=True))
        blocks = groupby(rows, key=itemgetter(0, 1))
        return record_batches(
            (
                (source, *node)
                for (source, block), group in blocks
                for node in _nodes(block, [row[3] for row in group], below.get((source, block), ()))
            ),
            _NODE_SCHEMA,
        )

    return hash_blocks


def _nodes(block: int, leaves: list[bytes], wanted: Iterable[Address]) -> Iterator[tuple[Any, ...]]:
    """Yield the root of a complete block, and the wanted nodes below it."""
    level: list[bytes] = leaves
    levels = [level]
    while len(level) > 1:
        level = [node_hash(level[n], level[n + 1]) for n in range(0, len(level) - 1, 2)]
        levels.append(level)
    if len(leaves) == 1 << BLOCK_HEIGHT:
        yield BLOCK_HEIGHT, block, levels[BLOCK_HEIGHT][0]
    for height, index in wanted:
        at = index - (block << (BLOCK_HEIGHT - height))
        if height < len(levels) and at < len(levels[height]):
            yield height, index, levels[height][at]
