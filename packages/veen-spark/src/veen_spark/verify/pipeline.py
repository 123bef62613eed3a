"""The verification pipeline.

1. The driver finds the segments and verifies the identity, registry and manifest of each folder
   (``origin``). Large segments are split into parts. Peaks files (core §4.8.3) claim the peaks before a part.
2. Where no file claims the peaks before a part, tasks reduce the parts before it to perfect subtrees
   (``subtrees``): leaf hashes only, no signatures.
3. Tasks verify every entry of every part, starting from those peaks (``segment_verifier``).
4. The driver joins the verdicts in order (``report``). Each part must end with the peaks that the next one
   started from, which exposes a false claim of step 1 or 2. A label must hold every entry that its manifest
   and artifacts mention (``missing_entries``).
5. Copies of one label in several folders must have the same history (``histories_agree``).
6. The hub log of a folder must commit to its labels, and to no others (``hub_log``).

Only segments and verdicts are sent between driver and executors, never entries. The heads of a hub log are
sent between executors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from veen_core.errors import VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_core.log_rules import LogTerms
from veen_core.mmr import Mmr
from veen_spark.errors import DamagedLog
from veen_spark.read.log_files import FoundLogs, find_logs
from veen_spark.read.plan import MAX_PARTITION_BYTES, group_by_size, split, task_bytes
from veen_spark.read.segment import SparkSegment
from veen_spark.verify.artifacts import Artifact
from veen_spark.verify.histories_agree import compare_copies, roots_at
from veen_spark.verify.hub_log.check import check_hub_logs, find_hub_logs
from veen_spark.verify.hub_log.entries import HEAD
from veen_spark.verify.missing_entries import ArtifactIndex
from veen_spark.verify.origin import LogOrigin, Peaks
from veen_spark.verify.report import (
    PartKey,
    VerificationReport,
    assemble_labels,
    empty_label,
    key_of,
    part_key,
)
from veen_spark.verify.segment_verifier import LabelFault, SegmentVerdict, SegmentVerifier
from veen_spark.verify.subtrees import Tile, tiles_of
from veen_spark.verify.tasks import TaskExchange, TaskRunner, exchange, exchange_by, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = tuple[SparkSegment, LogTerms, Peaks | None, list[Artifact]]


def verify(
    spark: SparkSession,
    *paths: str,
    pinned: Iterable[HubId | str] = (),
    identity: HubIdentity | None = None,
    max_partition_bytes: int = MAX_PARTITION_BYTES,
) -> VerificationReport:
    """Verify every entry under the paths.

    ``pinned`` names the hubs that may have signed the entries, as ``HubId`` or in hex; empty means any hub.
    ``identity`` is used for chunk files that have no hub-identity.cbor in their folder.
    """
    return run_pipeline(
        partial(run, spark),
        paths,
        pinned=pinned,
        identity=identity,
        max_partition_bytes=max_partition_bytes,
        exchange=partial(exchange, spark, dtype=HEAD),
    )


def run_pipeline(
    run: TaskRunner,
    paths: Iterable[str],
    *,
    pinned: Iterable[HubId | str] = (),
    identity: HubIdentity | None = None,
    max_partition_bytes: int = MAX_PARTITION_BYTES,
    exchange: TaskExchange | None = None,
) -> VerificationReport:
    """Verify every entry under the paths, as ``verify``; ``run`` and ``exchange`` run the tasks."""
    hubs = [_hub_id(hub) for hub in ([pinned] if isinstance(pinned, str | HubId) else pinned)]
    found = find_logs(paths)
    limit = task_bytes(found.segments, max_partition_bytes)
    segments = [part for segment in found.segments for part in split(segment, limit)]
    origins, refused = _origins(found, hubs, identity)
    parts = [part for part in segments if part.origin in origins]
    before = _peaks(run, parts, origins)
    artifacts = ArtifactIndex(parts, origins, found.whole)
    work = [
        (
            part,
            origins[part.origin].terms(part.label),
            before[part_key(part)],
            artifacts.by_part.get(part_key(part), []),
        )
        for part in parts
    ]
    verdicts = run(verify_parts, group_by_size(work, lambda one: one[0].size, limit))
    for part in segments:
        if part.origin in refused:
            before[part_key(part)] = None
            verdicts.append(SegmentVerdict(segment=part, fault=refused[part.origin]))
    labels, partly = assemble_labels(verdicts, before, artifacts.missing)
    compare_copies(
        labels,
        sorted(parts, key=_in_order),
        lambda lookups: run(roots_at, group_by_size(lookups, lambda one: one.part.size, limit)),
    )
    seen = {segment.origin for segment in segments}
    labels += artifacts.labels_without_entries()
    labels += (empty_label(folder, fault) for folder, fault in sorted(refused.items()) if folder not in seen)
    hub_logs = find_hub_logs(found, origins, hubs, identity)
    faults, checked = check_hub_logs(
        run, exchange or exchange_by(run), hub_logs, labels, verdicts, max_bytes=limit
    )
    return VerificationReport(
        labels=(*labels, *faults),
        hubs={bytes(origin.identity.hub_id): bool(hubs) for origin in origins.values()},
        unsigned=tuple(sorted(folder for folder, origin in origins.items() if origin.signed is False)),
        partly_followed=partly,
        hub_logs=tuple(checked),
        without_hub_log=tuple(sorted(hub_logs.without)),
    )


def _hub_id(pinned: object) -> HubId:
    """Return a pinned hub as ``HubId``; raise ``TypeError`` for anything but a HubId or hex."""
    if isinstance(pinned, HubId):
        return pinned
    if isinstance(pinned, str):
        return HubId.from_hex(pinned)
    raise TypeError(f"pinned: expected a HubId or a hub_id in hex, found {type(pinned).__name__}")


def _origins(
    found: FoundLogs, pinned: Collection[HubId], identity: HubIdentity | None
) -> tuple[dict[str, LogOrigin], dict[str, LabelFault]]:
    """Return the verified folders, and the fault of each folder that does not verify."""
    origins: dict[str, LogOrigin] = {}
    refused: dict[str, LabelFault] = {}
    starts = {
        segment.origin: segment.start_seq for segment in reversed(found.segments)
    }  # of the first segment
    for folder in sorted(found.whole | starts.keys()):
        try:
            if folder in found.damaged:
                raise found.damaged[folder]
            origins[folder] = LogOrigin(folder, pinned, identity)
        except DamagedLog as exc:
            refused[folder] = LabelFault(
                seq=starts.get(folder, 1), file=exc.file, offset=exc.offset, reason=exc.reason
            )
    return origins, refused


def _peaks(
    run: TaskRunner, parts: Sequence[SparkSegment], origins: dict[str, LogOrigin]
) -> dict[PartKey, Peaks | None]:
    """Return the peaks before each part: claimed by a file, or computed from the parts before it."""
    before = {part_key(p): origins[p.origin].peaks_before(p.label, p.start_seq) for p in parts}
    labels = [list(group) for _, group in groupby(sorted(parts, key=_in_order), key=key_of)]
    needed = [part for group in labels for part, after in pairwise(group) if before[part_key(after)] is None]
    if not needed:
        return before
    made = run(
        reduce_parts, group_by_size(needed, lambda part: part.size, task_bytes(needed, MAX_PARTITION_BYTES))
    )
    tiles = dict(zip(map(part_key, needed), made, strict=True))
    for group in labels:
        for part, after in pairwise(group):
            key = part_key(part)
            if before[part_key(after)] is None and key in tiles:
                peaks = _peaks_after(part, before[key], tiles[key])
                fits = peaks is not None and len(peaks) == (after.start_seq - 1).bit_count()
                before[part_key(after)] = peaks if fits else None
    return before


def _in_order(segment: SparkSegment) -> tuple[Any, ...]:
    return (*key_of(segment), segment.start_seq, segment.begin)


def _peaks_after(part: SparkSegment, peaks: Peaks | None, tiles: list[Tile] | None) -> Peaks | None:
    """Return the peaks after a part, or None if they cannot be computed."""
    if peaks is None or tiles is None:
        return None
    tree = Mmr(part.start_seq - 1, peaks)
    try:
        for height, node in tiles:
            tree.append_subtree(height, node)
    except VeenError:
        return None  # the part is incomplete, which its verifier reports
    return tree.peaks


# --- on executors


def verify_parts(work: list[Work]) -> list[SegmentVerdict]:
    """Verify the parts of one task."""
    return [SegmentVerifier(*one).run() for one in work]


def reduce_parts(parts: list[SparkSegment]) -> list[list[Tile] | None]:
    """Reduce the parts of one task to subtrees."""
    return [tiles_of(part) for part in parts]
