"""The columns of a view of opened events; every columnar engine builds and reads these (RESOLUTIONS P11).

Names and types only: this module needs no columnar library. A view has one row for each entry of a source,
also if the entry was pruned or did not open, so that no entry is silently absent.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote

ColumnType = Literal["binary", "uint8", "uint32", "uint64", "text", "bool"]


class EntryKind(enum.IntEnum):
    """The kind of one entry of a source: an event, or the reason why it is not an event."""

    EVENT = 0
    """A valid ``record.event.v1``."""
    UNOPENED = 1
    """The reader's keys do not open the message."""
    PRUNED = 2
    """Retention removed the message; its receipt and leaf hash remain."""
    OTHER = 3
    """The message opened, and is not a valid ``record.event.v1``."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. A column that is not ``always`` present is null unless ``kind`` is ``EntryKind.EVENT``."""

    name: str
    type: ColumnType
    always: bool = False


COLUMNS: Final = (
    Column("hub_id", "binary", always=True),
    Column("label", "binary", always=True),
    Column("epoch", "uint32", always=True),
    Column("seq", "uint64", always=True),
    Column("hub_commit_time", "uint64", always=True),
    Column("subject_id", "text"),
    Column("principal_id", "binary"),
    Column("event_type", "text"),
    Column("event_time", "uint64"),
    Column("origin", "text"),
    Column("payload_json", "text"),
    Column("attributed", "bool"),
    Column("leaf_hash", "binary", always=True),
    Column("receipt", "binary", always=True),
    Column("kind", "uint8", always=True),
)
"""In the order of the files. Partitions: the stream (``stream_folder``), then the UTC day of the commit."""

DAY_MS: Final = 86_400_000


def stream_folder(stream: str) -> str:
    """Return the folder of a stream: its name, percent-encoded."""
    return quote(stream, safe="")
