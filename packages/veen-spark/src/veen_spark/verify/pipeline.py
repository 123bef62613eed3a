"""Verification as a pipeline: plan, find the peaks where parts begin, judge the parts, put them together.

1. The driver finds segments and the evidence beside them. Where chunk files have their peaks beside them
   (§4.8.3), these are claims good enough to begin with.
2. Where nothing tells the peaks before a part (a set or a chunk that was cut), tasks reduce the parts before
   it to perfect subtrees (``subtrees``): leaf hashes only, no signatures.
3. Tasks judge every entry of every part from those peaks (``judge``).
4. The driver puts the verdicts together, in order (``report``): what one part ends with must be what the next
   began from, so a false claim in 1 or 2 does not go unnoticed; and a label must be all that its manifest and
   checkpoints speak of (``completeness``).
5. A label that lies in several places must be the same log in all of them (``histories``).

What travels is segments and verdicts, never entries.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from veen_core.errors import VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_core.mmr import Mmr
from veen_spark.errors import DamagedLog
from veen_spark.read.log_files import Found, find_logs
from veen_spark.read.plan import MAX_BYTES, cut, gathered, share
from veen_spark.read.segment import Segment
from veen_spark.verify.artifacts import Mark
from veen_spark.verify.completeness import Beside
from veen_spark.verify.histories import compare, roots_at
from veen_spark.verify.judge import Fault, SegmentJudge, Verdict
from veen_spark.verify.origin import Origin, Peaks, Terms
from veen_spark.verify.report import Report, key_of, nothing_of, put_together
from veen_spark.verify.subtrees import Tile, tiles_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

In = TypeVar("In")
Out = TypeVar("Out")
Place = tuple[str, int]
"""Path and first byte: names a part."""
Work = tuple[Segment, Terms, Peaks | None, list[Mark]]


class Run(Protocol):
    """Whoever has the tasks carried out: one for each piece of work, results in order."""

    def __call__(self, task: Callable[[list[In]], list[Out]], work: Sequence[list[In]]) -> list[Out]: ...


def verify(
    spark: SparkSession,
    *paths: str,
    pinned: Collection[HubId] = (),
    identity: HubIdentity | None = None,
    max_partition_bytes: int = MAX_BYTES,
) -> Report:
    """Judge every entry under the paths. ``pinned`` names the hubs that may have signed them.

    ``identity`` is for chunk files without one beside them.
    """
    return judged(
        partial(run, spark), paths, pinned=pinned, identity=identity, max_partition_bytes=max_partition_bytes
    )


def judged(
    run: Run,
    paths: Iterable[str],
    *,
    pinned: Collection[HubId] = (),
    identity: HubIdentity | None = None,
    max_partition_bytes: int = MAX_BYTES,
) -> Report:
    """The pipeline, whoever carries its tasks out."""
    found = find_logs(paths)
    most = share(found.segments, max_partition_bytes)
    segments = [part for segment in found.segments for part in cut(segment, most)]
    origins, refused = _origins(found, pinned, identity)
    parts = [part for part in segments if part.origin in origins]
    before = _peaks(run, parts, origins)
    beside = Beside(parts, origins, found.whole)
    work = [
        (part, origins[part.origin].terms, before[place_of(part)], beside.held.get(place_of(part), []))
        for part in parts
    ]
    verdicts = run(judge_all, gathered(work, lambda one: one[0].size, most))
    for part in segments:
        if part.origin in refused:
            before[place_of(part)] = None
            verdicts.append(Verdict(segment=part, fault=refused[part.origin]))
    labels, partly = put_together(verdicts, before, beside.conclude)
    compare(
        labels,
        sorted(parts, key=_in_order),
        lambda lookups: run(roots_at, gathered(lookups, lambda one: one.part.size, most)),
    )
    seen = {segment.origin for segment in segments}
    lost = [nothing_of(folder, fault) for folder, fault in sorted(refused.items()) if folder not in seen]
    return Report(
        labels=(*labels, *beside.labels_without_entries(), *lost),
        hubs={bytes(origin.terms.identity.hub_id): bool(pinned) for origin in origins.values()},
        unsigned=tuple(sorted(folder for folder, origin in origins.items() if origin.signed is False)),
        partly_followed=partly,
    )


def place_of(segment: Segment) -> Place:
    return segment.path, segment.begin


def _origins(
    found: Found, pinned: Collection[HubId], identity: HubIdentity | None
) -> tuple[dict[str, Origin], dict[str, Fault]]:
    """The evidence of each folder, or why it does not hold: one of many does not hide the others."""
    origins: dict[str, Origin] = {}
    refused: dict[str, Fault] = {}
    starts = {segment.origin: segment.start_seq for segment in reversed(found.segments)}  # the first's
    for folder in sorted(found.whole | starts.keys()):
        try:
            if folder in found.damaged:
                raise found.damaged[folder]
            origins[folder] = Origin(folder, pinned, identity)
        except DamagedLog as exc:
            refused[folder] = Fault(
                seq=starts.get(folder, 1), file=exc.file, offset=exc.offset, reason=exc.what
            )
    return origins, refused


def _peaks(run: Run, parts: Sequence[Segment], origins: dict[str, Origin]) -> dict[Place, Peaks | None]:
    """The peaks before each part: claimed beside it, or made of the parts before it."""
    before = {place_of(p): origins[p.origin].peaks_before(p.label, p.start_seq) for p in parts}
    labels = [list(group) for _, group in groupby(sorted(parts, key=_in_order), key=key_of)]
    needed = [part for group in labels for part, after in pairwise(group) if before[place_of(after)] is None]
    if not needed:
        return before
    made = run(tile_all, gathered(needed, lambda part: part.size, share(needed, MAX_BYTES)))
    tiles = dict(zip(map(place_of, needed), made, strict=True))
    for group in labels:
        for part, after in pairwise(group):
            place = place_of(part)
            if before[place_of(after)] is None and place in tiles:
                peaks = _grown(part, before[place], tiles[place])
                fits = peaks is not None and len(peaks) == (after.start_seq - 1).bit_count()
                before[place_of(after)] = peaks if fits else None
    return before


def _in_order(segment: Segment) -> tuple[Any, ...]:
    return (*key_of(segment), segment.start_seq, segment.begin)


def _grown(part: Segment, peaks: Peaks | None, tiles: list[Tile] | None) -> Peaks | None:
    if peaks is None or tiles is None:
        return None
    tree = Mmr(part.start_seq - 1, peaks)
    try:
        for height, node in tiles:
            tree.append_subtree(height, node)
    except VeenError:
        return None  # it is not whole: the judge will say so
    return tree.peaks


# --- on executors


def judge_all(work: list[Work]) -> list[Verdict]:
    return [SegmentJudge(*one).run() for one in work]


def tile_all(parts: list[Segment]) -> list[list[Tile] | None]:
    return [tiles_of(part) for part in parts]


def run(spark: SparkSession, task: Callable[[list[In]], list[Out]], work: Sequence[list[In]]) -> list[Out]:
    """One task for each piece of work; results in order. Arguments travel pickled, and so do results."""
    if not work:
        return []
    packed = [zlib.compress(pickle.dumps(piece), 1) for piece in work]  # mostly paths, which are much alike

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                done = pickle.dumps(task(pickle.loads(zlib.decompress(packed[number]))))  # noqa: S301 - packed above
                yield pa.RecordBatch.from_pydict({"number": [number], "done": [done]})

    frame = spark.range(0, len(packed), 1, numPartitions=len(packed)).mapInArrow(
        each, "number long, done binary"
    )
    rows = sorted((row.number, row.done) for row in frame.collect())
    return [result for _, done in rows for result in pickle.loads(bytes(done))]  # noqa: S301 - by our tasks
