"""A snapshot of a view: the sources and files of one commit, which stay while the snapshot is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_core.ids import StreamSeq
from veen_core.proof import MmrProof
from veen_overlays.live.query_view.files.data_files import path_of
from veen_overlays.live.query_view.files.kept_files import KeptFiles
from veen_overlays.live.query_view.files.manifest import DataFile, ViewSource
from veen_overlays.live.query_view.files.manifest_index import ManifestIndex
from veen_overlays.live.query_view.files.node_file import NodeFile
from veen_overlays.live.query_view.files.subject_filter import may_contain
from veen_overlays.query.columns import stream_folder
from veen_overlays.query.errors import QueryError, execution_failed
from veen_overlays.query.result.coverage import Prefix

NODES: Final = "nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One committed state of a view."""

    folder: Path
    index: ManifestIndex
    files_of: KeptFiles
    """Checks files before they are read."""

    def prefixes(self, streams: Iterable[str]) -> list[Prefix]:
        """Return the sources of these streams that have entries of their own."""
        return [prefix_of(s) for stream in streams for s in self.index.by_stream.get(stream, ()) if s.own]

    def source(self, prefix: Prefix) -> ViewSource:
        """Return the source of a prefix; raise ``QueryError`` unless the view has exactly this prefix."""
        found = self.index.sources.get((prefix.stream, prefix.hub_id, prefix.label))
        if found is None or not 1 <= prefix.to_seq <= found.size or prefix.from_seq != 1:
            raise self._lacks(prefix)
        root = found.mmr_root if prefix.to_seq == found.size else self.nodes(prefix).root(prefix.to_seq)
        if root != prefix.mmr_root:
            raise execution_failed(
                f"stream {prefix.stream}: the root of label {prefix.label.hex()} at entry {prefix.to_seq} "
                "differs in this view",
                "check that both zones read the same hub; keep both results as evidence if they do",
            )
        return found

    def _lacks(self, prefix: Prefix) -> QueryError:
        return execution_failed(
            f"stream {prefix.stream}: the view does not cover entries {prefix.from_seq} to {prefix.to_seq} "
            f"of label {prefix.label.hex()}",
            "wait until the view has caught up with the log, or import the missing events",
        )

    def nodes(self, prefix: Prefix) -> NodeFile:
        """Return the MMR nodes of a source."""
        return NodeFile(nodes_path(self.folder, prefix.stream, prefix.hub_id, prefix.label))

    def prove(self, prefix: Prefix, seq: int) -> MmrProof:
        """Return the verified inclusion proof of an entry in the tree of a prefix (core §5.4)."""
        assert prefix.mmr_root is not None  # ``source`` has refused a prefix without entries
        return self.nodes(prefix).prove(StreamSeq(seq), prefix.to_seq, prefix.mmr_root)

    def files(
        self,
        stream: str,
        *,
        times: tuple[int | None, int | None] = (None, None),
        subject: str | None = None,
        types: Sequence[str] | None = None,
    ) -> list[DataFile]:
        """Return the files of a stream that may have events with these values; their hashes are checked."""
        found = [
            file
            for file in self.index.files(stream, *times)
            if (types is None or file.types is None or not set(types).isdisjoint(file.types))
            and (subject is None or may_contain(self.files_of.subjects_of(file), subject))
        ]
        for file in found:
            self.files_of.verify(file)
        return found

    def paths(self, files: Iterable[DataFile]) -> list[str]:
        """Return the paths of Parquet files."""
        return [str(path_of(self.folder, file)) for file in files]


def prefix_of(source: ViewSource) -> Prefix:
    """Return the prefix that a source covers now."""
    return Prefix(
        stream=source.stream,
        hub_id=source.hub_id,
        label=source.label,
        epoch=source.epoch,
        to_seq=source.size,
        mmr_root=source.mmr_root,
    )


def nodes_path(folder: Path, stream: str, hub_id: bytes, label: bytes) -> Path:
    """Return the file with the MMR nodes of a source."""
    return folder / NODES / stream_folder(stream) / f"{hub_id.hex()}-{label.hex()}"
