"""An index of a manifest, made once per commit: a query looks up the sources and days that it names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from veen_overlays.live.query_view.files.manifest import DataFile, ViewManifest, ViewSource
from veen_overlays.query.columns import DAY_MS

SourceKey = tuple[str, bytes, bytes]
"""Stream, hub_id and label."""


@dataclass(slots=True)
class SourceRows:
    """The rows of one source in all files."""

    last_seq: int
    kinds: list[int]


@dataclass(slots=True)
class ManifestIndex:
    """The sources and files of one commit."""

    manifest: ViewManifest
    sources: dict[SourceKey, ViewSource] = field(init=False)
    by_stream: dict[str, list[ViewSource]] = field(init=False)
    days: dict[str, dict[int, list[DataFile]]] = field(init=False)
    rows: dict[SourceKey, SourceRows] = field(init=False)

    def __post_init__(self) -> None:
        self.sources, self.by_stream = {}, defaultdict(list)
        for source in self.manifest.sources:
            self.sources[source.key] = source
            self.by_stream[source.stream].append(source)
        self.days, self.rows = defaultdict(lambda: defaultdict(list)), {}
        for file in self.manifest.files:
            self.days[file.stream][file.day].append(file)
            for span in file.spans:
                key = file.stream, bytes(span.hub_id), bytes(span.label)
                if (known := self.rows.get(key)) is None:
                    self.rows[key] = SourceRows(span.to_seq, list(span.kinds))
                else:
                    known.last_seq = max(known.last_seq, span.to_seq)
                    known.kinds = [a + b for a, b in zip(known.kinds, span.kinds, strict=True)]

    def files(self, stream: str, start: int | None = None, end: int | None = None) -> Iterator[DataFile]:
        """Yield the files of a stream that may have rows in [start, end) of hub_commit_time."""
        days = self.days.get(stream, {})
        first = 0 if start is None else start // DAY_MS
        last = max(days, default=-1) if end is None else (end - 1) // DAY_MS
        if last - first < len(days):
            wanted = [day for day in range(first, last + 1) if day in days]
        else:
            wanted = [day for day in days if first <= day <= last]
        for day in wanted:
            for file in days[day]:
                if (start is None or file.to_time >= start) and (end is None or file.from_time < end):
                    yield file
