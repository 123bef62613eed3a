"""Waiting events: imported events beyond a gap of their source (RESOLUTIONS P7, P10, P13).

The key links before an event decide whether the event is attributed, and an entry in the gap may be such a
link. So an event beyond a gap has no row until the gap is filled. All waiting events of a view lie in one
file, which a commit writes anew if they have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from veen_core.export import FileHash
from veen_core.hashing import H
from veen_overlays.live.private_files import create, make_folder, sync_folder
from veen_overlays.live.query_view.files.data_files import SCHEMA, ViewRow, check_file
from veen_overlays.live.query_view.files.manifest import WaitingFile
from veen_overlays.recorder.attribution import Attribution

WAITING: Final = "waiting"
_KEYS: Final = ("stream", "signer", "principal", "client")
_SCHEMA: Final = pa.schema(
    [pa.field("stream", pa.string()), *(pa.field(name, pa.binary()) for name in _KEYS[1:]), *SCHEMA]
)


class WaitingEvent(NamedTuple):
    """The row of an imported event, and the keys that decide whether it is attributed."""

    row: ViewRow
    signer: bytes | None
    """The key that signed the original."""
    link: tuple[bytes, bytes] | None
    """The keys that the entry links: principal_id and client_id of a valid record.continuity.v1 (P10)."""

    def row_after(self, attribution: Attribution) -> ViewRow:
        """Return the row, once every entry before it is known; add the entry's link to ``attribution``."""
        if self.link is not None:
            attribution.add_link(*self.link)
        if self.row.principal_id is None:
            return self.row  # not an event
        return self.row._replace(attributed=attribution.is_linked(self.row.principal_id, self.signer))

    @property
    def size(self) -> int:
        """Bytes of the values whose length varies."""
        row = self.row
        return sum(len(each or "") for each in (row.payload_json, row.subject_id, row.origin, row.receipt))


def write_waiting(root: Path, name: int, events: Iterable[tuple[str, WaitingEvent]]) -> WaitingFile:
    """Write events with their streams durably; they are part of the view when the manifest names the file."""
    rows = [(stream, each.signer, *(each.link or (None, None)), *each.row) for stream, each in events]
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), _SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=_SCHEMA), sink, compression="zstd", store_schema=False)
    content = sink.getvalue().to_pybytes()
    folder = root / WAITING
    make_folder(folder)
    file = WaitingFile(name=f"{name:010d}", size=len(content), hash=FileHash(H(content)))
    create(waiting_path(root, file), content)
    sync_folder(folder)
    return file


def read_waiting(root: Path, file: WaitingFile) -> Iterator[tuple[str, WaitingEvent]]:
    """Yield the waiting events with their streams; raise ``DamagedViewError`` if the file was altered."""
    content = check_file(waiting_path(root, file), file.size, file.hash)
    table: Any = pq.read_table(pa.BufferReader(content))
    for stream, signer, principal, client, *row in zip(
        *(column.to_pylist() for column in table.select(_SCHEMA.names).columns), strict=True
    ):
        link = None if principal is None else (principal, client)
        yield stream, WaitingEvent(ViewRow(*row), signer, link)


def waiting_path(root: Path, file: WaitingFile) -> Path:
    """Return the file of the waiting events."""
    return root / WAITING / f"{file.name}.parquet"
