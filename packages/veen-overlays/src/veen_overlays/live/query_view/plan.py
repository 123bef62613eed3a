"""The plan of a query over a snapshot: which files it reads, where it cuts them, and the coverage (P11, P13).

A file whose rows all lie within the prefixes is read as it is. A file that also has later entries, or entries
of other sources, is read up to the prefixes. The counts of the coverage come from the manifest; only a file
that a prefix cuts is counted by reading it. Counts that do not add up to the size of a prefix fail the query.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from veen_overlays.live.query_view.files.data_files import CARRIED, KINDS
from veen_overlays.live.query_view.files.manifest import REBUILD, DataFile, FileRows
from veen_overlays.live.query_view.files.manifest_index import SourceKey
from veen_overlays.live.query_view.snapshot import Snapshot
from veen_overlays.live.query_view.sql import FileSet, SourceCut
from veen_overlays.query import canonical_json
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.errors import execution_failed
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.scope_sources import is_empty_source

CountCut = Callable[[Sequence[str], SourceCut], Sequence[int]]
"""Counts the rows of a cut in Parquet files, by kind."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The files and sources that a query reads."""

    files: tuple[FileSet, ...]
    kinds: tuple[Sequence[int], ...]
    """For each prefix the number of its entries by kind."""
    index_of: dict[SourceKey, int]
    """The index of each source among the prefixes."""


def plan(
    snapshot: Snapshot, descriptor: QueryDescriptor, prefixes: Sequence[Prefix], count_cut: CountCut
) -> Plan:
    """Plan a query; raise ``QueryError`` unless the view has exactly these prefixes."""
    held = {_key(prefix): prefix for prefix in prefixes if not is_empty_source(prefix)}
    for prefix in held.values():
        snapshot.source(prefix)
    allowed = _streams_allowed(descriptor)
    sets: list[FileSet] = []
    for place, stream in enumerate(descriptor.scope):
        if stream in allowed:
            sets.extend(_file_sets(snapshot, descriptor, held, place, stream))
    return Plan(
        files=tuple(sets),
        kinds=tuple(_kinds(snapshot, prefix, count_cut) for prefix in prefixes),
        index_of={_key(prefix): index for index, prefix in enumerate(prefixes)},
    )


def _key(prefix: Prefix) -> SourceKey:
    return prefix.stream, bytes(prefix.hub_id), bytes(prefix.label)


def _streams_allowed(descriptor: QueryDescriptor) -> set[str]:
    """The streams of the scope that ``filter.where`` does not exclude."""
    allowed = set(descriptor.scope)
    for condition in descriptor.filter.where:
        if condition.field.name == "stream":
            allowed = {s for s in allowed if canonical_json.encode(s) in condition.encoded}
    return allowed


def _file_sets(
    snapshot: Snapshot, descriptor: QueryDescriptor, held: dict[SourceKey, Prefix], place: int, stream: str
) -> Iterator[FileSet]:
    wanted = descriptor.filter
    sets: dict[tuple[SourceCut, ...] | None, list[DataFile]] = defaultdict(list)
    for file in snapshot.files(
        stream,
        times=(wanted.time_from, wanted.time_to),
        subject=wanted.subject_id,
        types=wanted.event_type,
    ):
        cuts = [_cut(held.get(_span_key(stream, span)), span) for span in file.spans]
        if all(cut is not None and cut.to_seq >= s.to_seq for cut, s in zip(cuts, file.spans, strict=True)):
            sets[None].append(file)
        elif found := tuple(cut for cut in cuts if cut is not None):
            sets[found].append(file)
    for found_cuts, files in sets.items():
        yield FileSet(place, tuple(snapshot.paths(files)), found_cuts)


def _span_key(stream: str, span: FileRows) -> SourceKey:
    return stream, bytes(span.hub_id), bytes(span.label)


def _cut(prefix: Prefix | None, span: FileRows) -> SourceCut | None:
    """The rows of a span that a prefix covers; None if there are none."""
    if prefix is None or span.from_seq > prefix.to_seq:
        return None
    return SourceCut(bytes(span.hub_id), bytes(span.label), prefix.to_seq)


def _kinds(snapshot: Snapshot, prefix: Prefix, count_cut: CountCut) -> Sequence[int]:
    """The number of entries of a prefix by kind."""
    if not prefix.size:
        return [0] * KINDS
    rows = snapshot.index.rows.get(_key(prefix))
    if rows is not None and rows.last_seq == prefix.to_seq:
        counts: Sequence[int] = rows.kinds
    else:
        counts = _kinds_up_to(snapshot, prefix, count_cut)
    if sum(counts) != prefix.size:
        raise execution_failed(
            f"stream {prefix.stream}: the view has {sum(counts)} rows for the {prefix.size} entries of label "
            f"{prefix.label.hex()}",
            REBUILD,
        )
    return counts


def _kinds_up_to(snapshot: Snapshot, prefix: Prefix, count_cut: CountCut) -> Sequence[int]:
    """Count the entries of an earlier prefix; only the files that it cuts are read."""
    counts: Sequence[int] = [0] * KINDS
    cut_files: list[DataFile] = []
    for file in snapshot.index.files(prefix.stream):
        for span in file.spans:
            if _span_key(prefix.stream, span) != _key(prefix) or span.from_seq > prefix.to_seq:
                continue
            if span.to_seq <= prefix.to_seq:
                counts = _added(counts, span.kinds)
            else:
                snapshot.files_of.verify(file)
                cut_files.append(file)
    if cut_files:
        cut = SourceCut(bytes(prefix.hub_id), bytes(prefix.label), prefix.to_seq)
        counts = _added(counts, count_cut(snapshot.paths(cut_files), cut))
    return counts


def _added(a: Sequence[int], b: Sequence[int]) -> list[int]:
    return [x + y for x, y in zip(a, b, strict=True)]


def opened_in(kinds: Sequence[int]) -> int:
    """Return the number of entries that opened: events, other messages, and carriers of copies."""
    return kinds[EntryKind.EVENT] + kinds[EntryKind.OTHER] + kinds[CARRIED]
