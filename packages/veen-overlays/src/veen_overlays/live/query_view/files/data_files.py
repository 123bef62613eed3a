"""Data files: rows of one stream and one day as Parquet, sorted by subject (RESOLUTIONS P10, P11).

Rows are sorted by subject_id, then by source and seq, so that the statistics of a row group exclude it from a
query for another subject. A file and its subject filter are written once and never changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from veen_core.export import FileHash
from veen_core.hashing import H
from veen_core.ids import HubId, Label
from veen_overlays.live.private_files import create, make_folder, sync_folder
from veen_overlays.live.query_view.files.manifest import DamagedViewError, DataFile, FileRows
from veen_overlays.live.query_view.files.subject_filter import subject_filter
from veen_overlays.query.columns import COLUMNS, DAY_MS, stream_folder

ROW_GROUP_ROWS: Final = 8_192
MAX_TYPES: Final = 64
"""Most event types that the manifest lists for a file."""
DATA: Final = "data"
CARRIED: Final = 4
"""The kind of an entry that carries another hub's event; the event has a row of its own under its origin."""
KINDS: Final = CARRIED + 1

_ARROW: Final = {
    "binary": pa.binary(),
    "uint8": pa.uint8(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "text": pa.string(),
    "bool": pa.bool_(),
}
SCHEMA: Final = pa.schema([pa.field(c.name, _ARROW[c.type], nullable=not c.always) for c in COLUMNS])
ORDER: Final = [
    ("subject_id", "ascending"),
    ("hub_id", "ascending"),
    ("label", "ascending"),
    ("seq", "ascending"),
]
_DICTIONARY: Final = ["hub_id", "label", "subject_id", "principal_id", "event_type", "origin"]
"""Columns whose values repeat. Hashes and receipts never do; a dictionary would only be tried and dropped."""
_STATISTICS: Final = ["seq", "hub_commit_time", "subject_id", "event_type", "kind"]


class ViewRow(NamedTuple):
    """One row, in the order of ``COLUMNS``; the values of a row that is no event are None."""

    hub_id: bytes
    label: bytes
    epoch: int
    seq: int
    hub_commit_time: int
    subject_id: str | None
    principal_id: bytes | None
    event_type: str | None
    event_time: int | None
    origin: str | None
    payload_json: str | None
    attributed: bool | None
    leaf_hash: bytes
    receipt: bytes
    kind: int

    @property
    def day(self) -> int:
        """UTC days since 1970."""
        return self.hub_commit_time // DAY_MS


@dataclass(frozen=True, slots=True)
class Partition:
    """One stream and one UTC day."""

    stream: str
    day: int

    @property
    def folder(self) -> Path:
        """The folder of the partition, in the view's folder."""
        return Path(DATA, stream_folder(self.stream), str(self.day))


def partition_of(file: DataFile) -> Partition:
    return Partition(file.stream, file.day)


def path_of(root: Path, file: DataFile) -> Path:
    """Return the Parquet file."""
    return root / partition_of(file).folder / f"{file.name}.parquet"


def subjects_path(root: Path, file: DataFile) -> Path:
    """Return the file with the subject filter."""
    return root / partition_of(file).folder / f"{file.name}.subjects"


def table_of(rows: Sequence[ViewRow]) -> Any:
    """Return rows as an Arrow table in ``ORDER``."""
    columns = zip(*rows, strict=True)
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    return table.sort_by(ORDER)


def write_file(root: Path, partition: Partition, name: int, run: int, table: Any) -> DataFile:
    """Write a table in ``ORDER`` durably; it becomes part of the view when the manifest names the file."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=1,
        use_dictionary=_DICTIONARY,
        write_statistics=_STATISTICS,
        store_schema=False,
    )
    content = sink.getvalue().to_pybytes()
    subjects = subject_filter(s for s in table["subject_id"].unique().to_pylist() if s is not None)
    file = _described(partition, (name, run), table, content, subjects)
    folder = root / partition.folder
    make_folder(folder)
    create(path_of(root, file), content)
    create(subjects_path(root, file), subjects)
    sync_folder(folder)
    return file


def _described(
    partition: Partition, numbers: tuple[int, int], table: Any, content: bytes, subjects: bytes
) -> DataFile:
    times = pc.min_max(table["hub_commit_time"]).as_py()
    types = sorted(t for t in table["event_type"].unique().to_pylist() if t is not None)
    return DataFile(
        name=f"{numbers[0]:010d}",
        run=numbers[1],
        stream=partition.stream,
        day=partition.day,
        rows=table.num_rows,
        size=len(content),
        hash=FileHash(H(content)),
        from_time=times["min"],
        to_time=times["max"],
        types=tuple(types) if len(types) <= MAX_TYPES else None,
        subjects=FileHash(H(subjects)),
        spans=tuple(_spans(table)),
    )


def _spans(table: Any) -> Iterable[FileRows]:
    grouped = table.group_by(["hub_id", "label", "kind"]).aggregate(
        [("seq", "min"), ("seq", "max"), ("seq", "count")]
    )
    found: dict[tuple[bytes, bytes], tuple[int, int, Counter[int]]] = {}
    for row in grouped.to_pylist():
        key = row["hub_id"], row["label"]
        low, high, kinds = found.get(key, (row["seq_min"], row["seq_max"], Counter()))
        kinds[row["kind"]] += row["seq_count"]
        found[key] = min(low, row["seq_min"]), max(high, row["seq_max"]), kinds
    for (hub, label), (low, high, kinds) in sorted(found.items()):
        counts = tuple(kinds[kind] for kind in range(KINDS))
        yield FileRows(hub_id=HubId(hub), label=Label(label), from_seq=low, to_seq=high, kinds=counts)


def check_file(path: Path, size: int | None, digest: FileHash) -> bytes:
    """Return a file's content; raise ``DamagedViewError`` if it is missing, torn or altered."""
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise DamagedViewError(f"{path}: the file cannot be read: {exc.strerror or exc}") from None
    if size not in (None, len(content)) or H(content) != digest:
        raise DamagedViewError(f"{path}: the file does not have the hash that the manifest names")
    return content
